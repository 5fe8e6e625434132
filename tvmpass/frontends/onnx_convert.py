"""Run the stock ONNX importer with our corrections, node by node.

Each value carries the name of its ONNX node (see `tvmpass.core.source`).
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from contextlib import redirect_stdout, suppress
from io import StringIO

import onnx
import tvm
from tvm import relax, tirx
from tvm.relax.frontend.onnx import onnx_frontend

from tvmpass.core.errors import TvmpassError
from tvmpass.core.source import with_origin

from .onnx_fix import CONVERTERS
from .onnx_shapes import Dim
from .onnx_values import Value, evaluate, fold_small

_OPERATOR = re.compile(r'ir\.Op\(.*?name="([\w.]+)".*?support_level=\d+\)')
_LONGEST = 300

# Operators whose converter takes symbolic sizes as a ShapeExpr.
_TAKE_SHAPES = {"ConstantOfShape", "Expand", "Reshape", "Resize", "Slice"}


def convert(model: onnx.ModelProto, shapes: Mapping[str, tuple[Dim, ...]], where: str) -> tvm.IRModule:
    """Return the Relax module of a prepared model, with origins on every call."""
    symbols: dict[str, tirx.Var] = {}
    dims = {
        name: [d if isinstance(d, int) else symbols.setdefault(d, tirx.Var(d, "int64")) for d in shape]
        for name, shape in shapes.items()
    }
    opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 1)
    importer = _Importer(dims)
    # The stock importer prints what it also raises, and warns about renamed inputs.
    with warnings.catch_warnings(), redirect_stdout(StringIO()):
        warnings.simplefilter("ignore")
        try:
            mod = importer.from_onnx(model.graph, opset)
        except TvmpassError:
            raise
        except Exception as error:
            importer.close()
            text = f"{where}: {importer.describe()} cannot be imported: {one_line(error)}"
            raise TvmpassError(text) from error
    return importer.attach_origins(mod)


def one_line(error: Exception) -> str:
    """Return the last line of an error, without TVM's print of operator objects."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[-1] if lines else type(error).__name__
    text = _OPERATOR.sub(r"\1", text)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + " ..."


def _reads(node: onnx.NodeProto) -> list[str]:
    """Return the names that a node and its subgraphs read."""
    names = [name for name in node.input if name]
    for attribute in node.attribute:
        if attribute.HasField("g"):
            names += [name for inner in attribute.g.node for name in _reads(inner)]
            names += [output.name for output in attribute.g.output]
    return names


class _Importer(onnx_frontend.ONNXGraphImporter):
    """The stock importer; a marker binding before each node keeps its origin.

    Converters emit bindings and also return unbound calls.  The latter are
    bound at once, so that all bindings between two markers stem from one node.
    """

    def __init__(self, shapes):
        super().__init__(shapes, None, keep_params_in_input=False, sanitize=True)
        self._node: onnx.NodeProto | None = None
        self._markers: dict[relax.Var, str] = {}
        self._values: dict[str, Value] = {}

    def describe(self) -> str:
        """Return the current node in words."""
        return f"node {self._node.name!r} ({self._node.op_type})" if self._node is not None else "the graph"

    def close(self):
        """End the blocks that a failure left open; TVM warns of them otherwise."""
        with suppress(tvm.error.InternalError):
            while True:
                self.bb._end_block()

    def _check_for_unsupported_ops(self, graph):
        """Nothing: `onnx_check` has listed them with their nodes before."""

    def _construct_nodes(self, graph):
        """Convert node by node; shape arithmetic is evaluated, not emitted."""
        for node in graph.node:
            self._node = node
            self._markers[self.bb.emit(relax.ShapeExpr([len(self._markers)]), "marker")] = node.name
            inputs = [self._values.get(name, self._nodes.get(name)) if name else None for name in node.input]
            value = evaluate(node, inputs)
            if value is not None:
                self._values[node.output[0]] = value
                continue
            if node.op_type == "If" and self._take_branch(node):
                continue
            self._use_values(_reads(node), node.op_type in _TAKE_SHAPES)
            alone = onnx.GraphProto()
            alone.node.append(node)
            super()._construct_nodes(alone)
        self._node = None
        self._use_values([output.name for output in graph.output], False)

    def _take_branch(self, node: onnx.NodeProto) -> bool:
        """Convert the one branch that a constant condition chooses, in place of an If."""
        self._use_values(node.input[:1], False)
        condition = self._nodes[node.input[0]]
        if not isinstance(condition, tvm.ir.GenericConst):
            return False
        wanted = "then_branch" if condition.value.numpy().item() else "else_branch"
        branch = next(attribute.g for attribute in node.attribute if attribute.name == wanted)
        self._parse_graph_initializers(branch)
        for inner in branch.node:
            inner.name = node.name
        self._construct_nodes(branch)
        for name, result in zip(node.output, branch.output):
            self._nodes[name] = self._nodes[result.name]
        return True

    def _use_values(self, names, as_shape: bool):
        """Put the evaluated values that are read now where the importer looks."""
        for name in names:
            value = self._values.get(name)
            if value is None:
                continue
            if value.is_constant:
                self._nodes[name] = value.constant()
            elif as_shape and value.items.ndim == 1:
                self._nodes[name] = value.shape_expr()
            else:
                self._nodes[name] = value.tensor(self.bb)

    def _convert_operator(self, op_name, inputs, attrs, opset):
        own = CONVERTERS.get(op_name)
        if own is None:
            value = super()._convert_operator(op_name, inputs, attrs, opset)
        else:
            fallback = super()._convert_operator
            value = own(self.bb, inputs, attrs, opset, lambda: fallback(op_name, inputs, attrs, opset))
            value = self.bb.normalize(value)
        return self._bind(value)

    def _bind(self, value):
        if isinstance(value, relax.Tuple):
            return self.bb.normalize(relax.Tuple([self._bind(item) for item in value.fields]))
        if isinstance(value, relax.Call):
            # Sizes that onnxslim left as a computation are needed as numbers here.
            small = fold_small(value)
            return self.bb.emit(value) if small is None else small
        if isinstance(value, relax.TupleGetItem):
            return self.bb.emit(value)
        return value

    def attach_origins(self, mod: tvm.IRModule) -> tvm.IRModule:
        """Drop the markers and write each node's name into its values' spans."""
        function = mod["main"]
        blocks, name = [], None
        for block in function.body.blocks:
            bindings = []
            for binding in block.bindings:
                if binding.var in self._markers:
                    name = self._markers[binding.var]
                elif isinstance(binding, relax.VarBinding) and name:
                    value = with_origin(binding.value, [name])
                    if isinstance(value, relax.Call) and value is not binding.value:
                        relax.expr._update_type(value, binding.var.ty)
                    bindings.append(relax.VarBinding(binding.var, value))
                else:
                    bindings.append(binding)
            kind = relax.DataflowBlock if isinstance(block, relax.DataflowBlock) else relax.BindingBlock
            blocks.append(kind(bindings))
        body = relax.SeqExpr(blocks, function.body.body)
        relax.expr._update_type(body, function.body.ty)
        main = relax.Function(function.params, body, function.ret_ty, function.is_pure, function.attrs)
        main = main.without_attr("num_input")
        mod.update_func(mod.get_global_var("main"), main)
        return mod

"""Load an ONNX model as a Relax module."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence

import onnx
import tvm

from tvmpass.core.errors import TvmpassError

from .onnx_check import check_supported, check_types, check_valid
from .onnx_convert import convert, one_line
from .onnx_expand import inline_functions
from .onnx_fix import expanded_operators
from .onnx_prepare import fold, freeze_inputs, name_nodes
from .onnx_read import read_model
from .onnx_shapes import Dim, fix_shapes, model_inputs
from .sizes import check_sizes


def load_onnx(
    model: str | os.PathLike | onnx.ModelProto, shapes: Mapping[str, Sequence[Dim]] | None = None
) -> tvm.IRModule:
    """Load an ONNX model as an IRModule with one function ``main``.

    ``shapes`` gives dims that the model leaves open, by input name: sizes, or
    names such as ``"n"`` that stay symbolic; an open first dim defaults to 1.
    Stored values become constants of their exact dtype.  The attributes
    ``tvmpass.inputs`` and ``tvmpass.outputs`` of ``main`` are JSON lists of the
    model's names, and every call carries the name of its ONNX node.

    Raises `UsageError` for wrong shapes and `TvmpassError` for a model that is
    damaged, unsafe or uses what cannot be imported, one line each.
    """
    where = "the given ModelProto" if isinstance(model, onnx.ModelProto) else os.fspath(model)
    proto = read_model(model)
    name_nodes(proto.graph)
    check_supported(proto, where)
    check_types(proto.graph, where)
    fixed = fix_shapes(proto.graph, shapes)
    check_valid(proto, where)
    freeze_inputs(proto.graph)
    inputs = [value.name for value in model_inputs(proto.graph)]
    outputs = [value.name for value in proto.graph.output]
    try:
        proto = inline_functions(proto, expanded_operators())
    except RuntimeError as error:  # onnx's inliner is C++ and knows no other
        raise TvmpassError(f"{where}: functions cannot be inlined: {one_line(error)}") from error
    # A body may lead to operators that its own name did not show.
    check_supported(proto, where)
    mod = convert(fold(proto), fixed, where)
    check_sizes(mod, where)
    main = mod["main"].with_attrs(
        {"tvmpass.inputs": json.dumps(inputs), "tvmpass.outputs": json.dumps(outputs)}
    )
    mod.update_func(mod.get_global_var("main"), main)
    return mod

"""Read a Relax module from the JSON of this TVM's ``tvm.ir.save_json``.

TVM's own reader trusts its input: a node that refers to itself ends the
process.  So the graph is checked before TVM sees it (every node refers to
earlier ones only, as TVM writes them, not too deep, and tensors hold what they
claim), and TVM reads it in a copy of the process first.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import os
import signal
import struct
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tvm
from tvm import relax, tirx
from tvm_ffi import core as ffi

from tvmpass.core.errors import TvmpassError, UsageError, last_line, nearest
from tvmpass.core.files import reading

from .sizes import check_sizes

_MAX_DEPTH = 2000
_PATIENCE, _SLOWEST = 60, 1 << 18
"""Seconds, and bytes a second, that TVM gets at least to read a module."""
_LITERAL_KINDS = frozenset({1, 2, 3, 5, 6})
"""Static type indices of int, bool, float, dtype and device: fields that hold their value themselves."""
_RANK_AT, _SHAPE_AT = 24, 32
"""Where a stored tensor has its rank and its dims."""


def load_relax(
    path: str | os.PathLike,
    shapes: Mapping[str, Sequence[int | str]] | None = None,
    params: Any = None,
) -> tvm.IRModule:
    """Return the Relax module of a JSON file that ``tvmpass convert`` or ``tvm.ir.save_json`` wrote.

    ``shapes`` gives sizes of dims that the module leaves open, by parameter of
    ``main``; a word leaves them open.  ``params`` binds parameters by name.
    Raises `UsageError` for wrong arguments, `TvmpassError` for a file that is
    damaged, or of another version of TVM.
    """
    where = os.fspath(path)
    text = _read(where)
    _check_graph(text, where)
    if not _survives(text, where):
        raise TvmpassError(f"{where}: TVM {tvm.__version__} breaks down over this module (damaged?)")
    try:
        mod = tvm.ir.load_json(text)
    except Exception as error:  # TVM raises several classes
        raise TvmpassError(
            f"{where}: TVM {tvm.__version__} cannot read this module: {last_line(error)}"
        ) from error
    if not isinstance(mod, tvm.IRModule):
        raise TvmpassError(f"{where}: holds {type(mod).__name__}, an IRModule is needed")
    names = sorted(gv.name_hint for gv in mod.get_global_vars())
    if "main" not in names or not isinstance(mod["main"], relax.Function):
        raise TvmpassError(f"{where}: the module has no Relax function main (functions: {', '.join(names)})")
    try:
        relax.analysis.well_formed(mod)
    except Exception as error:  # TVM raises several classes
        raise TvmpassError(f"{where}: the module is not well-formed Relax: {last_line(error)}") from error
    check_sizes(mod, where)
    if shapes:
        mod = relax.transform.BindSymbolicVars(_sizes(mod["main"], shapes), "main")(mod)
    return _bound(mod, params)


def _bound(mod: tvm.IRModule, params: Any) -> tvm.IRModule:
    if params is None:
        return mod
    if isinstance(params, (str, os.PathLike)):
        from .relay.params import read_params

        params = read_params(params)
    known = [param.name for param in mod["main"].params]
    for name in params:
        if name not in known:
            raise UsageError(f"params: unknown parameter {name!r}{nearest(name, known)}")
    return relax.transform.BindParams("main", dict(params))(mod)


def _sizes(main: relax.Function, shapes: Mapping[str, Sequence[int | str]]) -> dict[tirx.Var, int]:
    """Return the size of each symbol that ``shapes`` fixes."""
    params = {param.name: param for param in main.params}
    found: dict[tirx.Var, int] = {}
    for name, dims in shapes.items():
        if name not in params:
            raise UsageError(
                f"unknown input {name!r} in shapes{nearest(name, params)}; inputs are: {', '.join(params)}"
            )
        declared = getattr(getattr(params[name].ty, "shape", None), "values", None)
        if declared is None or len(declared) != len(dims):
            raise UsageError(f"input {name!r} is {params[name].ty}; {tuple(dims)} was given")
        for axis, (new, old) in enumerate(zip(dims, declared)):
            if isinstance(old, tirx.IntImm):
                if new != int(old):
                    raise UsageError(
                        f"input {name!r} has dim {axis} fixed at {int(old)}, but {new} was given"
                    )
            elif isinstance(new, int) and isinstance(old, tirx.Var) and found.setdefault(old, new) != new:
                raise UsageError(
                    f"input {name!r}: dim {axis} is {old.name}, here {new}, elsewhere {found[old]}"
                )
    return found


def _read(where: str) -> str:
    with reading(where, "model file", "a .json file"):
        data = Path(where).read_bytes()
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise TvmpassError(f"{where} is no JSON text") from None


def _check_graph(text: str, where: str) -> None:
    """Refuse a graph that TVM's reader would not survive."""
    try:
        document = json.loads(text)
    except (RecursionError, ValueError) as error:
        raise TvmpassError(f"{where}: not JSON ({error})") from None
    nodes = document.get("nodes") if isinstance(document, dict) else None
    root = document.get("root_index") if isinstance(document, dict) else None
    if not isinstance(nodes, list) or not isinstance(root, int) or not 0 <= root < len(nodes):
        raise TvmpassError(f"{where}: not a module of TVM: nodes, and a root among them, are needed")
    depths: list[int] = []
    kinds: dict[str, frozenset[str]] = {}
    for index, node in enumerate(nodes):
        key = node.get("type") if isinstance(node, dict) else None
        if not isinstance(key, str) or len(key) > 200:
            raise TvmpassError(f"{where}: node {index} has no type (damaged?)")
        if key == "ffi.Tensor":
            _check_tensor(node.get("data"), f"{where}: node {index}")
        used = list(_references(key, node.get("data"), kinds, where))
        if any(not isinstance(one, int) or not 0 <= one < index for one in used):
            raise TvmpassError(f"{where}: node {index} ({key}) refers to what is not before it (damaged?)")
        depths.append(1 + max((depths[one] for one in used), default=0))
    if max(depths) > _MAX_DEPTH:
        raise TvmpassError(f"{where}: nodes are nested {max(depths)} deep; {_MAX_DEPTH} are possible")


def _survives(text: str, where: str) -> bool:
    """Tell whether TVM can read a module: whether a child that does so is not killed by it."""
    with warnings.catch_warnings():
        # Python warns of forks beside threads; the child takes no lock of Python's and does nothing else.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            # A fault would be told on stderr, at length.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            mod = tvm.ir.load_json(text)
            if isinstance(mod, tvm.IRModule):
                relax.analysis.well_formed(mod)
        finally:
            os._exit(0)
    try:
        deadline = time.monotonic() + _PATIENCE + len(text) / _SLOWEST
        while True:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                return not os.WIFSIGNALED(status)
            if time.monotonic() > deadline:
                raise TvmpassError(f"{where}: reading the module takes too long (damaged?)")
            time.sleep(0.002)
    except BaseException:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise


def _references(key: str, data: Any, kinds: dict[str, frozenset[str]], where: str) -> Iterator[Any]:
    """Yield the indices of the nodes that a node refers to."""
    if isinstance(data, list) and key != "ffi.Shape":
        yield from data
    elif isinstance(data, dict):
        if key not in kinds:
            try:
                kinds[key] = _fields(key)
            except ValueError:
                raise TvmpassError(f"{where}: this TVM has no node {key!r}") from None
        yield from (value for name, value in data.items() if name in kinds[key])


def _fields(key: str) -> frozenset[str]:
    """Return the fields of a type of TVM that refer to other nodes."""
    found = set()
    info: Any = ffi._lookup_or_register_type_info_from_type_key(key)
    while info is not None:
        for one in info.fields:
            schema = (one.metadata or {}).get("type_schema", "")
            if one.field_static_type_index not in _LITERAL_KINDS and "ffi.BigInt" not in schema:
                found.add(one.name)
        info = info.parent_type_info
    return frozenset(found)


def _check_tensor(blob: Any, what: str) -> None:
    """Refuse a stored tensor that claims more than it holds, before it is allocated."""
    if not isinstance(blob, str):
        raise TvmpassError(f"{what}: a stored tensor is no text")
    try:
        head = base64.b64decode(blob[:1024], validate=True)
        (rank,) = struct.unpack_from("<i", head, _RANK_AT)
        if not 0 <= rank <= 64:
            raise TvmpassError(f"{what}: a stored tensor claims {rank} dims")
        _, bits, lanes = struct.unpack_from("<BBH", head, _RANK_AT + 4)
        shape = struct.unpack_from(f"<{rank}q", head, _SHAPE_AT)
    except (struct.error, binascii.Error):
        raise TvmpassError(f"{what}: a stored tensor is damaged") from None
    if any(dim < 0 for dim in shape) or math.prod(shape) * bits * lanes // 8 > len(blob):
        raise TvmpassError(f"{what}: a stored tensor claims shape {list(shape)} but holds less (damaged?)")

"""Load a Relay program, as text or JSON, as a Relax module."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax

from tvmpass.core.errors import TvmpassError, UsageError
from tvmpass.core.files import reading
from tvmpass.frontends.formats import RELAY_JSON, is_text, model_format
from tvmpass.frontends.sizes import check_sizes, plain_shapes

from . import ast
from .convert import convert
from .inputs import Dim
from .json_reader import read_json
from .params import parse_params, read_params
from .parser import parse


def load_relay(
    program: str | os.PathLike | ast.Module,
    shapes: Mapping[str, Sequence[Dim]] | None = None,
    params: str | os.PathLike | bytes | Mapping[str, Any] | None = None,
) -> tvm.IRModule:
    """Load a Relay program as a Relax IRModule whose ``main`` is the program's ``@main``.

    ``program`` is a path, the text itself, or a tree; text as ``mod.astext()``
    prints it and JSON as ``tvm.ir.save_json`` writes it are told apart by content.
    ``params`` is the path of a file of ``relay.save_param_dict`` or an ``.npz``, the
    bytes of the former, or arrays by name; they become constants, and the other parameters of ``@main``
    stay inputs in its order.  ``shapes`` gives dims that the program leaves open
    (``?``): sizes, or words that stay symbolic; a word is one dim wherever it occurs.

    ``main`` gets the attributes ``tvmpass.inputs`` and ``tvmpass.outputs``, JSON
    lists of names; outputs are named ``output0``, ``output1``, and so on.  Raises
    `UsageError` for wrong arguments and `TvmpassError` for a program that is
    damaged or uses what cannot be converted, with its place.
    """
    module = program if isinstance(program, ast.Module) else read_program(program)
    mod = convert(module, _arrays(params), plain_shapes(shapes))
    check_sizes(mod, module.where)
    main = mod["main"]
    attrs = {
        "tvmpass.inputs": json.dumps([param.name for param in main.params]),
        "tvmpass.outputs": json.dumps([f"output{index}" for index in range(_count(main.ret_ty))]),
    }
    mod.update_func(mod.get_global_var("main"), main.with_attrs(attrs))
    return mod


def read_program(program: str | os.PathLike) -> ast.Module:
    """Return the tree of a Relay program: a path, or the text itself."""
    where = "the given text" if is_text(program) else os.fspath(program)
    text = str(program) if is_text(program) else _read(where)
    return (read_json if model_format(program) == RELAY_JSON else parse)(text, where)


def _read(where: str) -> str:
    with reading(where, "model file", "a .relay or .json file"):
        data = Path(where).read_bytes()
    if not data.strip():
        raise TvmpassError(f"{where} is empty, not a Relay program")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TvmpassError(f"{where} is not a Relay program: byte {error.start} is no UTF-8 text") from None


def _arrays(params: str | os.PathLike | bytes | Mapping[str, Any] | None) -> dict[str, np.ndarray]:
    """Return parameters by name; whatever has ``numpy()`` (a tensor of TVM) is taken too."""
    if params is None:
        return {}
    if isinstance(params, (str, os.PathLike)):
        return read_params(params)
    if isinstance(params, (bytes, bytearray)):
        return parse_params(bytes(params), "the given parameters")
    if not isinstance(params, Mapping):
        raise UsageError(f"params: a path or arrays by name are needed, not {type(params).__name__}")
    found = {}
    for name, value in params.items():
        try:
            array = value.numpy() if hasattr(value, "numpy") else np.asarray(value)
        except ValueError as error:  # rows of different lengths
            raise UsageError(f"params: {name!r} is no array: {error}") from None
        if not isinstance(name, str) or array.dtype.hasobject:
            raise UsageError(f"params: {name!r} is no array by name")
        found[name] = array
    return found


def _count(ty: Any) -> int:
    return sum(_count(item) for item in ty.fields) if isinstance(ty, relax.TupleType) else 1

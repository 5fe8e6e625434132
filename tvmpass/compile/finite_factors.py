"""Say on a kernel which factors of an image's padding are finite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax

from tvmpass.core.constants import constant_array
from tvmpass.core.engine import relax_functions
from tvmpass.core.padding import FINITE_ATTR, padded_factors
from tvmpass.core.site import op_name


def mark_finite(mod):
    """Say on each kernel which factors of padding are finite constants at every call of it."""
    arguments: dict[str, list[list[Any]]] = {}
    for name in relax_functions(mod):
        for block in mod[name].body.blocks:
            for binding in block.bindings:
                if op_name(binding.value) == "relax.call_tir":
                    callee, given = list(binding.value.args)[:2]
                    given = list(given.fields) if isinstance(given, relax.Tuple) else [given]
                    arguments.setdefault(callee.name_hint, []).append(given)
    result = tvm.IRModule(dict(mod.functions_items()), attrs=mod.attrs)
    for name, calls in arguments.items():
        function = mod[name]
        finite = [p for p in sorted(padded_factors(function)) if all(_finite(c, p) for c in calls)]
        if finite:
            result.update_func(mod.get_global_var(name), function.with_attr(FINITE_ATTR, finite))
    return result


def _finite(arguments: Sequence[Any], position: int) -> bool:
    array = constant_array(arguments[position]) if position < len(arguments) else None
    # Of 16-bit floats numpy knows but one; all of them fit into single precision.
    narrow = array is not None and array.dtype.itemsize < 4
    return array is not None and bool(np.isfinite(array.astype("float32") if narrow else array).all())

"""What earlier releases of TVM wrote otherwise into node-graph JSON.

Read off the declarations of every release from 0.6 to 0.18; `table.schema` has
those of 0.19.  Texts that were plain strings before 0.9 need no entry here: a
plain string is told from the index of a string node by its form.
"""

from __future__ import annotations

from typing import Any

FIELDS: dict[str, dict[str, str]] = {
    "relay.attrs.DequantizeAttrs": {"input_zero_point": "int", "input_scale": "double"},
    "relay.attrs.DeviceCopyAttrs": {"src_dev_type": "int", "dst_dev_type": "int"},
    "relay.attrs.NonMaximumSuppressionAttrs": {"max_output_size": "IntImm", "iou_threshold": "double"},
    "relay.attrs.OnDeviceAttrs": {"device_type": "int", "is_fixed": "bool"},
    "relay.attrs.PadAttrs": {"pad_value": "double"},
    "relay.attrs.QuantizeAttrs": {"output_zero_point": "int", "output_scale": "double"},
    "relay.attrs.RequantizeAttrs": {
        "input_scale": "double",
        "input_zero_point": "int",
        "output_scale": "double",
        "output_zero_point": "int",
    },
    "relay.attrs.ReshapeAttrs": {"reverse": "bool"},
    "relay.attrs.ResizeAttrs": {
        "size": "Array",
        "layout": "runtime.String",
        "method": "runtime.String",
        "coordinate_transformation_mode": "runtime.String",
        "align_corners": "bool",
        "out_dtype": "DataType",
    },
    "relay.attrs.Resize3dAttrs": {
        "size": "Array",
        "layout": "runtime.String",
        "method": "runtime.String",
        "coordinate_transformation_mode": "runtime.String",
        "out_dtype": "DataType",
    },
    "relay.attrs.ScatterAddAttrs": {"axis": "IntImm"},
    "relay.attrs.SimulatedQuantizeAttrs": {"kind": "int", "sign": "bool", "rounding": "str"},
}
"""Fields that 0.19 no longer has, by attribute type."""

ARGUMENTS: dict[str, list[str]] = {
    "dyn.strided_slice": ["data", "begin", "end", "strides"],
    "scatter": ["data", "indices", "updates"],
}
"""The arguments of operators that 0.19 declares otherwise than it calls them, or no longer has."""

OPTIONAL: dict[str, int] = {
    "nn.pad": 1,
    "vision.get_valid_counts": 1,
    "vision.non_max_suppression": 2,
}
"""How many of the last arguments an operator may lack: before 0.8 they were attributes."""

UNDECLARED: dict[str, dict[str, str]] = {"dyn.expand_dims": {"num_newaxis": "int"}}
"""Attributes that 0.19 gives calls of an operator without saying so in its registration."""

_CHANGED: tuple[tuple[str, str, tuple[int, int], str], ...] = (
    ("relay.attrs.TopkAttrs", "k", (0, 7), "int"),
    ("relay.attrs.NonMaximumSuppressionAttrs", "max_output_size", (0, 7), "int"),
    ("relay.attrs.GetValidCountsAttrs", "score_threshold", (0, 8), "double"),
)
"""Attribute type, field, the release that changed it, and its kind before."""


def release(version: str) -> tuple[int, int] | None:
    """Return ``(0, 8)`` for ``0.8.dev0``, None where the version is not known."""
    parts = version.split(".")
    if len(parts) < 2 or not (parts[0].isdecimal() and parts[1].isdecimal()):
        return None
    return int(parts[0]), int(parts[1])


def field_kind(type_key: str, name: str, version: str) -> str | None:
    """Return the kind of a field in a release, None where 0.19 declares it as it was."""
    written = release(version)
    for key, field, changed, kind in _CHANGED:
        if (key, field) == (type_key, name) and written is not None and written < changed:
            return kind
    return FIELDS.get(type_key, {}).get(name)


def upgraded(operator: str, attrs: dict[str, Any]) -> dict[str, Any]:
    """Return a call's attributes with the meaning that they had when they were written."""
    if operator == "nn.batch_matmul" and "transpose_b" not in attrs:
        # Before 0.8 the second operand was always read transposed, and no attribute said so.
        return {**attrs, "transpose_a": False, "transpose_b": True}
    return attrs

"""What the rules about batch norm share: which ones they take, and the arithmetic."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import tvm
from tvm import relax

from relay_passes.operands import call_of
from tvmpass.core.decision import Refusal, RefusalKind
from tvmpass.core.legality import NOT_CONSTANT

TRAINING = RefusalKind("training", "{value} is a batch norm in training mode")
STATISTICS_READ = RefusalKind("statistics-read", "{value} is read as more than its first item: {readers}")

PARAMETERS = ("gamma", "beta", "mean", "variance")


def is_constant(view, expr) -> bool:
    return isinstance(view.value(expr), tvm.ir.GenericConst)


def first_items(view) -> Iterator[tuple]:
    """Yield ``(item 0, batch norm)`` variables."""
    for var, value in view.bindings.items():
        if not isinstance(value, relax.TupleGetItem) or value.index != 0:
            continue
        if call_of(view, value.tuple_value, "relax.nn.batch_norm") is not None:
            yield var, value.tuple_value


def check_inference(site) -> Refusal | None:
    """Check the batch norm named ``norm``: inference, constants, only item 0 read."""
    view, norm = site.view, site.value("norm")
    if bool(norm.attrs.training):
        return TRAINING(value=site.name("norm"))
    if site.escapes("norm"):
        return STATISTICS_READ(value=site.name("norm"), readers=site.readers("norm"))
    for name, expr in zip(PARAMETERS, norm.args[1:]):
        if not is_constant(view, expr):
            return NOT_CONSTANT(value=name)
    return None


def scale_and_shift(site) -> tuple[np.ndarray, np.ndarray]:
    """Return float64 ``(s, t)`` with batch_norm(x) = x * s + t, per channel."""
    norm = site.value("norm")
    gamma, beta, mean, variance = (
        site.view.value(a).value.numpy().astype("float64").reshape(-1) for a in norm.args[1:5]
    )
    with np.errstate(all="ignore"):
        scale = 1.0 / np.sqrt(variance + float(norm.attrs.epsilon))
        if norm.attrs.scale:
            scale = gamma * scale
        shift = -mean * scale
    return scale, shift + beta if norm.attrs.center else shift

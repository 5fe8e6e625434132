"""Spell out an inference batch norm that no convolution could take.

before: ``batch_norm(x, gamma, beta, mean, var)[0]``
after:  ``x * s + t`` with ``s = gamma / sqrt(var + eps)`` and ``t = beta - mean * s``:
        constants, or a few operators on one value per channel

Always pays: a product and a sum are elementwise and join whatever is around
them, where a batch norm is a kernel of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from tvm import relax

from relay_passes.operands import call_of, constant
from relay_passes.simplify import batch_norm as bn
from tvmpass.core.rule import SimplifyRule
from tvmpass.core.site import Site, dtype_of


@dataclass(frozen=True)
class LowerBatchNorm(SimplifyRule):
    """Spell out an inference batch norm that no convolution could take."""

    reassociates: ClassVar = True

    refusals: ClassVar = (bn.TRAINING,)

    def match(self, view):
        for var, value in view.bindings.items():
            if call_of(view, value, "relax.nn.batch_norm") is not None:
                yield Site.make(self, view, var, {var}, {"norm": var})

    def check(self, site):
        return bn.TRAINING(value=site.name("norm")) if bool(site.attrs("norm").training) else None

    def rewrite(self, site):
        """Return the tuple a batch norm gives; its statistics are unchanged in inference."""
        norm = site.value("norm")
        mean, variance = norm.args[3], norm.args[4]
        if all(bn.is_constant(site.view, a) for a in norm.args[1:]):
            result = _with_constants(site, norm)
        else:
            result = _spelled_out(norm)
        return relax.Tuple([result, mean, variance])


def _with_constants(site, norm):
    x = norm.args[0]
    scale, shift = (constant(a.reshape(_shape(norm)), dtype_of(x)) for a in bn.scale_and_shift(site))
    return relax.op.add(relax.op.multiply(x, scale), shift)


def _spelled_out(norm):
    op, attrs = relax.op, norm.attrs
    x, gamma, beta, mean, variance = (
        a if i == 0 else op.reshape(a, _shape(norm)) for i, a in enumerate(norm.args)
    )
    deviation = op.sqrt(op.add(variance, constant(np.asarray(attrs.epsilon), dtype_of(norm.args[0]))))
    one = constant(np.asarray(1.0), dtype_of(norm.args[0]))
    scale = op.divide(gamma if attrs.scale else one, deviation)
    shift = op.multiply(mean, scale)
    result = op.multiply(x, scale)
    if attrs.center:
        return op.add(result, op.subtract(beta, shift))
    return op.subtract(result, shift)


def _shape(norm) -> list[int]:
    """The shape in which a per-channel value broadcasts over the data."""
    rank = norm.args[0].ty.ndim
    axis = int(norm.attrs.axis) % rank
    return [-1 if i == axis else 1 for i in range(rank)]

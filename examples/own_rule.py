"""A rule of one's own: divide by a power of two as a multiplication, which is exact.

    python examples/own_rule.py                                    # try it on a small module
    tvmpass build model.onnx -o model.so --rules examples/own_rule.py

docs/write_a_rule.md explains how rules are written.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from tvm import relax
from tvm.relax.dpl import is_const, is_op, wildcard

import tvmpass
from tvmpass import RefusalKind, SimplifyRule

NOT_ONE_NUMBER = RefusalKind("not-one-number", "the divisor has shape {shape}, expected a single number")
NOT_A_FLOAT = RefusalKind("not-a-float", "{value} is {dtype}: dividing integers rounds")
NOT_A_POWER_OF_TWO = RefusalKind("not-a-power-of-two", "1/{divisor} would be rounded")


@dataclass(frozen=True)
class MultiplyByReciprocal(SimplifyRule):
    """Divide by a constant power of two as a multiplication."""

    level: ClassVar = 1
    refusals: ClassVar = (NOT_ONE_NUMBER, NOT_A_FLOAT, NOT_A_POWER_OF_TWO)

    def pattern(self):
        x, divisor = wildcard(), is_const()
        return is_op("relax.divide")(x, divisor), {"x": x, "divisor": divisor}

    def check(self, site):
        value = site.constant("divisor")
        if value.size != 1 or site.shape("divisor") != ():
            return NOT_ONE_NUMBER(shape=list(value.shape))
        if not site.dtype("x").startswith("float"):
            return NOT_A_FLOAT(value=site.name("x"), dtype=site.dtype("x"))
        number = float(value)
        # A power of two has the mantissa 0.5, and so has its reciprocal; the
        # limit keeps the reciprocal a normal number in every float dtype.
        if not (
            math.isfinite(number) and abs(math.frexp(number)[0]) == 0.5 and 2**-14 <= abs(number) <= 2**14
        ):
            return NOT_A_POWER_OF_TWO(divisor=number)
        return None

    def rewrite(self, site):
        reciprocal = np.asarray(1.0 / float(site.constant("divisor")), site.dtype("x"))
        return relax.op.multiply(site["x"], relax.const(reciprocal, site.dtype("x")))


RULES = (MultiplyByReciprocal,)
"""What ``--rules`` reads."""


def main() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([4, 8], "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            quarter = builder.emit(relax.op.divide(x, relax.const(4.0, "float32")))
            third = builder.emit(relax.op.divide(quarter, relax.const(3.0, "float32")))
            out = builder.emit_output(relax.op.exp(third))
        builder.emit_func_output(out)

    with tvmpass.PassContext(config={"tvmpass.verify": "numeric"}):
        library = tvmpass.build(builder.get(), rules=(*tvmpass.rules(), MultiplyByReciprocal()))
    for decision in library.report.decisions:
        if decision.rule == "multiply-by-reciprocal":
            reason = decision.refusal.text() if decision.refusal else ""
            site = f"{decision.function}:{decision.site}"
            print(f"{decision.rule} at {site}: {decision.outcome} {reason}".rstrip())

    array = np.random.default_rng(0).standard_normal((4, 8)).astype("float32")
    difference = np.abs(library.run(x=array)[0] - np.exp(array / 4 / 3)).max()
    print(f"largest difference from numpy: {difference:.2g}")


if __name__ == "__main__":
    main()

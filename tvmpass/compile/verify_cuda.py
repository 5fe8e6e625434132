"""Numeric verification for CUDA targets, where no device need answer.

Rewrites and fusions are compared on the CPU, as graphs.  Each kernel is then
compared with its unscheduled form: the CUDA text that would be compiled runs in
the emulator, on sampled blocks, and the unscheduled form on the CPU.
"""

from __future__ import annotations

import numpy as np
import tvm
from tvm import tirx

from tvmpass.catalogue import finish
from tvmpass.core.decision import Refusal
from tvmpass.core.errors import last_line
from tvmpass.core.options import Options

from .cuda_source import emit_cuda
from .target import parse_target
from .verify_inputs import difference
from .verify_numeric import KERNEL_WRONG, NumericVerifier

SAMPLED_BLOCKS = 6
"""Of a big grid: its corners and last block, the others drawn."""

ORDERS = 2
"""Thread orders tried; races in shared memory show in any."""


class CudaVerifier(NumericVerifier):
    """Compares graphs on the CPU and CUDA kernels in the emulator."""

    kernels_apart = True

    def __init__(self, target: tvm.target.Target, options: Options):
        super().__init__(parse_target("llvm", 1), options)
        self.device_target = target

    def _kernel(self, function: tirx.PrimFunc, scheduled: tirx.PrimFunc) -> Refusal | None:
        from tvmpass.testing.cuda_emulator import EmulationError, Unmodelled, emulate

        shapes = self.checkable_shapes(function)
        if shapes is None:
            return None
        try:
            source = emit_cuda(scheduled, self.device_target, "kernel")
            reference = self._kernel_runner(finish(function, self.target, self.options))
        except Exception as error:  # TVM raises several classes
            self.skip(last_line(error))
            return None
        for name, drawn in self.drawn(function, shapes):
            expected = reference([a.copy() for a in drawn])
            try:
                found = emulate(source, drawn, orders=ORDERS, sample_blocks=SAMPLED_BLOCKS)
            except Unmodelled as error:
                self.skip(last_line(error))
                return None
            except EmulationError as error:
                if error.fault == "no end":
                    self.skip("a kernel that takes too long in the emulator")
                    return None
                return KERNEL_WRONG(inputs=name, difference=last_line(error))
            pairs = found.written(expected)
            # Elements of blocks that were not sampled stand for themselves.
            gap = difference([e for _, e, _ in pairs], [np.where(m, a, e) for m, e, a in pairs], loose=False)
            if gap is not None:
                return KERNEL_WRONG(inputs=name, difference=gap)
        self.checked += 1
        return None


def make_verifier(target: tvm.target.Target, options: Options) -> NumericVerifier:
    """Return the verifier for a target's kernels."""
    return CudaVerifier(target, options) if target.kind.name == "cuda" else NumericVerifier(target, options)

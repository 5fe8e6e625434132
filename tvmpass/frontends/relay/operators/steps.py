"""Kernels written as steps: te.extern with loops, variables and conditions.

For what no composition of operators states, such as a list whose length is
known only when the program runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import Any

from tvm import te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T


def kernel(
    name: str, inputs: Sequence[Any], shapes: list, dtypes: list[str], body: Callable[[Any, Any], None]
):
    """Return the outputs of a kernel; ``body`` writes it, given input and output buffers."""

    def build(ins, outs):
        with IRBuilder() as builder:
            body([T.buffer_proxy(b) for b in ins], [T.buffer_proxy(b) for b in outs])
            return builder.get()

    return te.extern(shapes, list(inputs), build, dtype=dtypes, name=name, tag=name)


def local(dtype: str, value: Any):
    """Return a variable of the kernel, as a buffer of one element."""
    variable = T.buffer_proxy(T.alloc_buffer((1,), dtype, scope="local"))
    variable[0] = tirx.const(value, dtype) if isinstance(value, (int, float)) else value
    return variable


@contextmanager
def when(*conditions):
    """Write what follows as done where all conditions hold."""
    with T.If(tirx.all(*conditions)), T.Then():
        yield


def element(buffer, tensor, dtype: str):
    """Return the one element of ``tensor``, read from its buffer, in a dtype."""
    rank = len(tensor.shape)
    return tirx.Cast(dtype, buffer[tuple([0] * rank)] if rank > 1 else buffer[0] if rank else buffer[()])

"""Run emitted CUDA source on the CPU, and check what a device would not say.

The text that would go to nvcc is compiled by the host's C++ compiler against
the headers in ``shim`` and the runtime in ``runtime``.  Each CUDA thread is a
fibre; blocks run one after another.  Modelled are barriers, static and dynamic
shared memory, warp shuffles, votes and masks, ``cp.async`` with its groups (a
copy lands when a wait reaches its group, not before), tensor cores through
``wmma``, atomic operations, 16-bit floats and vector types, and the host code
between launches.

An error is: a barrier that not all threads of a block reach, or a warp
operation that not all lanes of its mask reach; an access outside of the arrays
or of shared memory; a misaligned vector access; a load of shared memory that
nothing was stored to; two threads at one place without a barrier between, of
which one stores (in shared memory whatever the thread order; in global memory
as far as one of the orders shows it; a store that leaves the value as it was
is no conflict); shared memory used while a copy into it is in flight; a run
that does not end.  Shared memory holds NaNs at the start of each block.

What it cannot show:

- speed, bank conflicts, occupancy, registers, launch limits;
- faults of nvcc and ptxas, and undefined C++ that the two compilers treat
  differently; code that the host's compiler optimises away is not checked;
- the rounding of a device: tensor cores, approximate functions and 16-bit
  functions such as ``hexp`` are computed in float or double and rounded once;
- ordering weaker than barriers: warp shuffles and ``__syncwarp`` count as
  ordering the memory of the lanes that take part, fences do nothing, and
  blocks that talk through flags are not modelled;
- bounds of local arrays through pointers (by index they are checked);
- races in global memory between threads that every tried order happens to
  serialise the same way, and in blocks that were not sampled;
- raw ``mma``, ``ldmatrix``, ``wgmma``, TMA and mbarrier PTX, fp8 and smaller
  types, cooperative groups, device printf: `Unmodelled`.

Where blocks are sampled, only elements that these blocks store may be compared
(`EmulationResult.written`): that each element is stored at all is not shown.
"""

from .emulate import EmulationResult, Order, Run, emulate, emulate_kernel, sampled, standard_orders
from .errors import EmulationError, Unmodelled

__all__ = [
    "EmulationError",
    "EmulationResult",
    "Order",
    "Run",
    "Unmodelled",
    "emulate",
    "emulate_kernel",
    "sampled",
    "standard_orders",
]

"""Rules that propose which bindings become one kernel; the planner chooses.

Every rule proposes groups of consecutive work out of which exactly one value is
read, so that a group can be called where its last binding stood.  None of them
changes arithmetic.
"""

from .fuse_conv_input import FuseConvInput
from .fuse_elementwise_chain import FuseElementwiseChain
from .fuse_reduce_producer import FuseReduceProducer
from .grow_epilogue import GrowEpilogue

RULES = (GrowEpilogue, FuseConvInput, FuseReduceProducer, FuseElementwiseChain)

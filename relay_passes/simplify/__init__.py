"""Rules that make a program smaller without changing what it computes.

They run at once, in this order, again and again until none applies.  Each is
exact for every input, except that folding into a convolution rounds weights anew.
"""

from .absorb_broadcasts import AbsorbBroadcasts
from .common_subexpressions import CommonSubexpressions
from .dead_code import DeadCode
from .eliminate_identities import EliminateIdentities
from .fold_batch_norm_into_conv import FoldBatchNormIntoConv
from .fold_constants import FoldConstants
from .lower_batch_norm import LowerBatchNorm
from .merge_reshapes import MergeReshapes
from .merge_transposes import MergeTransposes
from .reshape_trivial_transpose import ReshapeTrivialTranspose

RULES = (
    FoldConstants,
    EliminateIdentities,
    AbsorbBroadcasts,
    MergeTransposes,
    ReshapeTrivialTranspose,
    MergeReshapes,
    CommonSubexpressions,
    FoldBatchNormIntoConv,
    LowerBatchNorm,
    DeadCode,
)

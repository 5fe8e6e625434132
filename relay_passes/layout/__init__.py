"""Rules about how tensors lie in memory."""

from .pack_weights import PackWeights
from .prefer_nhwc import PreferNHWC
from .rewrite_conv_transpose import RewriteConvTranspose
from .sink_transposes import SinkTransposes

RULES = (RewriteConvTranspose, SinkTransposes, PreferNHWC, PackWeights)

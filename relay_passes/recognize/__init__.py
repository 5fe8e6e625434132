"""Rules that find an operator in the pieces an exporter wrote.

A recognised operator computes what its pieces did, up to rounding; it stands for
them where a kernel of its own exists.
"""

from .recognize_gelu import RecognizeGelu
from .recognize_hard_swish import RecognizeHardSwish
from .recognize_layer_norm import RecognizeLayerNorm
from .recognize_rms_norm import RecognizeRmsNorm
from .recognize_softmax import RecognizeSoftmax

RULES = (RecognizeSoftmax, RecognizeLayerNorm, RecognizeRmsNorm, RecognizeGelu, RecognizeHardSwish)

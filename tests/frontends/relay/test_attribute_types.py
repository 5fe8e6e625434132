"""Attributes of another type than Relay declares are refused, never rounded."""

import pytest

from tvmpass.frontends.relay.attribute_types import check_values
from tvmpass.frontends.relay.table import CannotConvert


@pytest.mark.parametrize(
    ("operator", "attrs"),
    [
        ("take", {"axis": 0, "mode": "clip"}),
        ("take", {"axis": None}),
        ("topk", {"k": 2, "is_ascend": True, "dtype": "int64"}),
        ("topk", {"k": None, "is_ascend": 1}),
        ("sum", {"axis": [0, -1], "keepdims": False}),
        ("sum", {"axis": 1}),
        ("sum", {"axis": None}),
        ("nn.pad", {"pad_width": [[0, 0], [1, 2]]}),
        ("clip", {"a_min": 0, "a_max": 6.5}),
        ("cast", {"dtype": "bfloat16"}),
        ("nn.conv2d", {"out_dtype": "", "channels": 3, "padding": [1, 1, 1, 1]}),
        ("nn.dense", {"units": None, "out_dtype": "void"}),
        ("strided_slice", {"begin": [3], "end": [0], "strides": [-1]}),
        ("split", {"indices_or_sections": 3}),
        ("split", {"indices_or_sections": [1, 4]}),
        ("vision.multibox_prior", {"sizes": [0.5, 1], "ratios": [1.0, 2.0]}),
        ("arange", {"dtype": "int32"}),
        ("no.operator", {"axis": 0.5}),
    ],
)
def test_values_of_their_type(operator, attrs):
    check_values(operator, attrs)


@pytest.mark.parametrize(
    ("operator", "attrs", "message"),
    [
        ("take", {"axis": 0.1}, "axis=0.1 is not an integer"),
        ("take", {"mode": 3}, "mode=3 is not a string"),
        ("nn.softmax", {"axis": None}, "axis=None is not an integer"),
        ("nn.softmax", {"axis": [1]}, r"axis=\[1\] is not an integer"),
        ("topk", {"is_ascend": 2}, "is_ascend=2 is not True or False"),
        ("topk", {"dtype": "int37"}, "dtype='int37' is not a dtype"),
        ("sum", {"axis": [0.0]}, r"axis=\[0.0\] is not a list of integers"),
        ("sum", {"axis": "0"}, "axis='0' is not a list of integers"),
        ("nn.pad", {"pad_width": [[0.0, 0], [1, 2]]}, "is not a list of integers"),
        ("nn.conv2d", {"dilation": [2, -1]}, r"dilation=\[2, -1\] is not positive"),
        ("nn.conv2d", {"groups": 0}, "groups=0 is not positive"),
        ("nn.max_pool2d", {"pool_size": [0, 3]}, r"pool_size=\[0, 3\] is not positive"),
        ("nn.max_pool2d", {"strides": [1, 1]}, "pool_size is not stated"),
        ("nn.depth_to_space", {"block_size": 0}, "block_size=0 is not positive"),
        ("nn.batch_norm", {"epsilon": 1e40}, "epsilon=1e.40 does not fit float32"),
        ("nn.batch_norm", {"epsilon": float("nan")}, "does not fit float32"),
        ("clip", {"a_min": "0"}, "a_min='0' is not a number"),
        ("clip", {"a_max": True}, "a_max=True is not a number"),
        ("reshape", {"newshape": [[[[1]]]]}, "is not a list of integers"),
        ("reshape", {"newshape": ["x" * 100]}, r"newshape=\['x+\.\.\. is not"),
    ],
)
def test_values_of_another_type(operator, attrs, message):
    with pytest.raises(CannotConvert, match=message):
        check_values(operator, attrs)

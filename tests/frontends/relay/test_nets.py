"""Small nets as Relay text: results, and what the rules make of them."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest
import tvm
from running import HEADER, converted
from tvm import relax

import tvmpass
from tvmpass.frontends.relay.parser import parse
from tvmpass.testing.graphs import kernel_calls

PRE_ACTIVATION = """
def @main(%data: Tensor[(1, 3, 12, 12), float32],
          %p_gamma: Tensor[(3), float32], %p_beta: Tensor[(3), float32],
          %p_mean: Tensor[(3), float32], %p_var: Tensor[(3), float32], %w0: Tensor[(16, 3, 3, 3), float32],
          %a_gamma: Tensor[(16), float32], %a_beta: Tensor[(16), float32], %a_mean: Tensor[(16), float32],
          %a_var: Tensor[(16), float32], %w1: Tensor[(16, 16, 3, 3), float32],
          %b_gamma: Tensor[(16), float32], %b_beta: Tensor[(16), float32], %b_mean: Tensor[(16), float32],
          %b_var: Tensor[(16), float32]) {
  %0 = nn.batch_norm(%data, %p_gamma, %p_beta, %p_mean, %p_var, epsilon=2e-05f, scale=False);
  %1 = nn.conv2d(%0.0, %w0, padding=[1, 1, 1, 1], channels=16, kernel_size=[3, 3]);
  %2 = nn.batch_norm(%1, %a_gamma, %a_beta, %a_mean, %a_var, epsilon=2e-05f);
  %3 = nn.relu(%2.0);
  %4 = nn.conv2d(%3, %w1, padding=[1, 1, 1, 1], channels=16, kernel_size=[3, 3]);
  %5 = add(%4, %3);
  %6 = nn.batch_norm(%5, %b_gamma, %b_beta, %b_mean, %b_var, epsilon=2e-05f);
  %7 = nn.relu(%6.0);
  nn.batch_flatten(nn.global_avg_pool2d(%7))
}
"""

POST_ACTIVATION = """
def @main(%data: Tensor[(1, 3, 12, 12), float32], %w0: Tensor[(16, 3, 3, 3), float32],
          %a_gamma: Tensor[(16), float32], %a_beta: Tensor[(16), float32], %a_mean: Tensor[(16), float32],
          %a_var: Tensor[(16), float32], %w1: Tensor[(16, 16, 3, 3), float32],
          %b_gamma: Tensor[(16), float32], %b_beta: Tensor[(16), float32], %b_mean: Tensor[(16), float32],
          %b_var: Tensor[(16), float32]) {
  %0 = nn.conv2d(%data, %w0, padding=[1, 1, 1, 1], channels=16, kernel_size=[3, 3]);
  %1 = nn.batch_norm(%0, %a_gamma, %a_beta, %a_mean, %a_var);
  %2 = nn.relu(%1.0);
  %3 = nn.conv2d(%2, %w1, padding=[1, 1, 1, 1], channels=16, kernel_size=[3, 3]);
  %4 = nn.batch_norm(%3, %b_gamma, %b_beta, %b_mean, %b_var);
  %5 = add(%4.0, %2);
  nn.relu(%5)
}
"""

QUANTISED = """
def @main(%data: Tensor[(1, 3, 12, 12), float32], %w0: Tensor[(8, 3, 3, 3), int8],
          %w1: Tensor[(10, 288), int8]) {
  %0 = qnn.quantize(%data, 0.03f, 3, out_dtype="uint8");
  %1 = qnn.conv2d(%0, %w0, 3, 0, 0.03f, 0.02f, padding=[1, 1, 1, 1], channels=8, kernel_size=[3, 3],
                  out_dtype="int32");
  %2 = qnn.requantize(%1, 0.0006f, 0, 0.05f, 10, out_dtype="uint8");
  %3 = nn.max_pool2d(clip(%2, a_min=10f, a_max=255f), pool_size=[2, 2], strides=[2, 2]);
  %4 = qnn.dense(reshape(%3, newshape=[0, -1]), %w1, 10, 0, 0.05f, 0.02f, units=10, out_dtype="int32");
  qnn.dequantize(%4, 0.001f, 0)
}
"""


def _values(text: str) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    drawn = {}
    for param in parse(HEADER + text, "net").functions["main"].params:
        value = rng.standard_normal(param.type.shape)
        if param.name.endswith("var"):
            value = np.abs(value) + 0.5
        if param.type.dtype == "int8":
            value = value * 50
        drawn[param.name] = np.clip(value, -127, 127).astype(param.type.dtype)
    return drawn


def _bound(text: str):
    """Return the module with its parameters bound, and the input."""
    drawn = _values(text)
    data = drawn.pop("data")
    return converted(text, drawn), data


def _stock(mod, data: np.ndarray) -> np.ndarray:
    executable = tvm.compile(mod, target=tvm.target.Target({"kind": "llvm"}))
    return relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(data)).numpy()


def _kernels(mod, **config) -> tuple[dict, Counter]:
    """Return the report's rules, and how often a kernel of each name is called."""
    with tvmpass.PassContext(opt_level=3, config={f"tvmpass.{k}": v for k, v in config.items()}):
        made, report = tvmpass.optimize(mod, target="llvm")
    return report.to_json()["rules"], kernel_calls(made)


@pytest.mark.parametrize("text", [PRE_ACTIVATION, POST_ACTIVATION], ids=["pre", "post"])
@pytest.mark.parametrize("level", [0, 3])
def test_optimised_and_stock_agree(text, level):
    mod, data = _bound(text)
    with tvmpass.PassContext(opt_level=level):
        (found,) = tvmpass.build(mod, target="llvm").run({"data": data})
    wanted = _stock(mod, data)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5 * np.ptp(wanted))


def test_quantised_net_is_exact_at_every_level():
    mod, data = _bound(QUANTISED)
    wanted = _stock(mod, data)
    for level in (0, 1, 3):
        with tvmpass.PassContext(opt_level=level):
            (found,) = tvmpass.build(mod, target="llvm").run({"data": data})
        np.testing.assert_array_equal(found, wanted)


def test_batch_norms_of_a_pre_activation_net():
    mod, _ = _bound(PRE_ACTIVATION)
    rules, names = _kernels(mod, fusion="always")
    assert rules["fold-batch-norm-into-conv"]["applied"] == 1
    assert rules["lower-batch-norm"]["applied"] == 2
    assert sum("conv2d" in name for name in names) == 2
    lone = re.compile(r"(fused_)?(add|multiply|relu|permute_dims|transpose)\d*")
    assert not [name for name in names if lone.fullmatch(name)]
    # The image is scaled, shifted and moved to channels last while the first convolution pads it.
    assert sum(name.startswith("fused_multiply_add_permute_dims_conv2d") for name in names) == 1


def test_each_convolution_of_a_post_activation_net_is_one_kernel():
    mod, _ = _bound(POST_ACTIVATION)
    rules, names = _kernels(mod, fusion="always")
    assert rules["fold-batch-norm-into-conv"]["applied"] == 2
    assert sum(names.values()) - sum(name.startswith("transpose") for name in names) == 2
    assert all("conv2d" in name or name.startswith("transpose") for name in names)

"""Discrete Fourier transforms against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from running import run_ops

from tvmpass.frontends.relay.errors import RelayError


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize(
    ("shape", "dtype"), [((16,), "float32"), ((3, 10), "float32"), ((2, 3, 8), "float64")]
)
def test_dft(shape, dtype, inverse):
    generator = np.random.default_rng(3)
    real, imaginary = (generator.standard_normal(shape).astype(dtype) for _ in range(2))
    made = run_ops(f"let %t = dft(%a, %b, inverse={inverse}); (%t.0, %t.1)", {"a": real, "b": imaginary})
    expected = (np.fft.ifft if inverse else np.fft.fft)(real + 1j * imaginary)
    for one, other in zip(made, (expected.real, expected.imag), strict=True):
        assert one.dtype == dtype
        # Relay takes the angles, up to 2 pi times the length, in float32.
        np.testing.assert_allclose(one, other, 0, 5e-5)


@pytest.mark.parametrize("onesided", [True, False])
@pytest.mark.parametrize("shape", [(20,), (2, 20)])
def test_stft(shape, onesided):
    generator = np.random.default_rng(3)
    x, window = generator.standard_normal(shape).astype("float32"), generator.random(6).astype("float32")
    attrs = f"n_fft=8, hop_length=3, win_length=6, normalized=True, onesided={onesided}"
    (made,) = run_ops(f"stft(%x, %w, {attrs})", {"x": x, "w": window})
    frames = np.stack([x[..., start : start + 6] * window for start in range(0, 13, 3)], -2)
    rows = np.arange(5 if onesided else 8)
    waves = np.exp(-2j * np.pi * np.outer(np.arange(6), rows) / 6)
    expected = np.swapaxes(frames @ waves, -1, -2) / np.sqrt(8)
    assert made.shape == (*expected.shape, 2)
    np.testing.assert_allclose(made[..., 0], expected.real, 0, 1e-5)
    np.testing.assert_allclose(made[..., 1], expected.imag, 0, 1e-5)


def test_a_window_longer_than_the_transform_is_refused():
    with pytest.raises(RelayError, match="do not fit"):
        run_ops(
            "stft(%x, %w, n_fft=4, hop_length=2, win_length=6)",
            {"x": np.ones((1, 20), "float32"), "w": np.ones(6, "float32")},
        )

"""Random numbers against a threefry generator on Python's integers."""

from __future__ import annotations

import numpy as np
import pytest
from running import run, run_ops

from tvmpass.frontends.relay.errors import RelayError

MASK = (1 << 64) - 1
ROTATIONS = [(14, 16), (52, 57), (23, 40), (5, 37), (25, 33), (46, 12), (58, 22), (32, 32)]


def hashed(key: list[int], counter: list[int]) -> list[int]:
    """Return four words hashed by 20 rounds of threefry."""
    keys = [*key, 0x1BD11BDAA9FC1A22 ^ key[0] ^ key[1] ^ key[2] ^ key[3]]
    x = list(counter)
    for turn in range(20):
        if turn % 4 == 0:
            x = [(word + keys[(turn // 4 + j) % 5]) & MASK for j, word in enumerate(x)]
            x[3] = (x[3] + turn // 4) & MASK
        for j, bits in enumerate(ROTATIONS[turn % 8]):
            total = (x[2 * j] + x[2 * j + 1]) & MASK
            turned = (x[2 * j + 1] << bits | x[2 * j + 1] >> (64 - bits)) & MASK
            x[2 * j : 2 * j + 2] = [total, total ^ turned]
        x = [x[0], x[3], x[2], x[1]]
    return x


def moved(high: int, low: int) -> list[int]:
    """Return the bit of the path, one place on."""
    if high == 1:
        return [0, 1 << 63]
    return [0, low >> 1] if high == 0 else [high >> 1, 0]


def draw(state: list[int], count: int) -> tuple[list[int], list[int]]:
    """Return the next state and random words."""
    if state[7] >= MASK - count:
        if state[8] == state[9] == 0:
            state = [*hashed(state[:4], [MASK] * 4), 0, 0, 0, 0, 1 << 63, 0]
        else:
            path = [state[4] | state[8], state[5] | state[9]]
            state = [*state[:4], *path, 0, 0, *moved(state[8], state[9])]
    words = []
    for row in range(count // 4):
        words += hashed(state[:4], [(word + row) & MASK for word in state[4:8]])
    counter = state[7] + count // 4 * 4
    if count % 4:
        words += hashed(state[:4], [*state[4:7], counter & MASK])[: count % 4]
        counter += 4
    return [*state[:6], 0, counter & MASK, *state[8:]], words


def split(state: list[int]) -> tuple[list[int], list[int]]:
    """Return the states of both sides of a split."""
    if state[8] == state[9] == 0:
        key = hashed(state[:4], state[4:8])
        return tuple([*key, start, 0, 0, 0, 1 << 62, 0] for start in (0, 1 << 63))
    bit = moved(state[8], state[9])
    right = [*state[:4], state[4] | state[8], state[5] | state[9], *state[6:8], *bit]
    return [*state[:8], *bit], right


def state(seed: int, counter: int = 0, path=(0, 0), bit=(1 << 63, 0)) -> list[int]:
    return [seed, 0, 0, 0, *path, 0, counter, *bit]


STATES = [
    state(0),
    state(7, 12345),
    state((1 << 63) + 5, MASK - 2),
    state(3, MASK - 2, (5, 6), (0, 0)),
    state(3, MASK - 2, (1, 0), (1, 0)),
    state(3, 4, (1, 0), (0, 8)),
]


def words(values: list[int]) -> np.ndarray:
    return np.array(values, "uint64")


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("generator", STATES)
def test_generate_and_split(generator, known):
    text = """def @main(%key: Tensor[(10), uint64]) {
      let %s = random.threefry_split(%key);
      let %a = random.threefry_generate(%key, out_shape=[2, 4]);
      let %b = random.threefry_generate(%key, out_shape=[3]);
      let %c = random.threefry_generate(%b.0, out_shape=[7]);
      (%s.0, %s.1, %a.0, %a.1, %c.0, %b.1, %c.1)
    }"""
    key = words(generator)
    made = run(text, params={"key": key}) if known else run(text, key, level=0)
    left, right = split(generator)
    (next_a, a), (next_b, b) = draw(generator, 8), draw(generator, 3)
    next_c, c = draw(next_b, 7)
    expected = [left, right, next_a, np.reshape(words(a), (2, 4)), next_c, b, c]
    for one, other in zip(made, expected, strict=True):
        np.testing.assert_array_equal(one, np.array(other, "uint64"))


def unit(generator: list[int], count: int, dtype: str) -> np.ndarray:
    """Return floats from 0 to below 1 from the leading bits of random words."""
    bits, fraction = (32, 23) if dtype == "float32" else (64, 52)
    drawn = [word & ((1 << bits) - 1) for word in draw(generator, count)[1]]
    return np.array([(word >> (bits - fraction)) / (1 << fraction) for word in drawn])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_uniform_and_normal(dtype):
    made = run_ops(
        f"""let %u = random.uniform(%key, %low, %high, out_shape=[3, 5], out_dtype="{dtype}");
        let %n = random.normal(%key, %low, %high, out_shape=[4], out_dtype="{dtype}");
        (%u.0, %u.1, %n.0, %n.1)""",
        {"key": words(STATES[0]), "low": np.array(2, dtype), "high": np.array(5, dtype)},
    )
    np.testing.assert_array_equal(made[0], words(draw(STATES[0], 15)[0]))
    np.testing.assert_array_equal(made[2], words(draw(STATES[0], 8)[0]))
    assert made[1].dtype == made[3].dtype == dtype
    np.testing.assert_allclose(made[1].ravel(), unit(STATES[0], 15, dtype) * 3 + 2, 1e-6, 0)
    first, second = unit(STATES[0], 8, dtype).reshape(2, 4)
    normal = np.sqrt(-2 * np.log(1 - first)) * np.sin(2 * np.pi * second) * 5 + 2
    np.testing.assert_allclose(made[3], normal, 1e-5, 1e-5)


def test_multinomial():
    weights = np.array([[1, 2, -3, 4], [0, 0, 1, 0]], "float32")
    made = run_ops(
        "let %m = random.multinomial(%key, %w, num_samples=9); (%m.0, %m.1)",
        {"key": words(STATES[0]), "w": weights},
    )
    positive = np.maximum(weights, 0)
    steps = np.cumsum(positive / positive.sum(-1, keepdims=True), -1)[:, :, None]
    above = steps - unit(STATES[0], 18, "float32").reshape(2, 1, 9)
    np.testing.assert_array_equal(made[0], words(draw(STATES[0], 18)[0]))
    assert made[1].dtype == np.int32
    np.testing.assert_array_equal(made[1], np.where(above > 0, above, 1).argmin(1))


def test_a_key_of_another_size_is_refused():
    with pytest.raises(RelayError, match="ten words"):
        run_ops("random.threefry_split(%key)", {"key": np.zeros(9, "uint64")})

"""Relay's threefry generator, bit for bit: hashing counters under a key.

A generator is ten words of 64 bits: a key of four, two that encode the path of
its splits, a counter of two, and a bit (in two words) that says where in the
path the next split is noted.  Numbers come from hashing path and counter.

The arithmetic is written once, for numpy words where a generator is known and
for TE expressions where it is not.  On the device each round is a kernel: as
one expression the hash would grow exponentially with its rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from ..table import CannotConvert
from .facts import dtype_of, static_shape
from .shapes import reshaped

STATE = 10
_PARITY = 0x1BD11BDAA9FC1A22
_ROTATIONS = ((14, 16), (52, 57), (23, 40), (5, 37), (25, 33), (46, 12), (58, 22), (32, 32))
_ROUNDS = 20
_ROUNDS_PER_KEY = 4
_ONES = (1 << 64) - 1
_TOP, _NEXT = 1 << 63, 1 << 62

# Draws of a known generator up to this many words are constants.
_CONSTANT_WORDS = 1 << 14

Word = Any
MakeWord = Callable[[int], Word]
Select = Callable[[Any, Word, Word], Word]


def _te_word(value: int):
    return tirx.const(value, "uint64")


def _known_select(condition, yes, no):
    return yes if condition else no


def _round(words: Sequence[Word], key: Sequence[Word], turn: int, word: MakeWord) -> list[Word]:
    """Mix four words pairwise and swap two of them; every fourth round adds the key before."""
    injection, step = divmod(turn, _ROUNDS_PER_KEY)
    left, right = _ROTATIONS[turn % len(_ROTATIONS)]
    if step == 0:
        full = [*key, key[0] ^ key[1] ^ key[2] ^ key[3] ^ word(_PARITY)]
        words = [each + full[(injection + j) % 5] for j, each in enumerate(words)]
        words[3] = words[3] + word(injection)
    a, b = _mixed(words[0], words[1], left, word)
    c, d = _mixed(words[2], words[3], right, word)
    return [a, d, c, b]


def _mixed(first: Word, second: Word, rotation: int, word: MakeWord) -> tuple[Word, Word]:
    total = first + second
    return total, total ^ ((second << word(rotation)) | (second >> word(64 - rotation)))


def _place_after(high: Word, low: Word, select: Select, word: MakeWord) -> list[Word]:
    """Return the bit of the path moved one place on; after the last it is gone."""
    zero, one = word(0), word(1)
    carried = select(high == zero, low >> one, zero)
    return [select(high == one, zero, high >> one), select(high == one, word(_TOP), carried)]


def _split(state: Sequence[Word], right: bool, hashed: Sequence[Word], select: Select, word: MakeWord):
    """Return one of the two generators after a split; ``hashed`` is its key where the path is full."""
    zero = word(0)
    fresh = [*hashed, word(_TOP) if right else zero, zero, zero, zero, word(_NEXT), zero]
    path = [state[4] | state[8], state[5] | state[9]] if right else [state[4], state[5]]
    same = [*state[:4], *path, *state[6:8], *_place_after(state[8], state[9], select, word)]
    return _if_full(state, fresh, same, select, word)


def _with_room(state: Sequence[Word], count: int, hashed: Sequence[Word], select: Select, word: MakeWord):
    """Return the generator, on a new path or under a new key where its counter has no room."""
    zero = word(0)
    fresh = [*hashed, zero, zero, zero, zero, word(_TOP), zero]
    place = _place_after(state[8], state[9], select, word)
    moved = [*state[:4], state[4] | state[8], state[5] | state[9], zero, zero, *place]
    roomy = state[7] < word(_ONES - count)
    return [
        select(roomy, own, other) for own, other in zip(state, _if_full(state, fresh, moved, select, word))
    ]


def _if_full(state, yes, no, select: Select, word: MakeWord) -> list[Word]:
    rest = state[8] | state[9]
    return [select(rest == word(0), a, b) for a, b in zip(yes, no)]


def _is(index, position: int):
    return tirx.EQ(index, tirx.const(position, str(index.ty.dtype)))


def choose(index, values: Sequence[Word]):
    """Return ``values[index]`` as one expression."""
    chosen = values[-1]
    for position in range(len(values) - 2, -1, -1):
        chosen = tirx.Select(_is(index, position), values[position], chosen)
    return chosen


def _words_of(state: te.Tensor) -> list[Word]:
    return [state[i] for i in range(STATE)]


def _te_select(condition, yes, no):
    return tirx.Select(condition, yes, no)


class KnownGenerator:
    """A generator whose words are known: all is computed here."""

    def __init__(self, state: np.ndarray):
        self.state = [np.uint64(word) for word in state]

    def draw(self, emit, count: int) -> tuple[KnownGenerator, Any]:
        """Return the next generator and ``count`` words."""
        state = self._advanced(lambda hashed: _with_room(self.state, count, hashed, _known_select, np.uint64))
        if count <= _CONSTANT_WORDS:
            rows = [_counters(state, count, np.uint64)[j] for j in range(4)]
            words = emit.const(np.stack(_hash_arrays(rows, state[:4]), axis=1).reshape(-1)[:count], "uint64")
        else:
            words = _hash_on_device(emit, emit.const(np.array(state), "uint64"), count)
        with np.errstate(over="ignore"):
            counter = state[7] + np.uint64(-(-count // 4) * 4)
        return KnownGenerator(np.array([*state[:6], 0, counter, *state[8:]], "uint64")), words

    def split(self, emit) -> tuple[KnownGenerator, KnownGenerator]:
        """Return two generators that do not repeat each other's numbers."""
        counter = [np.array([word]) for word in self.state[4:8]]
        hashed = [array[0] for array in _hash_arrays(counter, self.state[:4])]
        left, right = (_split(self.state, side, hashed, _known_select, np.uint64) for side in (False, True))
        return KnownGenerator(np.array(left)), KnownGenerator(np.array(right))

    def _advanced(self, advance: Callable[[list], list]) -> list:
        ones = [np.array([_ONES], "uint64")] * 4
        return advance([array[0] for array in _hash_arrays(ones, self.state[:4])])

    def value(self, emit):
        """Return the state as a tensor."""
        return emit.const(np.array(self.state, "uint64"), "uint64")


def _hash_arrays(words: list[np.ndarray], key: Sequence[np.uint64]) -> list[np.ndarray]:
    with np.errstate(over="ignore"):
        for turn in range(_ROUNDS):
            words = _round(words, key, turn, np.uint64)
    return words


def _counters(state: Sequence[Any], count: int, word: MakeWord) -> list[np.ndarray]:
    """Return the words to be hashed, by row; a last, partial row counts on in its last word alone."""
    whole, rest = divmod(count, 4)
    steps = np.arange(whole, dtype="uint64")
    last = [0, 0, 0, 4 * whole]
    with np.errstate(over="ignore"):
        return [
            state[4 + j] + np.append(steps, np.array([last[j]] if rest else [], "uint64")) for j in range(4)
        ]


class UnknownGenerator:
    """A generator that is a run-time tensor."""

    def __init__(self, state):
        self.state = state

    def draw(self, emit, count: int) -> tuple[UnknownGenerator, Any]:
        """Return the next generator and ``count`` words."""
        ones = emit.const(np.full((1, 4), _ONES, "uint64"), "uint64")
        hashed = _rounds(emit, ones, self.state)

        def with_room(state, fresh):
            words = _with_room(_words_of(state), count, [fresh[0, j] for j in range(4)], _te_select, _te_word)
            return te.compute((STATE,), lambda j: choose(j, words), name="threefry_state")

        def following(state):
            def word(j):
                counted = tirx.Select(_is(j, 7), state[7] + _te_word(-(-count // 4) * 4), state[j])
                return tirx.Select(_is(j, 6), _te_word(0), counted)

            return te.compute((STATE,), word, name="threefry_next")

        state = emit.te(with_room, self.state, hashed, name="threefry_state")
        words = _hash_on_device(emit, state, count)
        return UnknownGenerator(emit.te(following, state, name="threefry_next")), words

    def split(self, emit) -> tuple[UnknownGenerator, UnknownGenerator]:
        """Return two generators that do not repeat each other's numbers."""
        counter = emit(relax.op.strided_slice(self.state, [0], [4], [8]))
        hashed = _rounds(emit, reshaped(emit, counter, [1, 4]), self.state)

        def side(right: bool):
            def kernel(state, fresh):
                key = [fresh[0, j] for j in range(4)]
                words = _split(_words_of(state), right, key, _te_select, _te_word)
                return te.compute((STATE,), lambda j: choose(j, words), name="threefry_split")

            return UnknownGenerator(emit.te(kernel, self.state, hashed, name="threefry_split"))

        return side(False), side(True)

    def value(self, emit):
        """Return the state as a tensor."""
        return self.state


def _rounds(emit, words, key):
    """Return rows of four words hashed; ``key`` is a generator's state."""
    for turn in range(_ROUNDS):

        def kernel(counter, state, turn=turn):
            def mixed(row, column):
                own = [counter[row, j] for j in range(4)]
                return choose(column, _round(own, [state[j] for j in range(4)], turn, _te_word))

            return te.compute(counter.shape, mixed, name="threefry_round")

        words = emit.te(kernel, words, key, name="threefry_round")
    return words


def _hash_on_device(emit, state, count: int):
    whole, rest = divmod(count, 4)

    def counters(generator):
        def word(row, column):
            step = tirx.Cast("uint64", row)
            if rest:
                last = tirx.Select(_is(column, 3), _te_word(4 * whole), _te_word(0))
                step = tirx.Select(_is(row, whole), last, step)
            return generator[column + 4] + step

        return te.compute((whole + bool(rest), 4), word, name="threefry_counters")

    words = _rounds(emit, emit.te(counters, state, name="threefry_counters"), state)
    flat = reshaped(emit, words, [4 * (whole + bool(rest))])
    return emit(relax.op.strided_slice(flat, [0], [0], [count])) if rest else flat


def generator_of(emit, key) -> KnownGenerator | UnknownGenerator:
    """Return the generator that a tensor holds."""
    if dtype_of(key) != "uint64" or static_shape(key) != [STATE]:
        raise CannotConvert("its generator is not ten words of dtype uint64")
    state = emit.array(key)
    return UnknownGenerator(key) if state is None else KnownGenerator(state)

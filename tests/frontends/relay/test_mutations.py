"""Changed Relay texts: read, or refused with a clean error; never anything else."""

import random

import pytest

from scripts.acceptance.relay_mutants import CHANGES, mutant
from tvmpass.frontends.relay import ast
from tvmpass.frontends.relay.errors import RelayError
from tvmpass.frontends.relay.parser import parse

TEXTS = (
    """#[version = "0.0.5"]
def @main(%x: Tensor[(2, 3), float32] /* ty=Tensor[(2, 3), float32] */, %w: Tensor[(4, 3), float32])
    -> (Tensor[(2, 4), float32], float32) {
  %0 = nn.dense(%x, %w, units=None) /* ty=Tensor[(2, 4), float32] */;
  let %scaled: Tensor[(2, 4), float32] = multiply(%0, 0.5f /* ty=float32 */);
  %3 = split(%scaled, indices_or_sections=[1i64, 3i64], axis=1);
  %4 = if (less(sum(%3.0), 1e-05f)) {
    @twice(%3.1) + -1f
  } else {
    %3.1 * 2f
  };
  (nn.pad(%4, 0f, pad_width=[[0, 0], [1, 1]]), True)
}

def @twice(%p0: Tensor[(2, 2), float32], Primitive=1, Composite="own.twice") {
  let %f = fn (%a, %n: int32) -> float32 { if (%n <= 0) { %a } else { %f(%a + %a, %n - 1) } };
  %f(%p0, 1)
}
""",
    """#[version = "0.0.5"]
type List[A] {
  Cons(A, List[A]),
  Nil,
}
def @main[A](%x: fn (int32, (A, _)) -> A, %r: ref(int8)) {
  free(nanf, ref_read(%r));
  match? (Cons(%x, Nil)) { Cons(%h, _) => { %h }, Nil => -inff, }
}
#[metadata]
{"root": 1, "nodes": [{"type_key": ""}, {"type_key": "Map", "keys": [], "data": []}], "b64ndarrays": []}
""",
)


@pytest.mark.parametrize("which", range(len(TEXTS)))
def test_mutants_are_read_or_refused(which):
    read = 0
    for seed in range(1500):
        kinds, text = mutant(seed, TEXTS[which], TEXTS)
        try:
            module = parse(text, "mutant.relay")
        except RelayError as error:
            assert str(error).startswith("mutant.relay"), (seed, kinds)
            assert all(len(line) < 700 for line in str(error).splitlines()), (seed, kinds)
        else:
            read += 1
            assert all(isinstance(value, ast.Function) for value in module.functions.values())
    assert 0 < read < 1500


@pytest.mark.parametrize("kind", CHANGES)
def test_every_kind_of_change_changes_something(kind):
    changed = [CHANGES[kind](random.Random(seed), TEXTS[0], TEXTS) != TEXTS[0] for seed in range(20)]
    assert any(changed)

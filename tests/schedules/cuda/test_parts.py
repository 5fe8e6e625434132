"""How a kernel comes apart into launches over rows."""

from __future__ import annotations

import pytest
from tvm import te, tirx

from schedules.cuda.launches import column_run, is_flat, row_count, runs_across
from schedules.cuda.parts import read_groups
from schedules.cuda.passes import plan_passes
from schedules.cuda.split import split_reduction
from tests.tir_passes.cases import KERNELS, SYMBOLIC, function, softmax, tensor
from tests.tir_passes.operators import OPERATORS


def shape_of(name: str) -> list[tuple[list[str], int | None, int | None]]:
    """Return of each launch the levels of its parts, its rows and its columns."""
    func = KERNELS[name][0]() if name in KERNELS else OPERATORS[name].function()
    return [([part.level for part in g.parts], row_count(g), column_run(g)) for g in read_groups(func)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("elementwise", [(["row", "row"], 630, 1)]),
        ("mean-row", [(["reduce", "row"], 15, 41)]),
        ("mean-two", [(["reduce", "row"], 4, 99)]),
        ("mean-all", [(["reduce", "row"], 1, 185)]),
        ("softmax", [(["reduce", "column", "reduce", "column"], 7, 45)]),
        ("softmax-square", [(["reduce", "column", "reduce", "column"], 16, 8)]),
        # The padded copy is a launch of its own until `inline-producers` has put it into the pool.
        ("max-pool", [(["row"], 11 * 13 * 18, 1), (["reduce"], 5 * 6 * 18, 9)]),
        ("argmax", [(["reduce", "row"], 5, 70)]),
    ],
)
def test_launches(name, expected):
    assert shape_of(name) == expected


def test_a_norm_over_groups_ends_in_another_launch():
    (stages, rows, columns), (last, results, _) = shape_of("group-norm")
    assert stages.count("reduce") == 2 and (rows, columns) == (4, 3 * 5 * 8)
    assert last == ["row"] and results == 2 * 6 * 5 * 8


def test_a_reader_of_other_rows_is_another_launch():
    x = tensor("x", 8, 16)
    doubled = te.compute(x.shape, lambda i, j: x[i, j] * 2.0, name="doubled")
    turned = te.compute(x.shape, lambda i, j: doubled[7 - i, j] + doubled[i, j], name="turned")
    groups = read_groups(function(x, turned))
    assert [[part.name for part in group.parts] for group in groups] == [["doubled"], ["turned"]]
    assert [buffer.name for buffer in groups[0].stored] == ["doubled"]


def test_an_operand_used_twice_is_stored_once_where_a_later_launch_reads_it():
    x = tensor("x", 8, 16)
    shifted = te.compute(x.shape, lambda i, j: x[i, j] + 1.0, name="shifted")
    k = te.reduce_axis((0, 8), "k")
    total = te.compute((16,), lambda j: te.sum(shifted[k, j], axis=k), name="total")
    both = te.compute(x.shape, lambda i, j: shifted[i, j] * total[j], name="both")
    (group,) = read_groups(function(x, both))
    assert [part.level for part in group.parts] == ["column", "reduce", "column"]
    assert [buffer.name for buffer in group.stored] == ["both"] and runs_across(group)


def test_only_what_several_passes_use_is_held():
    (group,) = read_groups(softmax(7, 45))
    held = plan_passes(group, keeps=True)
    assert [part.name for part in held.parts] == [
        "x_row", "T_softmax_maxelem", "T_softmax_exp", "T_softmax_expsum", "T_softmax_norm",
    ]  # fmt: skip
    assert {buffer.name for buffer in held.kept} == {"x_row", "T_softmax_exp"}
    again = plan_passes(group, keeps=False)
    assert [part.name for part in again.parts] == ["T_softmax_maxelem", "T_softmax_expsum", "T_softmax_norm"]
    assert not again.kept and "T.exp" in str(again.parts[-1].values[0])


def test_symbolic_rows():
    (group,) = read_groups(SYMBOLIC["softmax-rows"][0]())
    assert row_count(group) is None and column_run(group) == 21


def test_flat_tensors():
    (group,) = read_groups(OPERATORS["add-half"].function())
    assert is_flat(group)
    (group,) = read_groups(OPERATORS["add"].function())
    assert not is_flat(group) and group.flat == 1, "the second operand has one row"


def test_a_split_keeps_parts_within_the_row():
    (group,) = read_groups(OPERATORS["argmax-long"].function())
    parts, join, buffers = split_reduction(group, 64)
    assert row_count(parts) == 128 and column_run(parts) == -(-50003 // 64)
    assert "T.if_then_else" in str(parts.parts[0].values[1]), "64 parts of 782 are more than a row"
    assert column_run(join) == 64 and [part.level for part in join.parts] == ["reduce", "row"]
    assert [str(b.dtype) for b in buffers] == ["int64", "float16"]
    assert split_reduction(group, 1 << 20) is None


def test_what_is_no_row_is_not_split():
    (group,) = read_groups(softmax(7, 45))
    assert split_reduction(group, 4) is None


def test_an_update_of_another_form_is_not_read():
    x, k = tensor("x", 8, 16), te.reduce_axis((0, 16), "k")

    def total(combine):
        reducer = te.comm_reducer(combine, lambda dtype: tirx.const(0, dtype), name="odd")
        return function(x, te.compute((8,), lambda i: reducer(x[i, k], axis=k), name="y"))

    assert read_groups(total(lambda a, b: tirx.exp(a + b)))
    assert read_groups(total(lambda a, b: tirx.exp(a) + b)) is None

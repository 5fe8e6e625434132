"""Kernels that share headers are compiled together, and told apart when one fails."""

from __future__ import annotations

import pytest

from tvmpass.compile.cuda_toolchain import Unit, UnitError
from tvmpass.compile.cuda_units import MAX_KERNELS, MAX_TEXT, compile_joined, join_sources


def source(name, head="#include <a>\n", size=0):
    return f'{head}extern "C" __global__ void {name}();{" " * size}\n'


def test_equal_preambles_are_joined_once():
    groups = join_sources({"b": source("b"), "a": source("a"), "c": source("c", "#include <c>\n")})
    assert [group.names for group in groups] == [("a", "b"), ("c",)]
    text = groups[0].text
    assert text.count("#include <a>") == 1 and text.index("void a()") < text.index("void b()")


def test_groups_have_bounds():
    many = {f"k{i:02}": source(f"k{i:02}") for i in range(2 * MAX_KERNELS + 1)}
    assert [len(group.names) for group in join_sources(many)] == [MAX_KERNELS, MAX_KERNELS, 1]
    large = {f"k{i}": source(f"k{i}", size=MAX_TEXT * 2 // 3) for i in range(3)}
    assert [len(group.names) for group in join_sources(large)] == [1, 1, 1]


def test_groups_do_not_depend_on_the_order_of_the_kernels():
    sources = {name: source(name) for name in "abcd"}
    assert join_sources(sources) == join_sources(dict(reversed(sources.items())))


def test_no_kernels():
    assert compile_joined({}, lambda units: {}) == []


def test_the_source_at_fault_is_named():
    def compile_all(units):
        for name, text in units.items():
            if "wrong" in text:
                raise UnitError(name, "no")
        return {name: Unit(text.encode(), {}) for name, text in units.items()}

    sources = {"a": source("a"), "b": source("b") + "wrong", "c": source("c")}
    with pytest.raises(UnitError) as caught:
        compile_joined(sources, compile_all)
    assert caught.value.unit == "b"
    del sources["b"]
    ((group, unit),) = compile_joined(sources, compile_all)
    assert group.names == ("a", "c") and unit.fatbin == group.text.encode()

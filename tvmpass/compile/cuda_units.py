"""Which kernels are compiled together.

Reading CUDA's headers takes nvcc longer than most kernels do.  Kernels that need
the same ones are compiled as one unit, a few at a time: four times less work than
one by one.  Which, depends on the kernels alone, so that equal modules give equal
units.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .cuda_toolchain import Unit, UnitError

MAX_KERNELS, MAX_TEXT = 8, 48 << 10
"""More kernels or characters in one unit save little, and leave processors idle."""

_FIRST_KERNEL = 'extern "C" __global__'


@dataclass(frozen=True)
class Group:
    """Sources, by name, that are compiled as one text."""

    names: tuple[str, ...]
    text: str


def join_sources(sources: Mapping[str, str]) -> list[Group]:
    """Return the sources in groups whose members share what precedes their kernels.

    Kernels of different sources must have different names.
    """
    alike: dict[str, list[str]] = {}
    for name in sorted(sources):
        alike.setdefault(_preamble(sources[name]), []).append(name)
    groups = []
    for preamble, names in alike.items():
        bodies = {name: sources[name][len(preamble) :] for name in names}
        for chosen in _portions(bodies):
            groups.append(Group(tuple(chosen), preamble + "".join(bodies[name] for name in chosen)))
    return groups


def compile_joined(
    sources: Mapping[str, str], compile_all: Callable[[Mapping[str, str]], dict[str, Unit]]
) -> list[tuple[Group, Unit]]:
    """Compile sources in groups; a `UnitError` names the one source that is at fault."""
    groups = {group.names[0]: group for group in join_sources(sources)}
    try:
        units = compile_all({first: group.text for first, group in groups.items()})
    except UnitError as error:
        names = groups[error.unit].names
        if len(names) > 1:
            compile_all({name: sources[name] for name in names})
        raise
    return [(group, units[first]) for first, group in groups.items()]


def _preamble(text: str) -> str:
    """Return what precedes the first kernel: includes, and functions that it may call."""
    head, found, _ = text.partition(_FIRST_KERNEL)
    return head if found else ""


def _portions(bodies: Mapping[str, str]) -> list[list[str]]:
    portions: list[list[str]] = []
    room = 0
    for name, body in bodies.items():
        if not portions or len(portions[-1]) == MAX_KERNELS or len(body) > room:
            portions.append([])
            room = MAX_TEXT
        portions[-1].append(name)
        room -= len(body)
    return portions

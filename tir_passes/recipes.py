"""Recipes: which steps with which options each kind of kernel may get.

A recipe prints and parses as ``tile-matmul{m=6,n=64} vectorize-inner``.
`recipes` lists at most 32 per kernel, the library's own choice first; the order
is deterministic and asks no cost model.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import s_tir, tirx

from schedules.cpu.contraction import (
    Axes,
    contraction_choices,
    find_axes,
    prefers_rows_first,
    row_block,
    window_choices,
)
from schedules.cpu.finish import finish_function
from schedules.cpu.inline import is_guarded
from schedules.cpu.loops import decompose_reductions
from schedules.cpu.machine import vector_lanes_of
from schedules.cpu.registers import RegisterTile
from schedules.cpu.rows import runs_along
from schedules.cpu.window_rows import padded_rows
from schedules.cuda.finish import finish_function as finish_cuda
from tvmpass.core.decision import Refusal
from tvmpass.core.errors import UsageError, nearest
from tvmpass.core.kernels import Kernel, classify
from tvmpass.core.nest import extent, stages, walk_blocks
from tvmpass.core.options import Options
from tvmpass.core.rule import ScheduleRule

from .cuda_recipes import CUDA_RECIPE_VERSION, cuda_steps
from .decompose_reduction import DecomposeReduction
from .inline_neighbours import InlineNeighbours
from .inline_padding import InlinePadding
from .parallelize_outer import ParallelizeOuter
from .skip_padding import SkipPadding
from .stage_padding import StagePadding
from .step import Step, apply_step
from .tile_conv import TileConv
from .tile_elementwise import TileElementwise
from .tile_matmul import TileMatmul
from .tile_reduce import TileReduce
from .tile_rows import TileRows
from .tile_window import TileWindow
from .unroll_inner import UnrollInner
from .unroll_rows import UnrollRows
from .vectorize_inner import VectorizeInner

LIMIT = 32
_MAX_LANES = 16
_UNROLLED_WIDTH = 11
"""A window row of up to so many elements is unrolled; the rows are not: no faster, twice the code."""
_UNCOPIED_ROWS = (8, 6, 12, 14, 4)
"""Pixels of a depthwise convolution's tile where padding is chosen at each read, best guess first."""
_STEP = re.compile(r"([a-z][a-z0-9-]*)(?:\{([^{}]*)\})?(?:\s+|$)")

RECIPE_VERSION = {
    "matmul": 2,
    "conv": 3,
    "depthwise": 4,
    "pool": 3,
    "reduce": 1,
    "norm-softmax": 1,
    "elementwise": 1,
    "movement": 1,
    "other": 1,
}
"""The version of each kernel kind's recipes for LLVM targets."""


@dataclass(frozen=True)
class Recipe:
    """An ordered tuple of scheduling steps with their options."""

    steps: tuple[Step, ...]

    def __str__(self) -> str:
        return " ".join(map(str, self.steps))


def recipe_version(kind: str, target_kind: str) -> int:
    """Return the version of the recipes for a kernel kind on ``llvm`` or ``cuda`` targets."""
    return (CUDA_RECIPE_VERSION if target_kind == "cuda" else RECIPE_VERSION).get(kind, 0)


def parse_recipe(text: str, steps: Iterable[ScheduleRule] = ()) -> Recipe:
    """Return the recipe that prints as ``text``; `UsageError` names what is wrong.

    ``steps`` are rules known beside the built-in ones, as from a rules file.
    """
    from tir_passes import RULES

    known: dict[str, type[ScheduleRule]] = {rule.rule_name(): rule for rule in RULES}
    known |= {step.name: type(step) for step in steps}
    made: list[Any] = []
    position, text = 0, text.strip()
    while position < len(text):
        found = _STEP.match(text, position)
        if found is None:
            raise UsageError(f"recipe {text!r}: expected a step name at {text[position : position + 20]!r}")
        name, options = found.groups()
        if name not in known:
            raise UsageError(f"recipe {text!r}: unknown step {name!r}{nearest(name, known)}")
        made.append(known[name].parse_options(options or ""))
        position = found.end()
    return Recipe(tuple(made))


def apply_recipe(recipe: Recipe, func: tirx.PrimFunc, target: tvm.target.Target) -> tirx.PrimFunc | Refusal:
    """Return ``func`` scheduled by ``recipe``, attributes kept, or the first refusal."""
    kernel = classify(func)
    schedule = s_tir.Schedule(func)
    for step in recipe.steps:
        result = apply_step(step, schedule, kernel)
        if isinstance(result, Refusal):
            return result
        schedule = result
    made = schedule.mod["main"]
    return made.with_attrs(func.attrs) if func.attrs else made


def finish(func: tirx.PrimFunc, target: tvm.target.Target, options: Options) -> tirx.PrimFunc:
    """Return ``func`` with what every kernel needs, scheduled or not."""
    if target.kind.name == "cuda":
        return finish_cuda(func)
    if any(tirx.buffer.is_buffer_var(p) and str(p.dtype) == "bfloat16" for p in func.params):
        # TVM rewrites bfloat16 kernels to compute in float32; vector math gives NaN after that.
        if all(block.init is None for block in walk_blocks(func)):
            return func
        schedule = s_tir.Schedule(func)
        decompose_reductions(schedule)
        made = schedule.mod["main"]
        return made.with_attrs(func.attrs) if func.attrs else made
    return finish_function(func)


def recipes(kernel: Kernel, target: tvm.target.Target, options: Options) -> list[Recipe]:
    """Return the recipes for ``kernel``, the library's choice first, at most 32."""
    if options.tile == "off" or _is_empty(kernel):
        return []
    if target.kind.name == "cuda":
        return list(dict.fromkeys(map(Recipe, cuda_steps(kernel, target, options))))[:LIMIT]
    if target.kind.name != "llvm":
        return []
    maker = {
        "matmul": _contractions,
        "conv": _contractions,
        "depthwise": _windows,
        "pool": _windows,
        "reduce": _reductions,
        "norm-softmax": _rows,
        "elementwise": _injective,
        "movement": _injective,
    }.get(kernel.kind)
    if maker is None:
        return []
    lanes = vector_lanes_of(target, kernel.dtypes)
    made: dict[Recipe, None] = {}
    for steps in maker(kernel, lanes):
        made.setdefault(Recipe(tuple(step for step in steps if _allowed(step, options))))
    return list(made)[:LIMIT]


def _allowed(step: Step, options: Options) -> bool:
    if isinstance(step, ParallelizeOuter):
        return options.threads > 1
    return options.unroll != "off" or not isinstance(step, UnrollInner)


def _is_empty(kernel: Kernel) -> bool:
    """Has some loop no iteration at all? Such a kernel needs no schedule."""
    return any(extent(iv) == 0 for part in stages(kernel.func) or () for iv in part.iters)


def _anchor(kernel: Kernel):
    return next(part for part in stages(kernel.func) if part.name == kernel.anchor)


def _contractions(kernel: Kernel, lanes: int) -> Iterable[tuple[Step, ...]]:
    anchor = _anchor(kernel)
    if extent(anchor.spatial[-1]) == 1 and runs_along(anchor, anchor.reduce[-1].var):
        yield from _rows(kernel, lanes)
    axes = find_axes(anchor)
    choices = contraction_choices(anchor, axes, lanes)
    rows, staging = _staging(kernel, anchor, axes, "rows")
    first = prefers_rows_first(anchor, axes) and not rows
    for k, rows_first, count in ((1, first, 12), (1, not first, 0 if rows else 6), (4, first, 6)):
        for tile in choices[:count]:
            options = {"m": tile.m, "n": tile.vectors * tile.lanes, "lanes": tile.lanes}
            options["rows_first"] = rows_first
            steps: tuple[Step, ...] = (TileMatmul(**options),)
            if kernel.kind == "conv":
                steps = (TileConv(**options, rows=rows), *staging)
            yield (
                InlineNeighbours(),
                *steps,
                ParallelizeOuter(),
                VectorizeInner(),
                UnrollInner(k=k),
                DecomposeReduction(),
            )
    if kernel.kind == "conv" and pads_image(kernel):
        yield from _uncopied_conv(choices, first)


def _uncopied_conv(choices: Sequence[RegisterTile], first: bool) -> Iterable[tuple[Step, ...]]:
    """Convolutions that read the image without a padded copy of it."""
    for tile in choices[:3]:
        for m, k in ((tile.m, 1), (-(-tile.m // 2), 0)):
            step = TileConv(m=m, n=tile.vectors * tile.lanes, lanes=tile.lanes, rows_first=first)
            yield (InlineNeighbours(), InlinePadding(), step, *_ending(UnrollInner(k=k)))


def pads_image(kernel: Kernel) -> bool:
    """Does the kernel copy its image with padding around it?"""
    return any(p.name in kernel.prologue and is_guarded(p.block) for p in stages(kernel.func) or ())


def _windows(kernel: Kernel, lanes: int) -> Iterable[tuple[Step, ...]]:
    anchor = _anchor(kernel)
    axes = find_axes(anchor)
    width = extent(anchor.reduce[-1]) if anchor.reduce else None
    unrolled = width if width is not None and width <= _UNROLLED_WIDTH else 1
    rows, staging = _staging(kernel, anchor, axes, "channels")
    for tile in window_choices(anchor, axes, lanes)[:12]:
        yield (
            InlineNeighbours(),
            TileWindow(m=tile.m, n=tile.vectors * tile.lanes, lanes=tile.lanes, rows=rows),
            *staging,
            ParallelizeOuter(),
            VectorizeInner(),
            UnrollInner(k=unrolled),
            DecomposeReduction(),
        )
    if pads_image(kernel):
        yield from _uncopied(kernel, lanes)


def _uncopied(kernel: Kernel, lanes: int) -> Iterable[tuple[Step, ...]]:
    """Depthwise convolutions that read the image without a padded copy of it.

    Over few rows the loops over rows are written out as well, and rows of padding
    cost nothing; there a copy without them is another way.
    """
    anchor = _anchor(kernel)
    axes = find_axes(anchor)
    if kernel.kind != "depthwise" or axes.row is None:
        return
    tiles = {tile.m: tile for tile in reversed(window_choices(anchor, axes, lanes))}
    chosen = [tiles[m] for m in _UNCOPIED_ROWS if m in tiles] or list(tiles.values())[-1:]
    height = extent(anchor.spatial[axes.row])
    few = height is not None and padded_rows(kernel.func, kernel.anchor) is not None
    inline: tuple[Step, ...] = (InlineNeighbours(), InlinePadding())
    for tile in chosen[:4]:
        options = {"m": tile.m, "n": tile.vectors * tile.lanes, "lanes": tile.lanes}
        yield (*inline, TileWindow(**options), *_ending(UnrollInner(k=0)))
        if few:
            window = TileWindow(**options, rows=height)
            yield (*inline, window, *_ending(UnrollInner(k=0), UnrollRows()))
            yield (*inline, window, *_ending(UnrollInner(), UnrollRows()))
    for tile in window_choices(anchor, axes, lanes)[:4] if few else ():
        yield (
            InlineNeighbours(),
            SkipPadding(),
            TileWindow(m=tile.m, n=tile.vectors * tile.lanes, lanes=tile.lanes, rows=height),
            StagePadding(per="channels"),
            *_ending(UnrollInner(), UnrollRows()),
        )


def _ending(*unrolling: Step) -> tuple[Step, ...]:
    return (ParallelizeOuter(), VectorizeInner(), *unrolling, DecomposeReduction())


def _reductions(kernel: Kernel, lanes: int) -> Iterable[tuple[Step, ...]]:
    anchor = _anchor(kernel)
    along_row = bool(anchor.reduce) and runs_along(anchor, anchor.reduce[-1].var)
    if along_row or not anchor.spatial:
        yield from _rows(kernel, lanes)
        return
    for vectors in (4, 2, 1):
        yield (
            InlineNeighbours(),
            TileReduce(n=vectors * lanes, lanes=lanes),
            ParallelizeOuter(),
            VectorizeInner(),
            UnrollInner(),
            DecomposeReduction(),
        )


def _rows(kernel: Kernel, lanes: int) -> Iterable[tuple[Step, ...]]:
    for vectors in (4, 2, 1):
        yield (
            InlineNeighbours(),
            TileRows(n=vectors * lanes, lanes=lanes),
            ParallelizeOuter(),
            VectorizeInner(),
            UnrollInner(),
            DecomposeReduction(),
        )


def _injective(kernel: Kernel, lanes: int) -> Iterable[tuple[Step, ...]]:
    for vectors in (4, 2, 1):
        yield (
            InlineNeighbours(),
            TileElementwise(n=vectors * lanes, lanes=lanes),
            ParallelizeOuter(),
            VectorizeInner(),
        )


def _staging(kernel: Kernel, anchor, axes: Axes, per: str) -> tuple[int, tuple[Step, ...]]:
    """Return the rows per block and the step that pads them; none where nothing is padded."""
    pads = [p for p in stages(kernel.func) if p.name in kernel.prologue and is_guarded(p.block)]
    if not pads:
        return 0, ()
    height = None if axes.row is None else extent(anchor.spatial[axes.row])
    if height is None:
        return 0, (StagePadding(per="image"),)
    width, channels = (extent(iv) or 1 for iv in pads[0].spatial[-2:])
    row_bytes = width * (min(channels, _MAX_LANES) if per == "channels" else channels) * 4
    return row_block(height, row_bytes), (StagePadding(per=per),)

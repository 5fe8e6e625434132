"""The packages import each other only along the lines that are drawn here."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# "a: b c" means that a may import b and c, and whatever those may import.
DIRECT = {
    "settings": (),
    "version": (),
    "compat": (),
    "core": ("settings",),
    "cost": ("core",),
    "schedules": ("core",),
    "frontends": ("core",),
    "relay_passes": ("core",),
    "tir_passes": ("schedules",),
    "catalogue": ("relay_passes", "tir_passes"),
    "cuda_emulator": ("core",),
    "compile": ("catalogue", "cost", "frontends", "version", "cuda_emulator"),
    "tune": ("compile",),
    "bench": ("compile",),
    "testing": ("compile",),
    "registration": ("compile",),
}
ALL = (*DIRECT, "cli")
OWN = ("tvmpass", "relay_passes", "tir_passes", "schedules")
IMPORTS_RULES = {"catalogue"}


def allowed(part: str) -> frozenset[str]:
    """Return every part that ``part`` may import, itself included."""
    if part in ("cli", "surface"):
        return frozenset((*ALL, "surface"))
    found = {part}
    for direct in DIRECT[part]:
        found |= allowed(direct)
    return frozenset(found)


def part_of(module: str) -> str | None:
    """Name the part that a module belongs to; None for what is not ours."""
    words = module.split(".")
    if words[0] not in OWN:
        return None
    if words[0] != "tvmpass":
        return words[0]
    if len(words) == 1:
        return "surface"
    if words[1:3] == ["testing", "cuda_emulator"]:
        return "cuda_emulator"  # numeric verification of CUDA kernels runs on it
    return "cli" if words[1] == "__main__" else words[1]


def imports(path: Path, package: str) -> Iterator[tuple[int, str, bool]]:
    """Yield line, module and whether it runs at run time, for each import of ours."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only = {
        id(node)
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If) and ast.unparse(branch.test).endswith("TYPE_CHECKING")
        for child in branch.body
        for node in ast.walk(child)
    }
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name, True
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")
                parents = parents[: len(parents) - node.level + 1]
                base = ".".join([*parents, base]) if base else ".".join(parents)
            if base == "tvmpass":
                # "from tvmpass import cost" names a part; other names are the surface.
                for alias in node.names:
                    is_part = alias.name in ALL
                    yield node.lineno, f"tvmpass.{alias.name}" if is_part else "tvmpass", True
            else:
                yield node.lineno, base, True


def sources() -> list[Path]:
    return sorted(path for name in OWN for path in (ROOT / name).rglob("*.py"))


@pytest.mark.parametrize("path", sources(), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_follow_the_lines(path):
    words = path.relative_to(ROOT).with_suffix("").parts
    module = ".".join(words[:-1] if words[-1] == "__init__" else words)
    package = ".".join(words[:-1])
    part = part_of(module)
    assert part in (*ALL, "surface"), f"{module} belongs to no known part"
    may = allowed(part)
    wrong = [
        f"line {line}: {part} must not import {target}"
        for line, target, _ in imports(path, package)
        if part_of(target) is not None and part_of(target) not in may
    ]
    assert not wrong, "\n".join(wrong)


def test_lines_have_no_cycle():
    for part in DIRECT:
        assert all(part not in allowed(other) for other in DIRECT[part])


def test_every_package_is_named_in_setup():
    text = (ROOT / "setup.py").read_text()
    tree = ast.parse(text)
    named = next(
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and node.targets[0].id == "PACKAGES"
    )
    folders = {
        ".".join(path.parent.relative_to(ROOT).parts) for name in OWN for path in (ROOT / name).rglob("*.py")
    }
    assert set(named) == folders | {"tuning_logs"}
    for name in named:
        if name != "tuning_logs":
            assert (ROOT / name.replace(".", "/") / "__init__.py").is_file(), f"{name} has no __init__.py"


def test_tuning_logs_is_data_only():
    assert not list((ROOT / "tuning_logs").rglob("*.py"))

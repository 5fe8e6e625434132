"""The list of slow tests names files that exist."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import SLOW

TESTS = Path(__file__).parents[1]


def test_slow_files_exist():
    assert not [name for name in SLOW if not (TESTS / name).is_file()]

"""Settings are read from the environment in one place, and only there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tvmpass.settings import SettingError, Settings, shipped_logs, unknown_variables

ROOT = Path(__file__).parents[2]
PACKAGES = ("tvmpass", "relay_passes", "tir_passes", "schedules")


def test_defaults():
    settings = Settings.read({"HOME": "/nowhere"})
    assert settings.cache_size == 2 << 30
    assert settings.cache_dir.parts[-2:] == (".cache", "tvmpass")
    assert settings.debug is False


@pytest.mark.parametrize(
    ("text", "size"), [("0", 0), ("10", 10), ("512M", 512 << 20), ("1.5G", 3 << 29), ("2 GiB", 2 << 30)]
)
def test_sizes(text, size):
    assert Settings.read({"TVMPASS_CACHE_SIZE": text}).cache_size == size


@pytest.mark.parametrize(("name", "value"), [("TVMPASS_CACHE_SIZE", "-1"), ("TVMPASS_DEBUG", "maybe")])
def test_bad_values_name_the_variable(name, value):
    with pytest.raises(SettingError, match=name):
        Settings.read({name: value})


def test_misspelt_variables_are_noticed():
    (line,) = unknown_variables({"TVMPASS_DEBUGG": "1", "TVMPASS_DEBUG": "1", "OTHER": "1"})
    assert line.endswith("did you mean TVMPASS_DEBUG?")


def test_shipped_logs_lie_beside_the_package():
    assert shipped_logs() == ROOT / "tuning_logs"


def test_only_settings_reads_our_variables():
    wrong = []
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            if path.name == "settings.py":
                continue
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if re.search(r"""(environ|getenv)\b.*["']TVMPASS_""", line):
                    wrong.append(f"{path.relative_to(ROOT)}:{number}")
    assert not wrong

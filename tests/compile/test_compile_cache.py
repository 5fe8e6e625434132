"""The kernel cache: whole files only, a size cap, several processes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tvmpass.compile.compile_cache import CompileCache


@pytest.fixture
def cache(tmp_path):
    return CompileCache(tmp_path / "kernels", 1 << 20)


def put(cache, tmp_path, key: str, content: bytes) -> None:
    source = tmp_path / "source.o"
    source.write_bytes(content)
    cache.store(key, source)


def get(cache, tmp_path, key: str) -> bytes | None:
    output = tmp_path / "output.o"
    output.unlink(missing_ok=True)
    return output.read_bytes() if cache.fetch(key, output) else None


def test_what_is_stored_comes_back(cache, tmp_path):
    put(cache, tmp_path, "a", b"code of a")
    assert get(cache, tmp_path, "a") == b"code of a"
    assert get(cache, tmp_path, "b") is None
    assert [p.name for p in cache.folder.iterdir()] == ["a.o"]


@pytest.mark.parametrize("damage", [b"", b"short", b"other code" + b"\0" * 32, None])
def test_a_damaged_file_is_deleted_and_not_used(cache, tmp_path, damage):
    put(cache, tmp_path, "a", b"code of a")
    path = cache.folder / "a.o"
    path.write_bytes(path.read_bytes()[:-1] if damage is None else damage)
    assert get(cache, tmp_path, "a") is None
    assert not path.exists()
    put(cache, tmp_path, "a", b"code of a")
    assert get(cache, tmp_path, "a") == b"code of a"


def test_the_files_unused_for_longest_go_first(tmp_path):
    cache = CompileCache(tmp_path / "kernels", 250)
    for i, key in enumerate("abc"):
        put(cache, tmp_path, key, bytes(40))
        os.utime(cache.folder / f"{key}.o", (i, i))
    assert get(cache, tmp_path, "a") == bytes(40)  # used again just now
    put(cache, tmp_path, "d", bytes(40))
    cache.sweep()
    assert sorted(p.name for p in cache.folder.iterdir()) == ["a.o", "c.o", "d.o"]


def test_a_cap_of_zero_keeps_nothing(tmp_path):
    cache = CompileCache(tmp_path / "kernels", 0)
    put(cache, tmp_path, "a", b"code")
    assert get(cache, tmp_path, "a") is None
    assert not cache.folder.exists()


def test_a_folder_that_cannot_be_made_is_no_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    cache = CompileCache(tmp_path / "file" / "kernels", 1 << 20)
    put(cache, tmp_path, "a", b"code")
    assert get(cache, tmp_path, "a") is None


def test_settings_say_where_and_how_much(tmp_path, monkeypatch):
    monkeypatch.setenv("TVMPASS_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TVMPASS_CACHE_SIZE", "3K")
    cache = CompileCache()
    assert (cache.folder, cache.size_limit) == (tmp_path / "kernels", 3072)


HAMMER = """
import sys
from pathlib import Path
from tvmpass.compile.compile_cache import CompileCache

folder, mine = Path(sys.argv[1]), Path(sys.argv[2])
mine.mkdir()
cache = CompileCache(folder, 4000)
for i in range(200):
    content = bytes([i % 7]) * 500
    (mine / "source").write_bytes(content)
    cache.store(f"k{i % 7}", mine / "source")
    if cache.fetch(f"k{i % 7}", mine / "output"):
        assert (mine / "output").read_bytes() == content
"""


def test_two_processes_share_a_folder(tmp_path):
    folder = tmp_path / "kernels"
    command = [sys.executable, "-c", HAMMER, str(folder)]
    workers = [subprocess.Popen([*command, str(tmp_path / f"worker{n}")]) for n in range(2)]
    assert [worker.wait() for worker in workers] == [0, 0]
    assert not [p for p in folder.iterdir() if p.name.startswith(".")]

"""Files are written whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys

import pytest

from tvmpass.core.errors import TvmpassError, UsageError
from tvmpass.core.files import check_apart, check_writable, replacing, write_text, writes_directly


def test_text_is_written_with_the_usual_mode(tmp_path):
    path = tmp_path / "a.json"
    write_text(path, "héllo")
    assert path.read_text(encoding="utf-8") == "héllo"
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask
    assert list(tmp_path.iterdir()) == [path]


def test_failure_keeps_the_old_file_and_leaves_nothing(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), replacing(path) as temporary:
        temporary.write_text("half")
        raise ZeroDivisionError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_full_disk_is_one_line_and_leaves_nothing(tmp_path):
    path = tmp_path / "a.txt"
    with pytest.raises(TvmpassError, match="a.txt: No space left on device"), replacing(path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert list(tmp_path.iterdir()) == []


def test_other_errors_of_the_caller_stay_what_they_are(tmp_path):
    with pytest.raises(FileNotFoundError, match="compiler"), replacing(tmp_path / "a.so"):
        raise FileNotFoundError(errno.ENOENT, "no compiler")


@pytest.mark.parametrize("write", [check_writable, lambda path: write_text(path, "x")])
def test_impossible_places_are_one_line(tmp_path, write):
    (tmp_path / "file").write_text("")
    with pytest.raises(TvmpassError, match=r"cannot write .*file/a: Not a directory"):
        write(tmp_path / "file" / "a")
    with pytest.raises(TvmpassError, match=r"cannot write .*none/a: No such file or directory"):
        write(tmp_path / "none" / "a")
    with pytest.raises(TvmpassError, match=r"cannot write .*: Is a directory"):
        write(tmp_path)


def test_check_writable_leaves_nothing(tmp_path):
    check_writable(tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


def test_link_stays_a_link(tmp_path):
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_text("old")
    link.symlink_to(real)
    write_text(link, "new")
    assert link.is_symlink() and real.read_text() == "new"


def test_devices_and_pipes_are_written_directly(tmp_path):
    assert writes_directly("/dev/null") and writes_directly("/dev/stdout")
    write_text("/dev/null", "x")
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    assert writes_directly(fifo)
    assert not writes_directly(tmp_path / "new")


def test_stdout_sent_to_a_file_is_not_replaced(tmp_path):
    path = tmp_path / "out"
    code = "from tvmpass.core.files import write_text; write_text('/dev/stdout', 'second')"
    with open(path, "w") as out:
        out.write("first ")
        out.flush()
        inode = os.fstat(out.fileno()).st_ino
        subprocess.run([sys.executable, "-c", code], stdout=out, check=True)
    assert path.stat().st_ino == inode
    assert "second" in path.read_text()


@pytest.mark.parametrize("link", [None, os.symlink, os.link])
def test_an_input_is_never_overwritten(tmp_path, link):
    model, output = tmp_path / "model.onnx", tmp_path / "output.so"
    model.write_text("model")
    if link is None:
        output = tmp_path / "." / "model.onnx"
    else:
        link(model, output)
    with pytest.raises(UsageError, match="would overwrite"):
        check_apart(output, None, model)
    check_apart(tmp_path / "other.so", None, model, "/dev/stdin")
    check_apart("/dev/stdout", "/dev/stdout")

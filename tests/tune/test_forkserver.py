"""The process that forks a child for each call: nothing that a child does survives it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tvmpass.core.errors import TvmpassError
from tvmpass.tune.forkserver import Call, ForkServer

ROOT = Path(__file__).parents[2]
GIB = 1 << 30


def call(name: str, seconds: float = 30.0, memory: int | None = None, **arguments) -> Call:
    return Call(f"tests.tune.calls:{name}", arguments, seconds, memory)


@pytest.fixture(scope="module")
def server():
    with ForkServer() as made:
        yield made


def runs(pid: int) -> bool:
    """Is the process there, and no zombie?"""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(condition, seconds: float = 20.0) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


def test_a_value_comes_back(server):
    value = {"a": [1, 2.5, None, "ü"]}
    outcome = server.call(call("give", value=value))
    assert (outcome.status, outcome.value, outcome.cause) == ("ok", value, None)


@pytest.mark.parametrize(
    ("name", "arguments", "status", "cause"),
    [
        ("fail", {"text": "this one"}, "error", "ValueError: this one"),
        ("fill_disk", {}, "machine", "OSError: [Errno 28] No space left on device"),
        ("die", {"number": int(signal.SIGSEGV)}, "crash", "died of SIGSEGV (last words)"),
        ("die", {"number": int(signal.SIGABRT)}, "crash", "died of SIGABRT (last words)"),
        ("die", {"number": int(signal.SIGKILL)}, "memory", "wanted more than 4.0 GiB of memory"),
        ("leave", {"code": 0}, "crash", "ended by itself with exit code 0"),
        ("leave", {"code": 3}, "crash", "ended by itself with exit code 3"),
        ("take_memory", {}, "memory", "wanted more than 4.0 GiB of memory"),
        ("take_memory_natively", {}, "memory", "wanted more than 4.0 GiB of memory"),
        ("no_such_function", {}, "error", "AttributeError: module 'tests.tune.calls' has no attribute"),
    ],
)
def test_trouble_is_told(server, name, arguments, status, cause):
    outcome = server.call(call(name, memory=4 * GIB, **arguments))
    assert outcome.status == status and outcome.value is None
    assert outcome.cause.startswith(cause)
    assert server.call(call("give", value=1)).value == 1 and server.lost == 0


def test_a_call_without_end(server):
    outcome = server.call(call("hang", seconds=0.3))
    assert (outcome.status, outcome.cause) == ("timeout", "no end after 0 s")
    assert 0.3 <= outcome.spent_s < 10.0


def test_memory_that_is_used_is_bounded_where_addresses_are_not(server):
    bound = Call("tests.tune.calls:use_memory", {"mebibytes": 600}, 30.0, GIB // 2, by_resident=True)
    assert server.call(bound).status == "memory"


def test_calls_run_at_once(server):
    tickets = [server.submit(call("give", value=i)) for i in range(3)]
    slow = server.submit(call("hang", seconds=1.0))
    found = {outcome.ticket: outcome for outcome in (server.wait(30.0) for _ in range(4))}
    assert [found[ticket].value for ticket in tickets] == [0, 1, 2]
    assert found[slow].status == "timeout" and server.wait(0.0) is None


@pytest.mark.parametrize(("then", "status"), [("return", "ok"), ("hang", "timeout")])
def test_what_a_child_starts_ends_with_it(server, tmp_path, then, status):
    note = tmp_path / "pids"
    outcome = server.call(call("start_others", seconds=3.0, note=str(note), then=then))
    assert outcome.status == status
    _, *others = map(int, note.read_text().split())
    assert len(others) == 4 and wait_until(lambda: not any(map(runs, others)))


def test_a_child_is_alone(server, tmp_path):
    with open(tmp_path / "lock", "w") as lock:
        os.set_inheritable(lock.fileno(), True)
        told = server.call(call("describe")).value
        with ForkServer() as other:  # started while the lock was held
            also = other.call(call("describe")).value
    for found in (told, also):
        names = [name for name in found["files"].values() if "/proc/" not in name]
        assert sum(name.endswith(".log") for name in names) == 2 and "/dev/null" in names
        assert len(names) == 3  # input, output, errors: no socket, no lock
        assert found["group"] == found["pid"] and found["session"] != os.getsid(0)
        assert found["interrupt"]
    assert told["temporary"] == str(server.folder)


def test_cancelled_calls_end(server, tmp_path):
    note = tmp_path / "pids"
    server.submit(call("start_others", note=str(note), then="hang"))
    assert wait_until(note.exists)
    pids = list(map(int, note.read_text().split()))
    assert runs(pids[1])
    server.cancel()
    assert wait_until(lambda: not any(map(runs, pids))) and server.wait(0.0) is None
    assert server.call(call("give", value=2)).value == 2


def test_a_server_that_is_killed_is_started_again(tmp_path):
    with ForkServer() as own:
        outcome = own.call(call("kill_server_once", note=str(tmp_path / "note")))
        assert (outcome.status, outcome.value, own.lost) == ("ok", "second", 1)
        outcome = own.call(call("kill_server"))
        assert outcome.status == "crash" and "was killed, twice" in outcome.cause
        assert own.call(call("give", value=3)).value == 3
        own.lost = 100
        with pytest.raises(TvmpassError, match="was lost 101 times"):
            own.call(call("kill_server_once", note=str(tmp_path / "other")))


def test_closing_twice_and_after(tmp_path):
    own = ForkServer()
    note = tmp_path / "pids"
    own.submit(call("start_others", note=str(note), then="hang"))
    assert wait_until(note.exists)
    own.close()
    own.close()
    pids = list(map(int, note.read_text().split()))
    assert wait_until(lambda: not any(map(runs, pids))) and not own.folder.exists()
    with pytest.raises(TvmpassError, match="was closed"):
        own.call(call("give", value=1))


def test_no_fork_beside_another_thread():
    with (
        ForkServer(warm_up="tests.tune.calls:many_threads") as own,
        pytest.raises(TvmpassError, match="cannot start: RuntimeError: 2 threads run before the first fork"),
    ):
        own.call(call("give", value=1))


def test_a_server_that_cannot_warm_up_says_why():
    with (
        ForkServer(warm_up="tests.tune.calls:fill_disk") as own,
        pytest.raises(TvmpassError, match="cannot start: RuntimeError: OSError: .* No space left"),
    ):
        own.call(call("give", value=1))


USER = """\
import sys, time
from tvmpass.tune.forkserver import Call, ForkServer

server = ForkServer()
server.submit(Call("tests.tune.calls:start_others", {"note": sys.argv[1], "then": "hang"}, 600.0))
print(server.folder, flush=True)
server.wait()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_outlives_its_user(tmp_path, number):
    note = tmp_path / "pids"
    user = subprocess.Popen(
        [sys.executable, "-c", USER, str(note)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert user.stdout is not None
    folder = Path(user.stdout.readline().strip())
    assert wait_until(note.exists)
    pids = list(map(int, note.read_text().split()))
    assert len(pids) == 5 and all(map(runs, pids)) and folder.is_dir()
    user.send_signal(number)
    user.wait(20)
    assert wait_until(lambda: not any(map(runs, pids)))
    assert wait_until(lambda: not folder.exists())


def test_signals_of_the_terminal_reach_the_user_alone(tmp_path):
    """Ctrl-C goes to the foreground's process group, which the children are not in."""
    told = None
    with ForkServer() as own:
        told = own.call(call("describe")).value
        server_group = os.getpgid(own._process.pid)
    assert os.getpgid(0) not in (told["group"], server_group)

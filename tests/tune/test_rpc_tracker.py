"""The tracker's client and the restarting server, against real ones on loopback."""

import os
import signal
import socket
import struct
import subprocess
import sys
import threading

import pytest

from tests.tune.rpc_farm import Farm, free_port
from tvmpass.core.errors import UsageError
from tvmpass.tune import rpc_server
from tvmpass.tune.rpc_tracker import Tracker, TrackerError, parse_address


@pytest.mark.parametrize(
    "text, expected",
    [("gpu-box:9190", ("gpu-box", 9190)), ("10.0.0.7:1", ("10.0.0.7", 1)), ("[::1]:9190", ("::1", 9190))],
)
def test_addresses(text, expected):
    assert parse_address(text) == expected


@pytest.mark.parametrize(
    "text", ["", "box", "box:", ":9190", "box:x", "box:0", "box:70000", "box:-1", "box:²"]
)
def test_what_is_no_address_is_said(text):
    with pytest.raises(UsageError, match="HOST:PORT"):
        parse_address(text)


def test_nobody_listens():
    with pytest.raises(TrackerError, match="no RPC tracker answers at 127.0.0.1"):
        Tracker("127.0.0.1", free_port()).keys()


@pytest.mark.parametrize(
    "replies, text",
    [
        ((b"HTTP/1.1 400 Bad",), "is no RPC tracker"),
        ((), "no RPC tracker answers"),
        ((struct.pack("<ii", 0x2F271, 1 << 30),), "answers with 1073741824 bytes"),
        ((struct.pack("<ii", 0x2F271, 3), b"{x}"), "no JSON"),
        ((struct.pack("<ii", 0x2F271, 4), b"[-1]"), "refuses"),
        ((struct.pack("<ii", 0x2F271, 6), b"[0, 3]"), "no list of servers"),
    ],
)
def test_what_answers_otherwise_is_no_tracker(replies, text):
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer():
            connection, _ = listening.accept()
            with connection:
                for reply in replies:
                    connection.sendall(reply)
                connection.recv(1000)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(TrackerError, match=text):
            Tracker("127.0.0.1", listening.getsockname()[1]).keys()
        thread.join()


def crash(farm: Farm, key: str) -> str:
    """Have a session of a server of ``key`` end by a segmentation fault; return the server's name."""
    server = farm.tracker.request(key, 20.0)
    assert server is not None
    code = (
        "import sys, tvm.rpc; s = tvm.rpc.connect(sys.argv[1], int(sys.argv[2]), sys.argv[3]);"
        "s.upload(sys.argv[4]); s.load_module('crash.so')['crash']()"
    )
    library = farm.folder / "crash.so"
    source = "#include <signal.h>\nint __tvm_ffi_crash() { raise(SIGSEGV); return 0; }"
    subprocess.run(
        ["g++", "-x", "c", "-shared", "-fPIC", "-o", str(library), "-"], input=source, text=True, check=True
    )
    arguments = [server.host, str(server.port), server.matchkey, str(library)]
    ended = subprocess.run([sys.executable, "-c", code, *arguments], stderr=subprocess.DEVNULL)
    assert ended.returncode != 0
    return server.name


@pytest.mark.slow
def test_servers_of_a_real_tracker(tmp_path):
    with Farm(tmp_path) as farm:
        farm.start_tracker()
        assert farm.tracker.keys() == {}
        assert farm.tracker.request("cpu", 0.3) is None
        server = farm.start_server("cpu")
        assert farm.tracker.keys() == {"cpu": 1}
        assert farm.tracker.status("cpu").free == 1
        assert farm.tracker.status("gpu").servers == ()
        taken = farm.tracker.request("cpu", 20.0)
        assert taken is not None and (taken.name,) == farm.tracker.status("cpu").servers
        assert farm.tracker.status("cpu").free == 0
        farm.kill(server)
        farm.wait_for(lambda: farm.tracker.keys() == {})


@pytest.mark.slow
def test_a_server_serves_on_after_a_crash_and_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with Farm(tmp_path) as farm:
        farm.start_tracker()
        server = farm.start_server("cpu")
        for _ in range(2):
            name = crash(farm, "cpu")
            farm.wait_for(lambda: farm.tracker.status("cpu").free == 1)
            assert farm.tracker.status("cpu").servers == (name,)
        assert list(tmp_path.glob("rpc-server-*"))
        os.kill(server.pid, signal.SIGTERM)
        assert server.wait(20.0) == 0
        assert not list(tmp_path.glob("rpc-server-*"))


@pytest.mark.parametrize(
    "ports, end",
    [([], 9200), (["--port", "9490"], 9600), (["--port", "9490", "--port-end", "9491"], 9491)],
)
def test_the_ports_to_try_follow_the_first(ports, end):
    assert rpc_server._options(["--tracker", "b:1", "--key", "k", *ports]).port_end == end


@pytest.mark.parametrize(
    "arguments, text",
    [(["--tracker", "box", "--key", "k"], "HOST:PORT"), (["--tracker", "b:1", "--key", "a b"], "blanks")],
)
def test_the_server_refuses_what_cannot_work(arguments, text):
    module = ["-m", "tvmpass.tune.rpc_server"]
    ended = subprocess.run([sys.executable, *module, *arguments], capture_output=True, text=True)
    assert ended.returncode == 2
    assert text in ended.stderr and "Traceback" not in ended.stderr

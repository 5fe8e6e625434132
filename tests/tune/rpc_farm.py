"""A tracker and servers on loopback, as processes that tests and the acceptance end for sure."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from tvmpass.tune.rpc_tracker import Tracker, TrackerError

UP_S = 60.0


def free_port() -> int:
    """Return a port that nobody listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Farm:
    """A tracker and some servers; ``with`` ends them all, sessions too."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.environment: dict[str, str] = {}
        self.processes: list[subprocess.Popen] = []
        self.port = free_port()
        self.tracker = Tracker("127.0.0.1", self.port)

    def __enter__(self) -> Farm:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            self.kill(process)

    def start_tracker(self) -> subprocess.Popen:
        ports = ["--port", str(self.port), "--port-end", str(self.port + 1)]
        process = self._start("tvm.exec.rpc_tracker", "--host", "127.0.0.1", *ports)
        self.wait_for(lambda: self.tracker.keys() is not None)
        return process

    def start_server(self, key: str, module: str = "tvmpass.tune.rpc_server") -> subprocess.Popen:
        """Start a server and wait until the tracker knows one more of its key."""
        before = self.tracker.keys().get(key, 0)
        port = free_port()
        process = self._start(
            module,
            *("--host", "127.0.0.1", "--port", str(port), "--port-end", str(port + 20)),
            *("--tracker", str(self.tracker), "--key", key),
        )
        self.wait_for(lambda: self.tracker.keys().get(key, 0) > before)
        return process

    def wait_for(self, condition) -> None:
        """Wait until ``condition()`` holds; AssertionError after a minute."""
        end = time.monotonic() + UP_S
        while time.monotonic() < end:
            try:
                if condition():
                    return
            except TrackerError:
                pass  # it is only starting
            time.sleep(0.05)
        raise AssertionError("tracker or server did not come up")

    def kill(self, process: subprocess.Popen) -> None:
        """End a process with its sessions, as a power cut would."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def _start(self, module: str, *arguments: str) -> subprocess.Popen:
        log = self.folder / f"{module}-{len(self.processes)}.log"
        with open(log, "wb") as stream:
            process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, "TMPDIR": str(self.folder), **self.environment},
            )
        self.processes.append(process)
        return process

"""One process that imports TVM once and forks a child for each call.

A child costs some 10 ms instead of a second.  Whatever it does - crash, hang, ask
for too much memory, start processes of its own - ends with it, and everything
ends with the process that uses the server, however that dies: the server sees
its pipe closed or its parent gone, ends the children's groups and adopts and
ends what got away from them.

The server has one thread, so that a fork copies no lock that another thread
holds; it never starts TVM's thread pool nor touches a GPU.  Calls and results
are JSON: nothing is unpickled from a process that ran foreign code.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from tvmpass.core.errors import TvmpassError

from . import processes
from .server import last_line

READY_SECONDS = 120.0
CLOSE_SECONDS = 5.0
MAX_RESTARTS = 5
"""Servers lost (killed from outside) before the work is given up."""
MAX_TRIES = 2
"""So often a call is made whose server is lost."""

_MAIN = "import sys; from tvmpass.tune.server import serve; serve(*sys.argv[1:])"


@dataclass(frozen=True)
class Call:
    """A function to call in a child: ``"module:name"``, its arguments as JSON values.

    ``seconds`` bounds the wall time.  ``memory_bytes`` bounds the memory beyond
    what the server itself has: its address space, or, where ``by_resident``, what
    is really used (CUDA reserves more addresses than any bound allows).
    """

    function: str
    arguments: Mapping[str, Any]
    seconds: float
    memory_bytes: int | None = None
    by_resident: bool = False


@dataclass(frozen=True)
class Outcome:
    """How a call ended: ``ok``, ``error`` (it raised), ``crash``, ``timeout`` or ``memory``.

    ``machine`` is an error that no call is to blame for, as a full disk.
    ``value`` is what the function returned, ``cause`` one line on what went wrong.
    """

    ticket: int
    status: str
    value: Any
    cause: str | None
    spent_s: float


@dataclass
class _Running:
    call: Call
    begin: float
    tries: int = 0


class ForkServer:
    """Starts calls in children of one server process; any number at a time.

    ``environment`` is added to the server's; ``warm_up`` (``"module:name"``) is
    called there once, so that its imports are shared by all children.  ``folder``
    is for files that live as long as the server.  For use by one thread.
    """

    def __init__(self, environment: Mapping[str, str] | None = None, warm_up: str | None = None):
        self.environment, self.warm_up = dict(environment or {}), warm_up
        # Made when the server starts, which then deletes it whatever happens to this process.
        self.folder = Path(tempfile.gettempdir(), f"tvmpass-tune-{secrets.token_hex(8)}")
        self.lost = 0
        self._tickets = 0
        self._waiting: dict[int, _Running] = {}
        self._groups: dict[int, int] = {}
        self._done: list[Outcome] = []
        self._process: subprocess.Popen | None = None
        self._connection: Connection | None = None
        self._closed = False

    def submit(self, call: Call) -> int:
        """Start a call now; return the ticket that its `Outcome` will carry.

        Raises `TvmpassError` where no server can be started.
        """
        self._tickets += 1
        self._waiting[self._tickets] = running = _Running(call, time.monotonic())
        try:
            self._send(self._tickets, running)
        except OSError:  # the server is gone
            self._begin_anew()
        return self._tickets

    def _send(self, ticket: int, running: _Running) -> None:
        running.tries += 1
        message = json.dumps({**asdict(running.call), "ticket": ticket}).encode()
        self.start().send_bytes(message)

    def wait(self, timeout: float | None = None) -> Outcome | None:
        """Return the next call that ended; None after ``timeout`` seconds, or if none runs."""
        end = None if timeout is None else time.monotonic() + timeout
        while not self._done and self._waiting:
            left = None if end is None else max(0.0, end - time.monotonic())
            assert self._connection is not None
            if not wait([self._connection], left):
                return None
            self._receive()
        return self._done.pop(0) if self._done else None

    def call(self, call: Call) -> Outcome:
        """Run one call to its end; calls that end meanwhile are kept for `wait`."""
        ticket = self.submit(call)
        others: list[Outcome] = []
        while True:
            outcome = self.wait()
            assert outcome is not None
            if outcome.ticket == ticket:
                self._done[:0] = others
                return outcome
            others.append(outcome)

    def cancel(self) -> None:
        """End every running call and forget it.

        The server ends too: an interruption may have cut a message to it short.
        """
        if self._waiting:
            self._waiting.clear()
            self._end()
        self._done.clear()

    def abort(self) -> None:
        """End the server from another thread: the calls of the one that uses it fail at once."""
        self._closed = True
        process = self._process
        if process is not None:
            process.terminate()

    def close(self) -> None:
        """End the server and everything under it; also twice."""
        self._closed = True
        self._end()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> Connection:
        """Start the server if it does not run; the first call does so by itself."""
        if self._connection is not None:
            return self._connection
        if self._closed:
            raise TvmpassError("the process that runs candidates was closed")
        if self.lost > MAX_RESTARTS:
            raise TvmpassError(
                f"the process that runs candidates was lost {self.lost} times: see the system log"
            )
        self.folder.mkdir(0o700, exist_ok=True)
        ours, theirs = socket.socketpair()
        log = self.folder / f"server-{secrets.token_hex(4)}.log"
        with theirs, open(log, "wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _MAIN, str(theirs.fileno()), str(self.folder), self.warm_up or ""],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,  # a terminal's Ctrl-C is for the user's process alone
                env=self._environment(),
            )
        self._connection = Connection(ours.detach())
        if not wait([self._connection], READY_SECONDS):
            self._end()
            raise TvmpassError(f"the process that runs candidates did not start within {READY_SECONDS:.0f} s")
        try:
            self._connection.recv_bytes()
        except (EOFError, OSError):
            self._end()
            raise TvmpassError(f"the process that runs candidates cannot start: {last_line(log)}") from None
        return self._connection

    def _environment(self) -> dict[str, str]:
        single = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
        found = dict(os.environ)
        found.update(dict.fromkeys(single, "1"))  # their pools would be threads before the fork
        found["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)
        found["TMPDIR"] = str(self.folder)  # what a killed child leaves goes with the folder
        found.update(self.environment)
        return found

    def _receive(self) -> None:
        assert self._connection is not None
        try:
            told = json.loads(self._connection.recv_bytes())
        except (EOFError, OSError):
            self._begin_anew()
            return
        if "group" in told:
            self._groups[told["ticket"]] = told["group"]
            return
        self._groups.pop(told["ticket"], None)
        if self._waiting.pop(told["ticket"], None) is not None:
            self._done.append(Outcome(**told))

    def _begin_anew(self) -> None:
        """Start again after the server died: what it ran may have been its end, or not."""
        while True:
            self.lost += 1
            self._end()
            try:
                for ticket, running in list(self._waiting.items()):
                    if running.tries < MAX_TRIES:
                        self._send(ticket, running)
                    else:
                        del self._waiting[ticket]
                        cause = "the process that runs candidates was killed, twice"
                        spent = time.monotonic() - running.begin
                        self._done.append(Outcome(ticket, "crash", None, cause, spent))
                return
            except OSError:
                continue

    def _end(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(OSError):  # it may be gone
                self._connection.send_bytes(json.dumps({"bye": True}).encode())
            self._connection.close()
            self._connection = None
        if self._process is not None:
            try:
                self._process.wait(CLOSE_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            if self._process.returncode != 0:  # it did not come to end its children itself
                for group in self._groups.values():
                    processes.kill_group(group)
            self._groups.clear()
            self._process = None

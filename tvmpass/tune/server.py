"""The process behind `forkserver.ForkServer`: it forks, watches and reaps."""

from __future__ import annotations

import contextlib
import errno
import gc
import importlib
import json
import os
import shutil
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from . import processes

_TICK = 1.0
"""Seconds between two looks at whether the parent is still there."""

_WATCH = 0.05
"""Seconds between two looks at the memory of children that are not bounded by address space."""

_TAIL_BYTES = 4096
_FRAMES = ('File "', "!!!!!!!", "Stack trace", "[bt]")
_MACHINE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE})
"""Errors of the machine, whatever the call."""


@dataclass
class _Child:
    ticket: int
    pid: int
    begin: float
    seconds: float
    memory_bytes: int | None
    by_resident: bool
    killed: str | None = None


class _Server:
    """The loop of the server process."""

    keep_folder = True
    """Is there someone to delete it? Where the end was not announced, the user died."""

    def __init__(self, connection: Connection, folder: Path, parent: int, wake: tuple[int, int]):
        self.connection, self.folder, self.parent, self.wake = connection, folder, parent, wake
        self.children: dict[int, _Child] = {}

    def run(self) -> None:
        """Serve until the parent closes the pipe or is gone."""
        self.keep_folder = False
        while os.getppid() == self.parent:
            ready = wait([self.connection, self.wake[0]], self.patience())
            if self.wake[0] in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self.wake[0], 1 << 12)
            if self.connection in ready:
                try:
                    told = json.loads(self.connection.recv_bytes())
                except (EOFError, OSError):
                    return
                if "bye" in told:
                    self.keep_folder = True
                    return
                self.fork(told)
            self.check_bounds()
            self.reap()

    def patience(self) -> float:
        """Return the seconds until something is due."""
        now = time.monotonic()
        due = [child.begin + child.seconds - now for child in self.children.values() if child.killed is None]
        if any(child.by_resident for child in self.children.values()):
            due.append(_WATCH)
        return max(0.0, min([_TICK, *due]))

    def fork(self, told: dict[str, Any]) -> None:
        """Start a child for a call."""
        server = os.getpid()
        pid = os.fork()
        if pid == 0:
            _run_child(server, told, self)  # never returns
        # Both sides set the group, so that it exists whoever comes first.
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)
        child = _Child(
            told["ticket"], pid, time.monotonic(), told["seconds"], told["memory_bytes"], told["by_resident"]
        )
        self.children[pid] = child
        self.tell({"ticket": child.ticket, "group": pid})

    def check_bounds(self) -> None:
        """End children that ran out of time or took too much memory."""
        now = time.monotonic()
        for child in self.children.values():
            if child.killed is not None:
                continue
            if now - child.begin >= child.seconds:
                self.kill(child, "timeout")
            elif child.by_resident and child.memory_bytes is not None:
                if processes.resident_bytes(child.pid) > child.memory_bytes:
                    self.kill(child, "memory")

    def kill(self, child: _Child, why: str) -> None:
        child.killed = why
        processes.kill_group(child.pid)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGKILL)

    def reap(self) -> None:
        """Tell the parent of every child that ended, after ending what it left behind."""
        for pid in list(self.children):
            ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None:
                continue
            processes.kill_group(pid)  # while its id cannot be another's
            _, status = os.waitpid(pid, 0)
            child = self.children.pop(pid)
            processes.kill_orphans(self.children)
            self.tell(self.outcome(child, status))
        if not self.children:
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass

    def end_all(self) -> None:
        for child in self.children.values():
            self.kill(child, "cancelled")
        for pid in list(self.children):
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
            self.clear(self.children.pop(pid).ticket)
        processes.kill_orphans(())

    def clear(self, ticket: int) -> None:
        for path in (result_path(self.folder, ticket), log_path(self.folder, ticket)):
            path.unlink(missing_ok=True)

    def outcome(self, child: _Child, status: int) -> dict[str, Any]:
        """Say how a child ended, from its exit status and what it left."""
        said = last_line(log_path(self.folder, child.ticket))
        result: dict[str, Any] | None = None
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0:
            with contextlib.suppress(OSError, ValueError):
                result = json.loads(result_path(self.folder, child.ticket).read_text())
        self.clear(child.ticket)
        made: dict[str, Any] = {"value": None, "spent_s": time.monotonic() - child.begin}
        if child.killed == "timeout":
            made.update(status="timeout", cause=f"no end after {child.seconds:.0f} s")
        elif child.killed == "memory":
            made.update(status="memory", cause=_too_much(child.memory_bytes))
        elif result is not None:
            made.update(status=result["status"], value=result.get("value"), cause=result.get("cause"))
            if made["status"] == "memory":
                made["cause"] = _too_much(child.memory_bytes)
        elif os.WIFSIGNALED(status):
            made.update(_signalled(os.WTERMSIG(status), said, child))
        else:
            code = os.WEXITSTATUS(status)
            made.update(status="crash", cause=f"ended by itself with exit code {code}" + _said(said))
        return {"ticket": child.ticket, **made}

    def tell(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # the loop sees that the parent is gone
            self.connection.send_bytes(json.dumps(message).encode())


def _signalled(number: int, said: str, child: _Child) -> dict[str, str]:
    if is_memory(said) or number == signal.SIGKILL:  # the system's own answer to too little memory
        return {"status": "memory", "cause": _too_much(child.memory_bytes)}
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    return {"status": "crash", "cause": f"died of {name}" + _said(said)}


def is_memory(text: str) -> bool:
    """Return True for an error text that speaks of memory that was not to be had."""
    text = text.lower()
    words = ("bad_alloc", "out of memory", "cannot allocate memory", "memoryerror", "bad_array_new_length")
    return any(word in text for word in words)


def _too_much(memory_bytes: int | None) -> str:
    if memory_bytes is None:
        return "ran out of memory"
    return f"wanted more than {memory_bytes / (1 << 30):.1f} GiB of memory"


def _said(line: str) -> str:
    return f" ({line})" if line else ""


def result_path(folder: Path, ticket: int) -> Path:
    """Return where a child writes what its function returned."""
    return folder / f"call-{ticket}.json"


def log_path(folder: Path, ticket: int) -> Path:
    """Return where a child's standard output and error go."""
    return folder / f"call-{ticket}.log"


def last_line(path: Path) -> str:
    """Return the last line of a log that says something; TVM's list of stack frames does not."""
    try:
        with open(path, "rb") as file:
            size = path.stat().st_size
            file.seek(max(0, size - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    whole = text.partition("\n")[2] if size > _TAIL_BYTES else text
    lines = [line.strip() for line in whole.splitlines()]
    told = (line[:300] for line in reversed(lines) if line and not line.startswith(_FRAMES))
    return next(told, "")


def _run_child(server: int, told: dict[str, Any], owner: _Server) -> None:
    """Run one call in a fresh child and end the process."""
    code = 1
    try:
        os.setpgid(0, 0)
        processes.die_with_parent(server)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        owner.connection.close()
        for end in owner.wake:
            os.close(end)
        _redirect(log_path(owner.folder, told["ticket"]))
        processes.limit(told["seconds"], None if told["by_resident"] else told["memory_bytes"])
        result = _result(told)
        text = json.dumps(result)
        result_path(owner.folder, told["ticket"]).write_text(text)
        code = 0
    except BaseException:  # whatever it is, this process must not run the server's loop
        with contextlib.suppress(BaseException):
            traceback.print_exc()
            sys.stderr.flush()
    finally:
        os._exit(code)


def _result(told: dict[str, Any]) -> dict[str, Any]:
    module, _, name = told["function"].partition(":")
    try:
        function = getattr(importlib.import_module(module), name)
        return {"status": "ok", "value": function(**told["arguments"])}
    except MemoryError:
        return {"status": "memory"}
    except Exception as error:  # the caller is told, as of everything that goes wrong here
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        cause = f"{type(error).__name__}: {lines[-1][:300]}" if lines else type(error).__name__
        if isinstance(error, OSError) and error.errno in _MACHINE:
            return {"status": "machine", "cause": cause}
        return {"status": "memory" if is_memory(str(error)) else "error", "cause": cause}


def _redirect(path: Path) -> None:
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.close(log)
    os.close(null)


def serve(descriptor: str, folder: str, warm_up: str) -> None:
    """Run the server on the socket ``descriptor`` until its parent is gone."""
    parent = os.getppid()
    os.set_inheritable(int(descriptor), False)
    connection = Connection(int(descriptor))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    wake = os.pipe()
    for end in wake:
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake[1], warn_on_full_buffer=False)
    processes.adopt_orphans()
    server = _Server(connection, Path(folder), parent, wake)
    try:
        result = _result({"function": warm_up, "arguments": {}}) if warm_up else {"status": "ok"}
        if result["status"] != "ok":
            raise RuntimeError(result.get("cause", result["status"]))
        gc.collect()
        gc.freeze()  # else the collector would touch, and so copy, what all children share
        if processes.threads() != 1:
            raise RuntimeError(f"{processes.threads()} threads run before the first fork")
        server.tell({"ready": True})
        server.run()
    finally:
        server.end_all()
        if not server.keep_folder or os.getppid() != parent:
            shutil.rmtree(folder, ignore_errors=True)

"""Give built jobs to the servers of an RPC tracker; lose none, and judge those that fail.

What a failed try of a job on a server means:

- The server could not be reached: the job has not begun and goes to another.
- The session broke off, or nothing was heard any more: that may be the server's
  fault or the job's.  The job is tried once more, after those that are above
  suspicion, and a second failure is its own.

(A server that ends a session at its time limit is alive, and the job is at fault:
that is a measurement.)  Each job is answered exactly once.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from tvmpass.core.errors import TvmpassError

from .rpc_tracker import Server, Status, TrackerError
from .work import Measurement

UNREACHED, LOST, SILENT = "unreached", "lost", "silent"
"""How a try ends without a measurement: before it began, by a crash, or with no answer."""

MAX_TRIES = 2
"""So often a job may fail together with its server."""
ASK_S = 0.05
"""At most this often the tracker is asked for free servers."""
WATCH_S = 2.0
"""This often it is asked at least."""
REQUEST_S = 2.0
"""A tracker hands out a server that is free at once; another user may have been faster."""

Work = TypeVar("Work")


@dataclass(frozen=True)
class Failure:
    """A try that gave no measurement: `UNREACHED`, `LOST` or `SILENT`, and why."""

    kind: str
    cause: str


class Servers(Protocol):
    """What is asked of a tracker."""

    def status(self, key: str) -> Status: ...

    def request(self, key: str, seconds: float) -> Server | None: ...


@dataclass(eq=False)
class Item(Generic[Work]):
    """A job on its way; ``failed_on`` names the servers that it failed with."""

    work: Work
    failed_on: list[str] = field(default_factory=list)
    spent_s: float = 0.0
    begin: float = 0.0


class Dispatcher(Generic[Work]):
    """Decides which job goes to which server next, and what its failures mean.

    ``patience_s`` is how long jobs may wait with no try under way and no server in
    reach before `start` raises `TvmpassError`; ``say`` gets a line on each change of
    fortune; ``clock`` gives seconds.
    """

    def __init__(
        self,
        tracker: Servers,
        key: str,
        *,
        patience_s: float = 60.0,
        say: Callable[[str], None] = lambda line: None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.tracker, self.key, self.patience_s = tracker, key, patience_s
        self.say, self.clock = say, clock
        self.servers = 1
        """How many servers of the key the tracker knew when it was asked last."""
        self.running = 0
        self._fresh: deque[Item[Work]] = deque()
        self._suspects: deque[Item[Work]] = deque()
        self._asked = -WATCH_S
        self._trouble = ""
        self._since = 0.0

    @property
    def waiting(self) -> int:
        """Return how many jobs wait for a server."""
        return len(self._fresh) + len(self._suspects)

    def submit(self, work: Work) -> None:
        """Take a job on."""
        self._fresh.append(Item(work))

    def start(self) -> tuple[Item[Work], Server] | None:
        """Return a job and the server to try it on, None while there is no pair.

        Raises `TvmpassError` where nothing can be measured any more.
        """
        now = self.clock()
        if now - self._asked < (ASK_S if self.waiting else WATCH_S):
            return None
        self._asked = now
        try:
            server = self._free_server()
        except TrackerError as error:
            server = None
            self._note(str(error))
        if server is None:
            self._check_patience()
            return None
        item = (self._fresh or self._suspects).popleft()
        item.begin = now
        self.running += 1
        return item, server

    def _free_server(self) -> Server | None:
        status = self.tracker.status(self.key)
        self.servers = max(1, len(status.servers))
        if not status.servers:
            self._note(f"the RPC tracker has no server of the key {self.key!r}")
        elif not self._trouble.startswith("the RPC server "):
            self._fine()
        if not self.waiting or not status.free:
            return None
        return self.tracker.request(self.key, REQUEST_S)

    def _check_patience(self) -> None:
        waited = self.clock() - self._since
        if self._trouble and self.waiting and not self.running and waited > self.patience_s:
            raise TvmpassError(
                f"{self._trouble}, for {waited:.0f} s now; {self.waiting} candidates are not measured"
            )

    def measured(self, item: Item[Work], server: Server, measurement: Measurement) -> Measurement:
        """Note that a try gave a measurement; return it with worker and time filled in."""
        self._end(item)
        self._fine()
        measurement.worker = server.name
        measurement.spent_s += item.spent_s
        return measurement

    def failed(self, item: Item[Work], server: Server, failure: Failure) -> Measurement | None:
        """Note that a try gave none; return the measurement where that is the job's fault."""
        self._end(item)
        if failure.kind == UNREACHED:
            self._note(f"the RPC server {server.name} cannot be reached: {failure.cause}")
            (self._suspects if item.failed_on else self._fresh).appendleft(item)
            return None
        item.failed_on.append(server.name)
        if len(item.failed_on) < MAX_TRIES:
            self.say(f"{server.name}: {failure.cause}; its candidate is tried again")
            self._suspects.append(item)
            return None
        status = "crash" if failure.kind == LOST else "timeout"
        cause = f"{failure.cause}, on {' and on '.join(item.failed_on)}"
        return Measurement(status, cause=cause, spent_s=item.spent_s, worker=server.name)

    def _end(self, item: Item[Work]) -> None:
        self.running -= 1
        self._since = self.clock()  # while a try is under way nobody waits in vain
        item.spent_s += self._since - item.begin

    def _note(self, trouble: str) -> None:
        """Remember what is wrong and since when; say it once."""
        if not self._trouble:
            self._since = self.clock()
            self.say(f"{trouble}; waiting for up to {self.patience_s:.0f} s")
        self._trouble = trouble

    def _fine(self) -> None:
        if self._trouble:
            self._trouble = ""
            self.say("RPC servers can be reached again")

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
MAX_KEPT_BACK = 3
"""So often a job that failed waits for another server than that one."""
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
    kept_back: int = 0
    """How often it waited for another server than the one it failed with."""
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
        self._unreached = False
        self._said = False
        self._bad: set[str] = set()
        """Servers that could not be reached; each is said once."""

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
        server = None
        try:
            if self._is_server_free():
                server = self.tracker.request(self.key, REQUEST_S)
        except TrackerError as error:
            self._note(str(error))
        if server is None:
            self._check_patience()
            return None
        item = self._item_for(server)
        if item is None:  # the server offers itself again in some seconds
            return None
        item.begin = now
        self.running += 1
        return item, server

    def _item_for(self, server: Server) -> Item[Work] | None:
        """Return the job to try on ``server``; one that failed there rather goes elsewhere."""
        if self._fresh:
            return self._fresh.popleft()
        for item in self._suspects:
            if server.name not in item.failed_on or self.servers == 1 or item.kept_back >= MAX_KEPT_BACK:
                self._suspects.remove(item)
                return item
        for item in self._suspects:
            item.kept_back += 1
        return None

    def _is_server_free(self) -> bool:
        status = self.tracker.status(self.key)
        self.servers = max(1, len(status.servers))
        if not status.servers:
            self._note(f"the RPC tracker has no server of the key {self.key!r}")
        elif self._unreached:
            self._check_patience()
        else:
            self._fine()
        return bool(self.waiting and status.free)

    def _check_patience(self) -> None:
        waited = self.clock() - self._since
        if self._trouble and self.waiting and not self.running and waited > self.patience_s:
            raise TvmpassError(
                f"{self._trouble}, for {waited:.0f} s now; {self.waiting} candidates are not measured"
            )

    def measured(self, item: Item[Work], server: Server, measurement: Measurement) -> Measurement:
        """Note that a try gave a measurement; return it with worker and time filled in."""
        self._end(item)
        self._unreached = False
        self._fine()
        measurement.worker = server.name
        measurement.spent_s += item.spent_s
        return measurement

    def failed(self, item: Item[Work], server: Server, failure: Failure) -> Measurement | None:
        """Note that a try gave none; return the measurement where that is the job's fault."""
        if failure.kind == UNREACHED:
            self._unreached = True
            self._end(item, heard=False)
            trouble = f"the RPC server {server.name} cannot be reached: {failure.cause}"
            self._note(trouble, quiet=server.name in self._bad)
            self._bad.add(server.name)
            (self._suspects if item.failed_on else self._fresh).appendleft(item)
            return None
        self._end(item)
        item.failed_on.append(server.name)
        if len(item.failed_on) < MAX_TRIES:
            self.say(f"{server.name}: {failure.cause}; its candidate is tried again")
            self._suspects.append(item)
            return None
        status = "crash" if failure.kind == LOST else "timeout"
        cause = f"{failure.cause}, on {' and on '.join(item.failed_on)}"
        return Measurement(status, cause=cause, spent_s=item.spent_s, worker=server.name)

    def _end(self, item: Item[Work], heard: bool = True) -> None:
        now = self.clock()
        self.running -= 1
        item.spent_s += now - item.begin
        if heard:
            self._since = now  # while a try is under way nobody waits in vain

    def _note(self, trouble: str, quiet: bool = False) -> None:
        """Remember what is wrong and since when; say it once."""
        if not self._trouble:
            self._since = self.clock()
        if not self._said and not quiet:
            self._said = True
            self.say(f"{trouble}; waiting for up to {self.patience_s:.0f} s")
        self._trouble = trouble

    def _fine(self) -> None:
        self._trouble = ""
        if self._said:
            self._said = False
            self.say("RPC servers can be reached again")

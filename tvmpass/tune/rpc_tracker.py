"""A client of TVM's RPC tracker whose every question has a time limit.

TVM's own client waits without end for a server of a key that nobody serves.  Here
each question is one short connection: a tracker that is restarted between two
questions is not noticed, and one that is gone is an error at once.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from dataclasses import dataclass
from typing import Any

from tvmpass.core.errors import TvmpassError, UsageError

_MAGIC = 0x2F271
_SUCCESS, _REQUEST, _SUMMARY = 0, 4, 6
"""Codes of the tracker's protocol; a message is its length in four bytes and JSON text."""
_MAX_REPLY = 1 << 20
_SECONDS = 10.0
"""How long a tracker may take to answer what it can answer at once."""


class TrackerError(TvmpassError):
    """The tracker does not answer, or it is none."""


@dataclass(frozen=True)
class Server:
    """A server that the tracker has set aside for us, until its key has been used."""

    host: str
    port: int
    matchkey: str

    @property
    def name(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Status:
    """The servers of a key: addresses of all, and how many of them wait for work."""

    servers: tuple[str, ...]
    free: int


class Tracker:
    """Asks the tracker at ``host``:``port``; `TrackerError` where it does not answer."""

    def __init__(self, host: str, port: int):
        self.host, self.port = host, port

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    def keys(self) -> dict[str, int]:
        """Return how many servers of each key are up, busy ones too."""
        found: dict[str, int] = {}
        for key, _ in self._summary()[0]:
            found[key] = found.get(key, 0) + 1
        return dict(sorted(found.items()))

    def status(self, key: str) -> Status:
        """Return the servers of ``key`` that are up, and how many of them are free."""
        servers, free = self._summary()
        return Status(tuple(sorted(address for k, address in servers if k == key)), free.get(key, 0))

    def _summary(self) -> tuple[list[tuple[str, str]], dict[str, int]]:
        reply = self._ask([_SUMMARY], _SECONDS)
        try:
            told = reply[1]
            servers = [
                (str(info["key"]).removeprefix("server:"), ":".join(str(part) for part in info["addr"]))
                for info in told["server_info"]
            ]
            return servers, {str(key): int(queue["free"]) for key, queue in told["queue_info"].items()}
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise TrackerError(f"the RPC tracker at {self} gives no list of servers") from error

    def request(self, key: str, seconds: float) -> Server | None:
        """Return a free server of ``key``, None where none is free for so long."""
        reply = self._ask([_REQUEST, key, "", 1], seconds, patient=True)
        if reply is None:
            return None
        try:
            host, port, matchkey = reply[1]
            return Server(str(host), int(port), str(matchkey))
        except (LookupError, TypeError, ValueError) as error:
            raise TrackerError(f"the RPC tracker at {self} gives no address of a server") from error

    def _ask(self, message: list[Any], seconds: float, patient: bool = False) -> Any:
        """Return the reply to ``message``; where ``patient``, None after ``seconds``."""
        try:
            with socket.create_connection((self.host, self.port), _SECONDS) as connection:
                connection.sendall(struct.pack("<i", _MAGIC))
                if struct.unpack("<i", _receive(connection, 4, _SECONDS))[0] != _MAGIC:
                    raise TrackerError(f"what answers at {self} is no RPC tracker")
                body = json.dumps(message).encode()
                connection.sendall(struct.pack("<i", len(body)) + body)
                try:
                    head = _receive(connection, 4, seconds)
                except TimeoutError:
                    if patient:
                        return None
                    raise
                (size,) = struct.unpack("<i", head)
                if not 0 < size <= _MAX_REPLY:
                    raise TrackerError(f"the RPC tracker at {self} answers with {size} bytes")
                reply = json.loads(_receive(connection, size, _SECONDS))
        except TimeoutError as error:
            raise TrackerError(f"the RPC tracker at {self} does not answer") from error
        except OSError as error:
            raise TrackerError(f"no RPC tracker answers at {self}: {error.strerror or error}") from error
        except ValueError as error:
            raise TrackerError(f"the RPC tracker at {self} answers with no JSON") from error
        if not isinstance(reply, list) or not reply or reply[0] != _SUCCESS:
            raise TrackerError(f"the RPC tracker at {self} refuses: {str(reply)[:80]}")
        return reply


def _receive(connection: socket.socket, size: int, seconds: float) -> bytes:
    """Return exactly ``size`` bytes; TimeoutError after ``seconds``, ConnectionError at the end."""
    end, got = time.monotonic() + seconds, b""
    while len(got) < size:
        connection.settimeout(max(0.001, end - time.monotonic()))
        more = connection.recv(size - len(got))
        if not more:
            raise ConnectionError("the connection was closed")
        got += more
    return got


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of ``HOST:PORT``; `UsageError` for another form."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")  # [::1]:9190, as URLs spell it
    if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise UsageError(f"the RPC tracker is given as HOST:PORT, for example gpu-box:9190, not {text!r}")
    return host, int(port)

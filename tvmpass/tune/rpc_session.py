"""One session with an RPC server, in a child of its own: upload, check, time.

A session ends with whatever it runs; the server gives the next one a fresh
process and an empty folder, so nothing of a job stays there.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import tvm

from tvmpass.compile.cuda_runtime import runs_on
from tvmpass.compile.target import required_features
from tvmpass.core.cuda_arch import target_arches
from tvmpass.core.errors import last_line

from .run_job import check_and_time
from .server import is_memory

CONNECT_S = 10.0
"""For the handshake; a server that the tracker gave us is waiting for us."""
EXPIRED = "RPCSessionTimeoutError"
"""What the name of TVM's error says when the server ended a session at its time limit."""


def warm_up() -> None:
    """Import what sessions need, so that each does not do it anew."""
    from tvm import rpc  # noqa: F401


def connect(host: str, port: int, matchkey: str, seconds: float, mark: str):
    """Return a session with the server, which ends it after ``seconds``.

    ``mark`` is a file that is there afterwards.  A handshake that hangs, which
    Python cannot interrupt, ends this process.
    """
    from tvm import rpc

    Path(mark).unlink(missing_ok=True)  # a call may be made again
    signal.setitimer(signal.ITIMER_REAL, CONNECT_S)
    session = rpc.connect(host, port, matchkey, session_timeout=seconds)
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    Path(mark).touch()
    return session


def look(host: str, port: int, matchkey: str, seconds: float, mark: str, target: str) -> dict[str, Any]:
    """Return what a server says of its machine: ``facts``, and why it is ``unfit`` or None."""
    session = connect(host, port, matchkey, seconds, mark)
    return {"facts": facts_of(session, target), "unfit": unfit(session, tvm.target.Target(target))}


def run_there(
    host: str,
    port: int,
    matchkey: str,
    seconds: float,
    mark: str,
    target: str,
    threads: int,
    folder: str,
    library: str,
    library0: str,
    thorough: bool,
) -> dict[str, Any]:
    """Check and time a candidate on a server; compare its results here.

    ``folder`` holds the workload's cases.  Returns the fields of a `Measurement`,
    or ``unfit`` (this server cannot run such code) or ``lost`` (the session broke
    off) with why.
    """
    session = connect(host, port, matchkey, seconds, mark)
    try:
        resolved = tvm.target.Target(target)
        why = unfit(session, resolved)
        if why is not None:
            return {"unfit": why}
        if resolved.kind.name == "cuda":
            device = session.cuda(0)
        else:
            device = session.cpu(0)
            session.get_function("runtime.config_threadpool")(1, threads)

        def load(path: Path) -> Any:
            session.upload(str(path), path.name)
            return session.load_module(path.name)

        paths = Path(folder), Path(library), Path(library0)
        return check_and_time(*paths, load, device, thorough, guarded=True)
    except Exception as error:  # of whatever class TVM rebuilds from the other side
        if EXPIRED in type(error).__name__ or EXPIRED in str(error):
            return {"status": "timeout", "cause": f"no end after {seconds:.0f} s"}
        if not lives(session):
            return {"lost": "the session broke off"}
        if is_memory(str(error)):
            return {"status": "memory", "cause": last_line(error)}
        return {"status": "crash", "cause": f"{type(error).__name__}: {last_line(error)}"}


def lives(session) -> bool:
    """Return whether a session still answers."""
    try:
        session.get_function("runtime.NumThreads")()
    except Exception:  # of whatever class: it does not
        return False
    return True


def unfit(session, target: tvm.target.Target) -> str | None:
    """Return why the server's machine cannot run code for ``target``; None where it can.

    A CPU is judged by its name, where TVM's compiler is there to ask for it.
    """
    if target.kind.name == "cuda":
        device = session.cuda(0)
        if not device.exist:
            return "no CUDA device answers there"
        version = str(device.compute_version)
        arches = target_arches(target)
        if not runs_on(arches, version):
            return f"its GPU is sm_{version.replace('.', '')}, not {', '.join(arches)}"
        return None
    triple, cpu = _host_cpu(session)
    wanted = str(target.attrs.get("mtriple") or tvm.target.codegen.llvm_get_system_triple()).split("-")[0]
    if triple and triple.split("-")[0] != wanted:
        return f"its CPU is {triple.split('-')[0]}, not {wanted}"
    if not cpu:
        return None
    there = tvm.target.Target({"kind": "llvm", "mtriple": triple, "mcpu": cpu})
    missing = set(required_features(target)) - set(required_features(there))
    return f"its CPU ({cpu}) lacks {', '.join(sorted(missing))}" if missing else None


def facts_of(session, target: str) -> dict[str, Any]:
    """Return what goes into the header of a record file."""
    if tvm.target.Target(target).kind.name == "cuda":
        device = session.cuda(0)
        if not device.exist:
            return {}
        return {"sms": int(device.multi_processor_count), "name": str(device.device_name)}
    triple, cpu = _host_cpu(session)
    return {"machine": triple.split("-")[0], "mcpu": cpu} if cpu else {}


def _host_cpu(session) -> tuple[str, str]:
    """Return triple and CPU of the server's machine, empty where it has no compiler to ask."""
    try:
        asked = [session.get_function(f"target.llvm_get_system_{what}") for what in ("triple", "cpu")]
    except AttributeError:
        return "", ""
    triple, cpu = (str(function()) for function in asked)
    return triple, cpu

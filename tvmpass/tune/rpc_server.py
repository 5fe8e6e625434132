"""Run TVM's RPC server, and serve on after a kernel brought a session down.

    python -m tvmpass.tune.rpc_server --tracker HOST:9190 --key K

TVM's own ``python -m tvm.exec.rpc_server`` serves no more once a session ended
in a crash, while its process lives on.  This one needs TVM alone: the file can be
copied to a device host without tvmpass and run as ``python rpc_server.py``.

Whoever reaches its port can run any code as this user: use it only in networks
that you trust.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import logging
import multiprocessing
import os
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

PAUSE_S = 0.2
"""Between a crash and serving again."""
PORTS = 110
"""How many ports to try: TVM's own number. Its fixed end, 9199, fails for a higher first port."""
MEMORY_SHARE = 0.75
_PR_SET_PDEATHSIG = 1


def main(arguments: list[str] | None = None) -> int:
    """Serve until Ctrl-C or SIGTERM, which end a running session too."""
    options = _options(arguments)
    tracker, colon, port = options.tracker.rpartition(":")
    if not colon or not tracker or not port.isdigit():
        return _refuse(f"--tracker takes HOST:PORT, not {options.tracker!r}")
    if len(options.key.split()) != 1:
        return _refuse(f"--key takes a name without blanks, not {options.key!r}")
    _load_cuda_runtime()
    try:
        from tvm.rpc import server
    except ImportError as error:
        return _refuse(f"TVM's RPC needs apache-tvm, tornado, psutil and cloudpickle here: {error}")
    folder = Path(tempfile.mkdtemp(prefix="rpc-server-"))
    tempfile.tempdir = str(folder)  # also what a crashed session leaves behind
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    os.register_at_fork(after_in_child=_be_a_session)
    _limit_memory(options.memory_gb)
    server.logger.setLevel(logging.INFO if options.verbose else logging.WARNING)
    threading.excepthook = _say_crash
    try:
        while True:
            os.chdir(folder)
            state = server.PopenRPCServerState(
                options.host,
                options.port,
                options.port_end,
                tracker_addr=(tracker.strip("[]"), int(port)),
                key=options.key,
                custom_addr=options.custom_addr,
            )
            print(f"serving {options.key!r} on port {state.port}, tracker {options.tracker}", flush=True)
            state.thread.join()
            state.sock.close()
            time.sleep(PAUSE_S)
    except (KeyboardInterrupt, SystemExit):
        pass
    except (OSError, ValueError) as error:  # no port, or a host that is not ours
        _refuse(str(error))
    finally:
        for session in multiprocessing.active_children():
            session.kill()
        shutil.rmtree(folder, ignore_errors=True)
    sys.stdout.flush()
    os._exit(0)  # the thread that listens cannot be ended otherwise


def _options(arguments: list[str] | None) -> argparse.Namespace:
    options = _parser().parse_args(arguments)
    if options.port_end is None:
        options.port_end = options.port + PORTS
    return options


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="rpc_server", description=__doc__.splitlines()[0])
    parser.add_argument("--tracker", required=True, help="HOST:PORT of TVM's RPC tracker")
    parser.add_argument("--key", required=True, help="the kind of device, as --rpc-key names it")
    parser.add_argument("--host", default="0.0.0.0", help="address to listen on (default: all)")
    parser.add_argument("--port", type=int, default=9090, help="first port to try (default 9090)")
    parser.add_argument("--port-end", type=int, help=f"end of the ports to try (default: {PORTS} of them)")
    parser.add_argument("--custom-addr", help="address under which the tracker's clients reach this host")
    parser.add_argument(
        "--memory-gb",
        type=float,
        help="memory that a session may take (default: three quarters of this machine's; 0: any)",
    )
    parser.add_argument("--verbose", action="store_true", help="print TVM's own messages too")
    return parser


def _load_cuda_runtime() -> None:
    """Load CUDA's runtime from NVIDIA's Python packages where the loader does not find it.

    TVM looks for it once, when it is imported, and only where the loader looks.
    """
    name = "libcudart.so.13"
    packages = importlib.util.find_spec("nvidia")
    roots = [] if packages is None else list(packages.submodule_search_locations or ())
    found = [str(path) for root in roots for path in sorted(Path(root).glob(f"cu*/lib/{name}"))]
    for path in (name, *found):
        try:
            ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
            return
        except OSError:
            continue  # a machine without CUDA has none of them


def _limit_memory(gigabytes: float | None) -> None:
    """Bound what this process and its sessions may allocate, address space set aside excepted."""
    if gigabytes is None:
        whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        gigabytes = MEMORY_SHARE * whole / 1e9
    if gigabytes > 0:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        wanted = int(gigabytes * 1e9)
        resource.setrlimit(
            resource.RLIMIT_DATA, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard)
        )


def _be_a_session() -> None:
    """Let a session end whatever it is computing: by a signal, and when the server is killed."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a handler of Python's would wait for the kernel
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _say_crash(crash: threading.ExceptHookArgs) -> None:
    """Print in one line why the listening thread ended; it is started again."""
    print(f"serving again after: {crash.exc_value}", flush=True)


def _refuse(message: str) -> int:
    print(message, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())

"""What the tests of the fork server call in its children; each plays a kind of trouble."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

SLEEP = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]


def give(value):
    return value


def fail(text: str):
    raise ValueError(f"first line\n{text}")


def fill_disk():
    raise OSError(28, "No space left on device")


def die(number: int):
    print("last words", file=sys.stderr, flush=True)
    os.kill(os.getpid(), number)
    time.sleep(60)


def leave(code: int):
    os._exit(code)


def hang():
    while True:
        time.sleep(60)


def take_memory():
    return len(bytearray(100 << 30))


def take_memory_natively():
    """Take memory until there is none, as C++ does: by dying of it."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    while libc.malloc(ctypes.c_size_t(1 << 28)):
        pass
    print("terminate called after throwing an instance of 'std::bad_alloc'", file=sys.stderr, flush=True)
    os.abort()


def use_memory(mebibytes: int):
    kept = bytearray(os.urandom(1 << 20) * mebibytes)
    time.sleep(60)
    return len(kept)


def start_others(note: str, then: str = "return"):
    """Start a process of the own group and one of its own session; note all process ids."""
    pids = [os.getpid(), subprocess.Popen(SLEEP).pid, subprocess.Popen(SLEEP, start_new_session=True).pid]
    if os.fork() == 0:  # and one whose parent is gone at once
        os.setsid()
        own = os.fork()
        if own:
            os._exit(0)
        Path(note + ".fork").write_text(str(os.getpid()))
        os.execv(SLEEP[0], SLEEP)
    os.wait3(0)
    while not os.path.exists(note + ".fork"):
        time.sleep(0.01)
    Path(note + ".new").write_text(
        " ".join(map(str, [os.getppid(), *pids])) + " " + Path(note + ".fork").read_text()
    )
    os.rename(note + ".new", note)
    if then == "hang":
        hang()
    return pids


def kill_server():
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(60)


def kill_server_once(note: str):
    if not os.path.exists(note):
        Path(note).write_text("killed")
        kill_server()
    return "second"


def describe():
    files = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            files[name] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:  # the one that listed the folder
            continue
    return {
        "files": files,
        "group": os.getpgid(0),
        "session": os.getsid(0),
        "pid": os.getpid(),
        "temporary": os.environ["TMPDIR"],
        "interrupt": signal.getsignal(signal.SIGINT) is signal.SIG_DFL,
    }


def many_threads():
    """Called to warm up: leaves a thread behind."""
    import threading

    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()

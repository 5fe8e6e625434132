"""Turn every failure into one message on stderr and a documented exit code.

0 the work was done, 1 it failed, 2 the command was used wrongly, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence

import click

from .printable import printable

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
MOST_LINES = 60


def run(arguments: Sequence[str]) -> int:
    """Run the command line and return the exit code; never raises."""
    _open_closed_streams()
    real_stderr = sys.stderr
    try:
        from .group import tvmpass

        result = tvmpass.main(list(arguments), prog_name="tvmpass", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else OK
    except BrokenPipeError:
        # The reader (head, a pager) went away: nothing is wrong, nobody listens.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except BaseException as error:
        line, code = explain_failure(error)
        if line:
            shown = "\n".join(printable(part) for part in line.split("\n"))
            print(f"tvmpass: {shown}", file=real_stderr)
        if line and code == FAILED and _debugging(arguments):
            traceback.print_exception(error, file=real_stderr)
        return code


def _open_closed_streams() -> None:
    """Open what was closed of stdin, stdout and stderr (``>&-``) on /dev/null.

    Python has no stream for it then, and worse: the next file that is opened, a
    record file say, would take its number, and whatever is printed below Python
    would end up inside.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number: this one
            os.set_inheritable(descriptor, True)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115


def explain_failure(error: BaseException) -> tuple[str, int]:
    """Return the message (one line, but for `TvmpassError.in_lines`) and the exit code for an exception."""
    if isinstance(error, SystemExit):
        # click ends the process itself where stdout was closed by its reader.
        return "", error.code if isinstance(error.code, int) else FAILED
    if isinstance(error, click.exceptions.Exit):
        return "", error.exit_code
    if isinstance(error, (KeyboardInterrupt, click.exceptions.Abort)):
        return "interrupted", INTERRUPTED
    if isinstance(error, click.UsageError):
        command = error.ctx.command_path if error.ctx else "tvmpass"
        return f"{_one_line(error.format_message())} (see '{command} --help')", USAGE
    if isinstance(error, click.ClickException):
        return _one_line(error.format_message()), FAILED
    from tvmpass.compat import IncompatibleTVM
    from tvmpass.settings import SettingError

    if isinstance(error, SettingError):
        return _one_line(str(error)), USAGE
    if isinstance(error, IncompatibleTVM):
        return _one_line(str(error)), FAILED
    # The error types live in a package that imports no TVM by itself.
    from tvmpass.core.errors import TvmpassError, UsageError

    if isinstance(error, UsageError):
        return _one_line(str(error)), USAGE
    if isinstance(error, TvmpassError):
        return _laid_out(str(error)) if error.in_lines else _one_line(str(error)), FAILED
    if isinstance(error, MemoryError):
        return "out of memory", FAILED
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or error}", FAILED
    kind = type(error).__name__
    return f"internal error: {kind}: {_one_line(str(error))} (-v shows where)", FAILED


def _one_line(text: str) -> str:
    """Join the lines of a message; a long one (TVM prints IR) is cut to its end."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    joined = " ".join(lines)
    if len(joined) > 2000:
        joined = lines[-1][-1000:]
    return joined


def _laid_out(text: str) -> str:
    """Keep the lines of a message; of very many the first."""
    lines = [line.rstrip()[:2000] for line in text.strip().split("\n") if line.strip()]
    left = len(lines) - MOST_LINES
    return "\n".join(lines[:MOST_LINES] + ([f"    ... and {left} lines more"] if left > 0 else []))


def _debugging(arguments: Sequence[str]) -> bool:
    from tvmpass.settings import SettingError, Settings

    try:
        return "-v" in arguments or "--verbose" in arguments or Settings.read().debug
    except SettingError:
        return False

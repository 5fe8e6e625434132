"""``tvmpass logs``: look into record files, put them together, thin them out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from .logs_convert import convert
from .parameters import json_option, verbose_option, write_json
from .printable import printable
from .tables import counted, table_text

SHOWN_PROBLEMS = 20

_paths = click.argument("paths", nargs=-1, type=click.Path())
_paths_needed = click.argument("paths", nargs=-1, required=True, type=click.Path())
_compact_option = click.option(
    "--compact", is_flag=True, help="Write the form that ships: compressed, without samples and host names."
)


@click.group()
def logs() -> None:
    """Look into record files, put them together, thin them out, convert them.

    \b
    Example:
      tvmpass logs show tuning_logs
      tvmpass logs merge tuning_logs other/tuning_logs -o tuning_logs

    PATHS are record files (.jsonl, .jsonl.gz) or folders of them.
    """


@logs.command()
@_paths
@click.option("--kernel", "prefix", default="", help="Only kernels whose key begins so.")
@json_option
@verbose_option
def show(paths, prefix, json_path, verbose) -> None:
    """List the kernels in PATHS with their best candidates.

    Without PATHS it looks where a build looks: ./tuning_logs, then what ships.
    A candidate is "used" where builds for its class of devices may take it.

    \b
    Example:
      tvmpass logs show tuning_logs --json -
    """
    from .quiet import tvm_silenced

    with tvm_silenced(verbose):
        from tvmpass.tune.log_lines import read_logs
        from tvmpass.tune.logs import kernels, summarize

        found, problems = read_logs(paths or _looked_up())
        rows = [row for row in kernels(found) if row["kernel_key"].startswith(prefix)]
        files = summarize(found)
    warn(problems)
    if json_path:
        write_json(json_path, {"schema": 1, "files": files, "kernels": rows})
    if json_path == "-":
        return
    for file in files:
        held = [counted(file[name], noun) for name, noun in _NOUNS if file[name]]
        click.echo(f"{printable(file['file'])}: {file['device_class']}, {', '.join(held) or 'no records'}")
    if rows:
        click.echo("\n" + _kernel_table(rows))


@logs.command()
@_paths
@json_option
@verbose_option
def check(paths, json_path, verbose) -> int | None:
    """Read every line of PATHS and name each that cannot be used.

    The exit code is 1 where there is any, or a file that is no record file.

    \b
    Example:
      tvmpass logs check tuning_logs
    """
    from .quiet import tvm_silenced

    with tvm_silenced(verbose):
        from tvmpass.tune.log_lines import read_logs
        from tvmpass.tune.logs import summarize

        found, problems = read_logs(paths or _looked_up())
        rows = summarize(found)
    if json_path:
        write_json(json_path, {"schema": 1, "files": rows, "problems": problems})
    if json_path != "-":
        columns = ("file", "class", "TVM", "candidates", "failed", "kernels", "used", "train", "problems")
        cells = [
            (
                printable(row["file"]),
                row["device_class"],
                printable(row["tvm"]),
                row["candidates"],
                row["failed"],
                row["kernels"],
                row["usable"],
                row["train"] + row["alternatives"],
                len(row["problems"]),
            )
            for row in rows
        ]
        click.echo(table_text(columns, cells, range(3, len(columns))))
    warn(problems)
    return 1 if problems else None


@logs.command()
@_paths_needed
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(),
    help="A file (.jsonl, .jsonl.gz), or a folder that gets one file per class of devices.",
)
@_compact_option
@json_option
@verbose_option
def merge(paths, output, compact, json_path, verbose) -> None:
    """Put the records of PATHS together.

    Records of other classes of devices, TVM or feature versions never share a file:
    a folder gets one for each, a file that would mix them is refused.  What the
    output holds already stays and counts as the first input.

    Of records with one key (a kernel with one recipe or trace) the better
    founded stays: one that computed wrong numbers before all others, one that
    worked before those that failed, one timed against the library's own choice
    before one that was not, more rounds before fewer, else the first.  Fusion
    alternatives of one graph stay together.

    \b
    Example:
      tvmpass logs merge tuning_logs other/tuning_logs -o tuning_logs
    """
    from .quiet import tvm_silenced

    with tvm_silenced(verbose):
        from tvmpass.tune.logs import merge as merged

        rows, problems = merged(paths, output, compact)
    warn(problems)
    if json_path:
        write_json(json_path, {"schema": 1, "files": rows, "problems": problems})
    if json_path != "-":
        for row in rows:
            held = [counted(row[name], noun) for name, noun in _NOUNS if row[name]]
            inputs, twice = counted(len(row["inputs"]), "file"), counted(row["duplicates"], "duplicate")
            click.echo(
                f"{printable(row['file'])}: {', '.join(held) or 'no records'} from {inputs}; {twice} left out"
            )


@logs.command()
@_paths_needed
@click.option(
    "-o", "--output", type=click.Path(), help="Write here instead of in place: a file, or a folder."
)
@click.option(
    "--keep",
    default=3,
    show_default=True,
    type=click.IntRange(1),
    help="Candidates to keep of each kernel, the best ones.",
)
@click.option("--failures", is_flag=True, help="Keep what crashed, hung or computed wrong numbers.")
@click.option("--dry-run", "dry", is_flag=True, help="Say what would go, and write nothing.")
@_compact_option
@json_option
@verbose_option
def prune(paths, output, keep, failures, dry, compact, json_path, verbose) -> None:
    """Leave out of PATHS what no build uses any more.

    Records of another TVM, of recipes that have changed since, and failed ones go;
    of each kernel the best candidates stay.  A later tune measures again what is
    no longer on record.  Lines of training data stay.

    \b
    Example:
      tvmpass logs prune tuning_logs --keep 3 --dry-run
      tvmpass logs prune tuning_logs --compact -o to_ship
    """
    from .quiet import tvm_silenced

    with tvm_silenced(verbose):
        from tvmpass.tune.logs import prune as pruned

        rows, problems = pruned(paths, output, keep, failures, compact, dry)
    warn(problems)
    if json_path:
        write_json(json_path, {"schema": 1, "files": rows, "problems": problems})
    if json_path != "-":
        for row in rows:
            why = ", ".join(f"{count} {reason}" for reason, count in row["why"].items())
            fate = "; nothing is left, no file" if row["removed"] else ""
            click.echo(
                f"{printable(row['file'])}: {counted(row['kept'], 'line')} kept, {row['dropped']} left out"
                + (f" ({why})" if why else "")
                + fate
            )


logs.add_command(convert)

_NOUNS = (
    ("candidates", "candidate"),
    ("candidate0", "candidate 0 line"),
    ("train", "training line"),
    ("alternatives", "fusion alternative"),
    ("sessions", "session line"),
)


def _looked_up() -> list[Path]:
    """Return the folders that a build looks into."""
    from tvmpass.compile.records import LOCAL
    from tvmpass.settings import shipped_logs

    return [folder for folder in (LOCAL, shipped_logs()) if folder.is_dir()]


def warn(problems: Sequence[str]) -> None:
    """Show the first problems as warnings."""
    for problem in problems[:SHOWN_PROBLEMS]:
        click.echo(f"tvmpass: warning: {printable(problem)}", err=True)
    if len(problems) > SHOWN_PROBLEMS:
        click.echo(f"tvmpass: warning: {len(problems) - SHOWN_PROBLEMS} more of these", err=True)


def _kernel_table(rows: Sequence[dict]) -> str:
    columns = ("kernel", "kind", "measured", "failed", "µs", "library µs", "gain", "used", "best")
    cells = [
        (
            row["kernel_key"][:12],
            row["kind"],
            row["candidates"],
            sum(row["failed"].values()),
            _number(row["median_us"]),
            _number(row["candidate0_us"]),
            "-" if row["gain"] is None else f"{row['gain']:.2f}",
            row["unused"] or "yes",
            printable(row["best"]),
        )
        for row in rows
    ]
    return table_text(columns, cells, range(2, 7))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"

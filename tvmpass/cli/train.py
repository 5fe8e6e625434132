"""``tvmpass train``: fit the cost model to measured records."""

from __future__ import annotations

from pathlib import Path

import click

from .parameters import json_option, verbose_option, write_json
from .printable import printable
from .tables import counted, table_text

SHOWN_PROBLEMS = 5


@click.command()
@click.option(
    "--logs",
    type=click.Path(file_okay=False),
    help="Folder of record files; the shipped ones when not given.",
)
@click.option(
    "--target", default="llvm", show_default=True, help="The target whose records are learned from."
)
@click.option(
    "--threads",
    default="all",
    show_default=True,
    help="Learn from records taken on so many threads; where there are none, on another number.",
)
@click.option("-o", "--output", type=click.Path(), help="Write the model here; use it as tvmpass.cost_model.")
@json_option
@verbose_option
def train(logs, target, threads, output, json_path, verbose) -> None:
    """Fit the cost model and say how well it predicts.

    \b
    Example:
      tvmpass train --logs tuning_logs -o my-model.json
      tvmpass build model.onnx -o model.so --config tvmpass.cost_model=my-model.json
    """
    from tvmpass.core.files import check_writable

    from .progress import stages
    from .quiet import tvm_silenced

    if output:
        check_writable(output)
    with tvm_silenced(verbose), stages() as stage:
        from tvmpass.settings import shipped_logs

        folder = Path(logs) if logs else shipped_logs()
        paths = _record_files(folder)
        stage(f"reading {counted(len(paths), 'record file')}")
        from tvmpass import cost
        from tvmpass.compile.target import parse_target
        from tvmpass.core.options import Options

        threads = Options.from_config({"tvmpass.threads": threads}).threads
        device_class = cost.device.device_class(parse_target(target, threads), threads)
        result = cost.train(paths, device_class, progress=stage)
        for problem in result.problems[:SHOWN_PROBLEMS]:
            click.echo(f"tvmpass: warning: {printable(problem)}", err=True)
        if len(result.problems) > SHOWN_PROBLEMS:
            click.echo(f"tvmpass: warning: {len(result.problems)} record lines were skipped in all", err=True)
        if output:
            result.model.save(output)
        stage.done(f"{output}: written" if output else "done; give -o FILE to keep the model")
    if json_path:
        write_json(json_path, result.metrics)
    if json_path != "-":
        _print(result.metrics)


def _record_files(folder: Path) -> list[Path]:
    from tvmpass.core.errors import TvmpassError, UsageError

    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder; --logs names a folder of record files (*.jsonl)")
    paths = sorted([*folder.glob("*.jsonl"), *folder.glob("*.jsonl.gz")])
    if not paths:
        raise TvmpassError(f"{folder}: holds no record files (*.jsonl)")
    return paths


def _print(metrics: dict) -> None:
    for key, value in metrics.items():
        if not isinstance(value, dict) and key not in _COMPARED:
            click.echo(f"{key.replace('_', ' ')}: {_number(value)}")
    rows = [("held out by graph", metrics)]
    if "leave_family_out" in metrics:
        rows.append(("held out by family", metrics["leave_family_out"]))
    rows += [(f"  {name}", inner) for name, inner in metrics.get("families", {}).items()]
    columns = (
        "decisions",
        "clear",
        "right",
        "if always",
        "if never",
        "regret",
        "if always",
        "if never",
        "worst",
    )
    cells = [(name, *(_number(inner.get(key)) for key in _COMPARED)) for name, inner in rows]
    click.echo("\n" + table_text(columns, cells, range(1, len(columns))))


_COMPARED = (
    *("decisions", "decision_accuracy", "accuracy_always", "accuracy_never"),
    *("regret_geomean", "regret_always", "regret_never", "regret_worst"),
)
"""What the model decides beside what always or never fusing would: a table."""


def _number(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)

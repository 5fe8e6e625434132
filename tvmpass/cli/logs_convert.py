"""``tvmpass logs convert``: records to MetaSchedule's database, and from there."""

from __future__ import annotations

import os

import click

from .parameters import (
    config_of,
    config_option,
    json_option,
    params_option,
    rules_option,
    shape_option,
    shapes_of,
    verbose_option,
    without_option,
    write_json,
)
from .printable import printable
from .tables import counted


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path())
@click.option(
    "-o", "--output", required=True, type=click.Path(file_okay=False), help="The folder to write into."
)
@click.option("--model", type=click.Path(), help="The model whose kernels go into the database.")
@click.option(
    "--target", default="llvm", show_default=True, help="What the records are for, as for tvmpass tune."
)
@click.option("--threads", help="Threads they were measured with; all cores when not given.")
@shape_option
@params_option
@config_option
@without_option
@rules_option
@json_option
@verbose_option
def convert(
    paths, output, model, target, threads, shapes, params, settings, without, rule_files, json_path, verbose
) -> int | None:
    """Convert record files to a database of MetaSchedule, or such a database to records.

    Which way is told by PATHS: a folder that holds database_workload.json and
    database_tuning_record.json is a database, anything else record files.

    To MetaSchedule: records name their kernels by a hash, so the kernels come from
    --model. Traces go over as they are; of the recipes those whose steps
    leave a trace, the others are counted and stay behind.

    From MetaSchedule: the traces go into OUTPUT/CLASS.tuned.jsonl. They were compared
    with nothing, so no build uses them yet; the next tvmpass tune of a model with
    these kernels times the fastest ones first.

    \b
    Example:
      tvmpass logs convert tuning_logs --model model.onnx --threads 1 -o database
      tvmpass logs convert database --threads 1 -o tuning_logs
    """
    from .progress import stages
    from .quiet import tvm_silenced

    for path in paths:
        if not os.path.lexists(path):
            raise click.UsageError(f"{path}: no such file or folder")
    wanted, config = shapes_of(shapes), config_of(settings)
    if threads is not None:
        config["tvmpass.threads"] = threads
    with tvm_silenced(verbose), stages() as stage:
        stage("starting TVM")
        import tvmpass
        from tvmpass.compile.context import read_options
        from tvmpass.compile.target import parse_target
        from tvmpass.tune.convert import from_database, is_database, to_database

        with tvmpass.PassContext(config=config):
            options, _ = read_options()
            resolved = parse_target(target, options.threads)
            if is_database(paths[0]):
                if model or len(paths) > 1:
                    raise click.UsageError(
                        "a database of MetaSchedule is converted by itself: no --model, one path"
                    )
                from tvmpass.cost.device import host_facts

                stage(f"reading {paths[0]}")
                row, problems = from_database(paths[0], output, resolved, options, host_facts())
            else:
                if not model:
                    raise click.UsageError("--model is needed: records do not hold the kernels themselves")
                from tvmpass import catalogue
                from tvmpass.cost.device import device_class
                from tvmpass.tune.log_lines import read_logs
                from tvmpass.tune.tasks import plan_tasks

                from .models import load_model

                logs, problems = read_logs(paths)
                stage(f"planning {model}")
                mod, unbound = load_model(model, wanted, params)
                added = [rule for path in rule_files for rule in catalogue.rules_from_file(path)]
                tasks, _ = plan_tasks(
                    mod,
                    resolved,
                    options,
                    device_class(resolved, options.threads),
                    params=unbound,
                    rules=catalogue.check_unique((*catalogue.rules(), *added)),
                    without=tuple(name for group in without for name in group),
                )
                stage("converting")
                row = to_database(logs, [task.workload for task in tasks if task.workload], output)
        stage.done(f"{printable(str(row['output']))}: {counted(row['records'], 'record')} written")
    from .logs import warn

    warn(problems)
    if json_path:
        write_json(json_path, {"schema": 1, **row, "problems": problems})
    if json_path != "-":
        click.echo(_told(row))
    nothing = not row["records"] and (problems or set(row["left_out"]) - {"on-record"})
    return 1 if nothing else None


def _told(row: dict) -> str:
    text = f"{counted(row['records'], 'record')} of {counted(row['kernels'], 'kernel')}"
    if row["left_out"]:
        why = ", ".join(f"{count} {reason}" for reason, count in sorted(row["left_out"].items()))
        text += f"; left out: {why}"
    if row.get("waiting"):
        text += f"; the next tune times {row['waiting']} of them"
    return text

"""``tvmpass tune``: measure schedules of a model's kernels and keep what is faster."""

from __future__ import annotations

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


@click.command()
@click.argument("model", type=click.Path())
@click.option(
    "--target",
    default="llvm",
    show_default=True,
    help="What to tune for: llvm is this CPU, cuda:sm_90 an NVIDIA device (here, or at --rpc).",
)
@shape_option
@params_option
@click.option("--trials", type=click.IntRange(1), help="Measure so many candidates, all tunes together.")
@click.option(
    "--minutes",
    type=click.FloatRange(0, min_open=True),
    help="Spend so much time, all tunes together; 10 where neither is given.",
)
@click.option(
    "--logs",
    type=click.Path(file_okay=False),
    help="Folder of the records; ./tuning_logs when not given, where builds look too.",
)
@click.option("--threads", help="Threads that the model will run with; all cores when not given.")
@click.option("--rpc", metavar="HOST:PORT", help="Measure on the servers of this tracker.")
@click.option("--rpc-key", metavar="KEY", help="Which of the tracker's servers.")
@config_option
@click.option(
    "--opt-level", type=click.IntRange(0, 3), default=3, show_default=True, help="As for tvmpass build."
)
@without_option
@rules_option
@click.option("--collect", is_flag=True, help="Also measure fusion alternatives, for tvmpass train.")
@click.option("--html", type=click.Path(), help="Write a summary page that needs no network.")
@json_option
@verbose_option
def tune(
    model, target, shapes, params, trials, minutes, logs, threads, rpc, rpc_key, settings, opt_level, without,
    rule_files, collect, html, json_path, verbose,
) -> int | None:  # fmt: skip
    """Find faster schedules for MODEL's kernels by measuring them on this machine.

    \b
    Example:
      tvmpass tune model.onnx --shape x:1,3,224,224 --minutes 15 --threads 1
      tvmpass build model.onnx -o model.so --shape x:1,3,224,224 --config threads=1

    It may be stopped at any time, loses nothing, and goes on where it stopped;
    builds take the records from ./tuning_logs.
    """
    from tvmpass.core.files import check_apart, check_writable

    from .quiet import tvm_silenced
    from .tuning.watch import watching

    if trials is not None and minutes is not None:
        raise click.UsageError("give --trials or --minutes, not both")
    if (rpc is None) != (rpc_key is None):
        raise click.UsageError("--rpc and --rpc-key belong together")
    wanted, config = shapes_of(shapes), config_of(settings)
    if threads is not None:
        config["tvmpass.threads"] = threads
    for output in (html, None if json_path == "-" else json_path):
        if output:
            check_apart(output, model, params, *rule_files)
            check_writable(output)
    code = None
    with tvm_silenced(verbose), watching() as watch:
        watch.say("starting TVM")
        import tvmpass
        from tvmpass.tune.interrupts import ALL, Interrupts
        from tvmpass.tune.session import TuneInterrupted
        from tvmpass.tune.session import tune as run

        from .models import load_model

        with Interrupts(ALL) as interrupts, tvmpass.PassContext(opt_level=opt_level, config=config):
            watch.say(f"reading {model}")
            mod, unbound = load_model(model, wanted, params)

            def progress(now) -> None:
                interrupts.check()
                watch(now)

            try:
                result = run(
                    mod,
                    target,
                    logs=logs,
                    trials=trials,
                    minutes=minutes,
                    rpc=rpc,
                    rpc_key=rpc_key,
                    params=unbound,
                    rule_files=rule_files,
                    without=tuple(name for group in without for name in group),
                    collect=collect,
                    progress=progress,
                )
            except TuneInterrupted as interrupted:
                result, code = interrupted.result, interrupts.exit_code
    _deliver(result, html, json_path)
    if code is not None:
        click.echo(
            f"tvmpass: interrupted; {result.new} new candidates are kept in {result.path}: "
            "the same command goes on from there",
            err=True,
        )
    return code


def _deliver(result, html: str | None, json_path: str | None) -> None:
    """Write the page and the JSON, and print the outcome."""
    from .printable import printable_strings
    from .tuning.words import outcome_text

    document = result.to_json()
    if html:
        from tvmpass.core.files import write_text

        from .tuning.page import page

        write_text(html, page(document))
    if json_path:
        write_json(json_path, document)
    if json_path != "-":
        click.echo(outcome_text(printable_strings(document)))

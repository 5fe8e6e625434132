"""``tvmpass build``: a model file to a shared library and a report."""

from __future__ import annotations

import click

from .parameters import (
    all_rules,
    config_of,
    config_option,
    params_option,
    rules_option,
    shape_option,
    shapes_of,
    verbose_option,
    without_option,
)


@click.command()
@click.argument("model", type=click.Path())
@click.option("-o", "--output", required=True, type=click.Path(), help="The library to write (model.so).")
@click.option(
    "--target",
    default="llvm",
    show_default=True,
    help="What to compile for: llvm is this CPU, cuda:sm_80,sm_90 NVIDIA devices of these architectures.",
)
@shape_option
@params_option
@config_option
@click.option(
    "--opt-level",
    type=click.IntRange(0, 3),
    default=3,
    show_default=True,
    help="0 lowers only, 1 simplifies, 2 fuses and lays out, 3 recognises.",
)
@without_option
@rules_option
@click.option(
    "--verify",
    type=click.Choice(["structure", "off", "numeric"]),
    help="How far rewrites are checked: numeric runs each before and after.",
)
@click.option("--report", type=click.Path(), help="Write the report as JSON; - is stdout.")
@click.option("--timings", is_flag=True, help="Put wall-clock times into the report.")
@click.option("--dump-ir", type=click.Path(file_okay=False), help="Write the IR before and after each stage.")
@verbose_option
def build(
    model, output, target, shapes, params, settings, opt_level, without, rule_files, verify, report, timings,
    dump_ir, verbose,
) -> None:  # fmt: skip
    """Compile MODEL for a target into a shared library.

    \b
    Example:
      tvmpass build model.onnx -o model.so --shape x:1,3,224,224 --report model.json
      tvmpass build model.onnx -o model.so --shape x:1,3,224,224 --target cuda:sm_80,sm_90
      tvmpass build net.relay -o net.so --params net.params

    MODEL is an ONNX file, a Relay program (text or JSON) or a Relax module as JSON.
    A dimension given as a word stays open: --shape x:n,3,224,224 builds one
    library for every n.
    """
    from tvmpass.core.files import check_apart, check_writable

    from .models import load_model
    from .progress import stages
    from .quiet import tvm_silenced

    wanted = shapes_of(shapes)
    config = config_of(settings)
    if verify is not None:
        config["tvmpass.verify"] = verify
    check_apart(output, model, params, *rule_files)
    check_writable(output)
    if report and report != "-":
        check_apart(report, model, params, output, *rule_files)
        check_writable(report)
    with tvm_silenced(verbose), stages() as stage:
        stage("starting TVM")
        import tvmpass

        with tvmpass.PassContext(opt_level=opt_level, config=config):
            rules = all_rules(rule_files)
            stage(f"reading {model}")
            mod, unbound = load_model(model, wanted, params)
            library = tvmpass.build(
                mod,
                target=target,
                params=unbound,
                rules=rules,
                without=tuple(name for group in without for name in group),
                dump_ir=dump_ir,
                timings=timings,
                progress=stage,
            )
        stage(f"writing {output}")
        library.export(output)
        if report:
            _write_report(report, library.report)
        stage.done(_summary(library.report, output, report))


def _write_report(path: str, report) -> None:
    from tvmpass.core.files import write_text

    from .printable import printable_json

    if path == "-":
        click.echo(printable_json(report.dumps()), nl=False)
    else:
        write_text(path, report.dumps())


def _summary(report, output: str, report_path: str | None) -> str:
    from .tables import counted

    rows = report.rules.values()
    matched, applied = (sum(row[key] for row in rows) for key in ("matched", "applied"))
    kernels, sites = counted(len(report.kernels), "kernel"), counted(matched, "matched site")
    text = f"{output}: {kernels}{_on_devices(report)}; rules applied at {applied} of {sites}"
    text += _tuning(report)
    if report_path and report_path != "-":
        text += f"; tvmpass explain {report_path} tells more"
    return text


def _tuning(report) -> str:
    """Say what became of the tuning records that were found, where there were any."""
    found = report.records
    if not found["present"]:
        return ""
    from .tables import counted

    orphaned = found["orphaned"]
    orphans = f", {orphaned} for other devices, thread counts or versions" if orphaned else ""
    return f"; {found['used']} of {counted(found['present'], 'tuning record')} used{orphans}"


def _on_devices(report) -> str:
    """Say for a CUDA build how many kernels are fallbacks and how many spill registers."""
    compiled = [k for k in report.kernels if k.cuda]
    if not compiled:
        return ""
    fallbacks = sum(k.schedule.startswith("fallback") for k in compiled)
    spilling = sum(any(found["spill_bytes"] for found in k.cuda.values()) for k in compiled)
    return f" ({fallbacks} by the fallback, {spilling} with spills)"

"""``tvmpass convert``: a model file to a Relax module as JSON."""

from __future__ import annotations

import click

from .parameters import params_option, shape_option, shapes_of, verbose_option


@click.command()
@click.argument("model", type=click.Path())
@click.option("-o", "--output", required=True, type=click.Path(), help="The file to write (net.json).")
@params_option
@shape_option
@verbose_option
def convert(model, output, params, shapes, verbose) -> None:
    """Write MODEL as a Relax module, in the JSON of this TVM.

    \b
    Example:
      tvmpass convert net.relay -o net.json --params net.params
      tvmpass build net.json -o net.so

    No rule is applied: the module is what the rules get to see. Python reads it
    with tvmpass.load("net.json"), or with tvm.ir.load_json(text).
    """
    from tvmpass.core.files import check_apart, check_writable

    from .models import load_model
    from .progress import stages
    from .quiet import tvm_silenced
    from .tables import counted

    wanted = shapes_of(shapes)
    check_apart(output, model, params)
    check_writable(output)
    with tvm_silenced(verbose), stages() as stage:
        stage("starting TVM")
        import tvm

        from tvmpass.compile.build import bind_parameters
        from tvmpass.core.files import write_text

        stage(f"reading {model}")
        mod = bind_parameters(*load_model(model, wanted, params))
        stage(f"writing {output}")
        write_text(output, tvm.ir.save_json(mod))
        inputs = [param.name for param in mod["main"].params]
        calls = counted(_calls(mod), "operator call")
        shown = f" ({', '.join(inputs)})" if 0 < len(inputs) <= 8 else ""
        stage.done(f"{output}: {calls}, {counted(len(inputs), 'input')}{shown}")


def _calls(mod) -> int:
    """Return how many calls of operators the module's functions hold."""
    import tvm
    from tvm import relax

    found = 0

    def visit(expr) -> None:
        nonlocal found
        if isinstance(expr, relax.Call) and isinstance(expr.op, tvm.ir.Op):
            found += 1

    for function in mod.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, visit)
    return found

"""The ``tvmpass`` command group."""

from __future__ import annotations

import click

from tvmpass.version import VERSION

from .build import build
from .convert import convert
from .explain import explain
from .logs import logs
from .passes import passes
from .run import run
from .train import train
from .tune import tune


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(VERSION, prog_name="tvmpass", message="%(prog)s %(version)s")
def tvmpass() -> None:
    """Compile models with rules that are judged before they are applied and explained afterwards.

    \b
    Example:
      tvmpass build model.onnx -o model.so --report model.json
      tvmpass run model.so --time
      tvmpass explain model.json
    """
    from tvmpass.settings import unknown_variables

    for line in unknown_variables():
        click.echo(f"tvmpass: warning: {line}", err=True)


for command in (build, run, passes, explain, tune, train, logs, convert):
    tvmpass.add_command(command)

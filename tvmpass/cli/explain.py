"""``tvmpass explain``: what a build did, and why not something else."""

from __future__ import annotations

import click

from .parameters import json_option, write_json
from .printable import printable_strings


@click.command()
@click.argument("report", type=click.Path())
@click.option("--rule", help="Only the decisions of this rule.")
@click.option(
    "--at", "where", metavar="FN:VALUE|NODE", help="Only what concerns a site, a kernel or a source node."
)
@click.option("--diff", "old", type=click.Path(), help="Compare with an older report.")
@click.option("--html", type=click.Path(), help="Write a page that needs no network.")
@json_option
@click.option("-v", "--verbose", is_flag=True, help="Every decision and kernel; tracebacks of errors.")
def explain(report, rule, where, old, html, json_path, verbose) -> None:
    """Say in words what a build did, from its REPORT or the artifact itself.

    \b
    Example:
      tvmpass explain model.json --rule grow-epilogue
      tvmpass explain model.json --html model.html
    """
    from .explaining.compare import compare, compare_text
    from .explaining.page import page
    from .explaining.reading import read_report, select
    from .explaining.words import report_text

    document = select(read_report(report), rule=rule, where=where)
    change = None
    if old:
        change = compare(select(read_report(old), rule=rule, where=where, missing_ok=True), document)
    if html:
        from tvmpass.core.files import write_text

        write_text(html, page(document))
    if json_path:
        write_json(json_path, _without_rest(document) if change is None else change)
    if json_path == "-":
        return
    if change is not None:
        click.echo(compare_text(printable_strings(change)))
    else:
        full = verbose or rule is not None or where is not None
        click.echo(report_text(printable_strings(document), full=full))


def _without_rest(document: dict) -> dict:
    """Drop what a selection keeps only to name the winners of lost sites."""
    from .explaining.reading import EVERY

    return {key: value for key, value in document.items() if key != EVERY}

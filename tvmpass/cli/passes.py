"""``tvmpass passes``: every rule, and what one of them says about itself."""

from __future__ import annotations

import dataclasses
import inspect

import click

from .parameters import all_rules, json_option, rules_option, verbose_option, write_json


@click.command()
@click.option("--rule", "wanted", help="Tell all about one rule: its text, options and refusal codes.")
@rules_option
@json_option
@verbose_option
def passes(wanted, rule_files, json_path, verbose) -> None:
    """List every rule: its name, kind, level and what it does.

    \b
    Example:
      tvmpass passes --rule grow-epilogue
    """
    from .quiet import tvm_silenced

    with tvm_silenced(verbose):
        entries = [_describe(rule) for rule in all_rules(rule_files)]
        if wanted is not None:
            entries = [_find(entries, wanted)]
        if json_path:
            write_json(json_path, {"schema": 1, "rules": entries})
        if json_path == "-":
            return
        if wanted is not None:
            _print_one(entries[0])
        else:
            _print_all(entries)


def _describe(rule) -> dict:
    return {
        "name": rule.name,
        "class": type(rule).__name__,
        "kind": _kind(rule),
        "level": rule.level,
        "summary": rule.summary(),
        "text": inspect.getdoc(type(rule)) or "",
        "module": type(rule).__module__,
        "options": {field.name: getattr(rule, field.name) for field in dataclasses.fields(rule)},
        "refusals": [{"code": kind.code, "message": kind.message} for kind in rule.refusals],
    }


def _kind(rule) -> str:
    from tvmpass.core.rule import ProposalRule, ScheduleRule

    if isinstance(rule, ScheduleRule):
        return "schedule"
    return "proposal" if isinstance(rule, ProposalRule) else "simplify"


def _find(entries: list[dict], wanted: str) -> dict:
    from tvmpass.core.errors import UsageError, nearest

    for entry in entries:
        if wanted in (entry["name"], entry["class"]):
            return entry
    known = [entry["name"] for entry in entries] + [entry["class"] for entry in entries]
    raise UsageError(f"unknown rule {wanted!r}{nearest(wanted, known)}")


def _print_all(entries: list[dict]) -> None:
    from .tables import table_text

    rows = [(e["name"], e["kind"], e["level"], e["summary"]) for e in entries]
    click.echo(table_text(("rule", "kind", "level", "what it does"), rows, numbers={2}))


def _print_one(entry: dict) -> None:
    click.echo(f"{entry['name']} ({entry['class']}): {entry['kind']} rule, opt_level {entry['level']}")
    click.echo(f"\n{entry['text']}\n")
    if entry["options"]:
        click.echo("options: " + ", ".join(f"{key}={value}" for key, value in entry["options"].items()))
    if not entry["refusals"]:
        click.echo("refuses nothing that it matches")
        return
    click.echo("refuses with:")
    for refusal in entry["refusals"]:
        click.echo(f"  {refusal['code']}: {refusal['message']}")

"""Find what of a program has no Relax form, before any work is done."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tvmpass.core.errors import nearest

from .ast import Expression, Function, Global, Module, Operator, Place, Unsupported
from .errors import located
from .scopes import Scopes
from .table import schema

_SHOWN_LINES = 8


def refuse_unsupported(
    module: Module, scopes: Mapping[str, Scopes], missing: Collection[str], known: Collection[str]
) -> None:
    """Raise one error for all that is reachable from ``@main`` and cannot be converted.

    ``missing`` are global functions that are called and do not exist, ``known``
    the operators that have a converter.
    """
    found: dict[str, list[Place]] = {}

    def note(what: str, place: Place) -> None:
        found.setdefault(what, []).append(place)

    for one in scopes.values():
        functions = [one.function, *(node for node in one.owner if isinstance(node, Function))]
        for function in functions:
            if function.type_params:
                note(f"a polymorphic function (of {', '.join(function.type_params)})", function.place)
        for node in one.owner:
            for operand in (node, *node.children()):
                _check(operand, node, missing, known, module, note)
    if not found:
        return
    places = [place for each in found.values() for place in each if place.line]
    first = min(places, key=lambda place: (place.line, place.column), default=Place())
    lines = [what + _lines(found[what]) for what in found]
    if len(lines) == 1:
        message = f"{lines[0]} cannot be converted"
    else:
        message = f"{len(lines)} things cannot be converted: " + "; ".join(lines)
    raise located(module.where, module.source, first.line, first.column, message)


def _check(operand: Expression, user: Expression, missing, known, module: Module, note) -> None:
    """Note an operator, a global function or a construct that has no Relax form."""
    place = operand.place if operand.place.line else user.place
    if isinstance(operand, Unsupported):
        note(operand.what, place)
    elif isinstance(operand, Operator) and operand.name not in known:
        if operand.name in schema()["operators"]:
            note(f"operator {operand.name}", place)
        else:
            close = nearest(operand.name, schema()["operators"])
            note(f"{operand.name} (no operator of Relay{close})", place)
    elif isinstance(operand, Global) and operand.name in missing:
        note(f"@{operand.name} (not defined{nearest(operand.name, module.functions)})", place)


def _lines(places: list[Place]) -> str:
    lines = sorted({place.line for place in places if place.line})
    if not lines:
        return ""
    shown = ", ".join(str(line) for line in lines[:_SHOWN_LINES])
    more = f" and {len(lines) - _SHOWN_LINES} more" if len(lines) > _SHOWN_LINES else ""
    return f" in {'line' if len(lines) == 1 else 'lines'} {shown}{more}"

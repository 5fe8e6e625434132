"""The forms of Relay text, read off it mechanically: which token may follow which.

A token is reduced to its kind (a name, a number with its ending, a string, an
operator, a dtype, a keyword or punctuation); a form is two kinds in a row.  Where
an expression or a type may stand, any that is known may: such a form is known
where both its kinds are, and the place is.  The metadata section is reduced to
its nodes' type keys with the names of their fields.
"""

from __future__ import annotations

import itertools
import json
import re

_DTYPE = r"(?:u?int(?:8|16|32|64)|b?float(?:16|32|64)|bool)"

_TOKENS = re.compile(
    rf"""
    (?P<header>\#\[version\ =\ "0\.0\.5"\])
  | (?P<comment>/\*\ ty=) | (?P<end>\*/)
  | (?P<meta>meta\[(?P<key>[\w.]+)\]\[\d+\])
  | (?P<numbered>%\d+(?:\.\d+)?) | (?P<named>%[A-Za-z_]\w*(?:\.\d+)?) | (?P<global>@\w+)
  | (?P<keyword>\b(?:def|fn|let|if|else|Tensor|True|False|None)\b)
  | (?P<dtype>\b{_DTYPE}\b)
  | (?P<field>\b[A-Za-z_]\w*=)
  | (?P<operator>\b[A-Za-z_][\w.]*(?=\())
  | (?P<number>-?(?:inf|\d+(?:\.\d+)?(?:e[+-]?\d+)?)(?P<ending>f16|f64|f|i16|i64)?(?![\w.]))
  | (?P<string>"[^"]*")
  | (?P<arrow>->) | (?P<punctuation>[(){{}}\[\],:;=?]) | (?P<line>\n[ ]*)
""",
    re.VERBOSE,
)

# With what an expression or a type begins, and with what it ends.
BEGINS = frozenset({"numbered", "numbered.item", "named", "named.item", "global", "operator", "if", "fn"})
BEGINS |= {"meta[relay.Constant]", "meta[runtime.BoxInt]", "True", "False", "None", "string", "("}
BEGINS |= {"Tensor", "dtype"}
ENDS = frozenset({"numbered", "numbered.item", "named", "named.item", "global", "operator", "}", ")", "]"})
ENDS |= {"meta[relay.Constant]", "meta[runtime.BoxInt]", "True", "False", "None", "string", "end", "dtype"}
SLOT = "*"

Form = tuple[str, ...]


def kinds(text: str) -> list[str]:
    """Return the kinds of a program's tokens; raises `ValueError` at what is none."""
    found, at = [], 0
    body = text.split("#[metadata]")[0]
    while at < len(body):
        match = _TOKENS.match(body, at)
        if match is None:
            if body[at] == " ":
                at += 1
                continue
            raise ValueError(f"no token at {body[at : at + 40]!r}")
        found.append(_kind(match))
        at = match.end()
    return found


def _kind(match: re.Match[str]) -> str:
    kind, text = str(match.lastgroup), match.group()
    if match["meta"]:
        key = match["key"]
        return "meta[relay.attrs]" if key.startswith("relay.attrs.") else f"meta[{key}]"
    if match["number"]:
        return "number" + (match["ending"] or "")
    if match["numbered"] or match["named"]:
        return kind + (".item" if "." in text else "")
    if match["keyword"] or match["punctuation"]:
        return text
    return "line" if match["line"] else kind


def unknown(found: set[Form], golden: set[Form]) -> tuple[set[Form], set[Form]]:
    """Return the forms that are not golden as they stand, and those of them that are in no way."""
    places = {place for form in golden for place in _places(form)}
    words = {word for form in golden for word in form}
    new = found - golden
    return new, {form for form in new if not (set(form) <= words and _places(form) & places)}


def _places(form: Form) -> set[Form]:
    """Return a form of two kinds with either as a place for any expression or type."""
    if form[0] == "node":
        return set()
    before, after = form
    found: set[Form] = set()
    if after in BEGINS or after.startswith("number"):
        found.add((before, SLOT))
    if before in ENDS or before.startswith("number"):
        found.add((SLOT, after))
    return found


def forms(text: str) -> set[Form]:
    """Return every form that occurs in a program."""
    found = kinds(text)
    pairs: set[Form] = set(itertools.pairwise(found))
    _, _, metadata = text.partition("#[metadata]")
    if metadata:
        for node in json.loads(metadata)["nodes"]:
            key = re.sub(r"^relay\.attrs\.\w+", "relay.attrs", node["type_key"])
            fields = () if key == "relay.attrs" else tuple(sorted(node.get("attrs", {})))
            pairs.add(("node", key, *sorted(set(node) - {"type_key"}), *fields))
    return pairs

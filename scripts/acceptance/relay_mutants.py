"""Changes of a Relay text: characters, tokens, lines, numbers, stored tensors."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

_TOKEN = re.compile(r'"[^"]*"|/\*|\*/|//|[%@]?[\w.]+|->|=>|\s+|.', re.DOTALL)
_NUMBER = re.compile(r"(?<![\w%.])\d+(?:\.\d+)?(?:e[-+]\d+)?(?:[fi]\d*)?")
_NAME = re.compile(r"%[\w]+")
_OPERATOR = re.compile(r"[a-z_]\w*(?:\.\w+)*(?=\()")
_DTYPE = re.compile(r"\b(?:u?int|float)\d+\b|\bbool\b")

_CHARACTERS = "(){}[],;:=.%@#\"'/*-+<>?!$\\\n\t \0_aZ09féλ"
_NUMBERS = (
    "0",
    "1",
    "2",
    "7",
    "-1",
    "-3",
    "64",
    "1i64",
    "1.5",
    "0f",
    "-0f",
    "1e9f",
    "inff",
    "nanf",
    "2147483648",
)
_VAST = (
    "4294967296",
    "99999999999",
    "9223372036854775807",
    "123456789012345678901234567890",
    "1e400f64",
    "65536",
)
# Not unsigned: what a negative number becomes there, Relay leaves open.
_DTYPES = ("float32", "float16", "float64", "int8", "int32", "int64", "bool", "bfloat16", "handle")
_PIECES = (
    "/*",
    "*/",
    "//",
    "/* /* */",
    "meta[relay.Constant][0]",
    "meta[relay.Constant][99999]",
    "meta[][0]",
    "#[metadata]",
    "let %x = 1; ",
    "%0 = 1f; ",
    "if (True) {",
    "} else {",
    "fn (%q) { %q }",
    "-> float32",
    "Tensor[(",
    "def @main() {",
    "match (%x) {",
    "ref(",
    ", axis=1",
    ", axis=[[[",
    "@main(",
    ".0",
    ".1",
    "(",
    ")",
    "((((((((",
    "{{{{{{{{",
    "[[[[[[[[",
    "--------",
    "True",
    "None",
    "_",
)

Change = Callable[[random.Random, str, Sequence[str]], str]


def _span(dice: random.Random, text: str, longest: int) -> tuple[int, int]:
    begin = dice.randrange(len(text) + 1)
    return begin, min(len(text), begin + dice.randint(1, longest))


def _drop(dice: random.Random, text: str, others: Sequence[str]) -> str:
    begin, end = _span(dice, text, 4)
    return text[:begin] + text[end:]


def _insert(dice: random.Random, text: str, others: Sequence[str]) -> str:
    at = dice.randrange(len(text) + 1)
    return text[:at] + dice.choice(_CHARACTERS) + text[at:]


def _replace(dice: random.Random, text: str, others: Sequence[str]) -> str:
    begin, end = _span(dice, text, 1)
    return text[:begin] + dice.choice(_CHARACTERS) + text[end:]


def _insert_piece(dice: random.Random, text: str, others: Sequence[str]) -> str:
    tokens = _TOKEN.findall(text)
    tokens.insert(dice.randrange(len(tokens) + 1), dice.choice(_PIECES))
    return "".join(tokens)


def _drop_token(dice: random.Random, text: str, others: Sequence[str]) -> str:
    tokens = _TOKEN.findall(text)
    del tokens[dice.randrange(len(tokens))]
    return "".join(tokens)


def _double_token(dice: random.Random, text: str, others: Sequence[str]) -> str:
    tokens = _TOKEN.findall(text)
    at = dice.randrange(len(tokens))
    return "".join(tokens[:at] + [tokens[at]] + tokens[at:])


def _swap_tokens(dice: random.Random, text: str, others: Sequence[str]) -> str:
    tokens = _TOKEN.findall(text)
    one, other = dice.randrange(len(tokens)), dice.randrange(len(tokens))
    tokens[one], tokens[other] = tokens[other], tokens[one]
    return "".join(tokens)


def _repeat_piece(dice: random.Random, text: str, others: Sequence[str]) -> str:
    begin, end = _span(dice, text, 12)
    return text[:begin] + text[begin:end] * dice.choice((2, 50, 3000)) + text[end:]


def _lines(dice: random.Random, text: str, others: Sequence[str]) -> str:
    lines = text.split("\n")
    at, other = dice.randrange(len(lines)), dice.randrange(len(lines))
    kind = dice.randrange(3)
    if kind == 0:
        del lines[at]
    elif kind == 1:
        lines.insert(other, lines[at])
    else:
        lines[at], lines[other] = lines[other], lines[at]
    return "\n".join(lines)


def _truncate(dice: random.Random, text: str, others: Sequence[str]) -> str:
    at = dice.randrange(len(text))
    return text[:at] if dice.randrange(2) else text[at:]


def _splice(dice: random.Random, text: str, others: Sequence[str]) -> str:
    other = dice.choice(others)
    begin, end = _span(dice, other, 200)
    at, after = _span(dice, text, 200)
    return text[:at] + other[begin:end] + text[after:]


def _exchange(pattern: re.Pattern, choices: Sequence[str] | None) -> Change:
    """Return a change of one match to a choice, or to another match of the text."""

    def change(dice: random.Random, text: str, others: Sequence[str]) -> str:
        found = list(pattern.finditer(text))
        if not found:
            return _replace(dice, text, others)
        match = dice.choice(found)
        new = dice.choice(choices) if choices else dice.choice(found).group()
        return text[: match.start()] + new + text[match.end() :]

    return change


def _borrow_operator(dice: random.Random, text: str, others: Sequence[str]) -> str:
    found = _OPERATOR.findall(dice.choice(others)) or ["exp"]
    return _exchange(_OPERATOR, found)(dice, text, others)


def _digit(dice: random.Random, text: str, others: Sequence[str]) -> str:
    return _exchange(re.compile(r"\d"), "0123456789")(dice, text, others)


def _metadata(dice: random.Random, text: str, others: Sequence[str]) -> str:
    """Change a character of the metadata section, or a number in it."""
    begin = text.find("#[metadata]")
    if begin < 0:
        return _digit(dice, text, others)
    head, tail = text[:begin], text[begin:]
    return head + dice.choice((_digit, _drop, _replace, _truncate, _exchange(re.compile(r"\d+"), _VAST)))(
        dice, tail, others
    )


CHANGES: dict[str, Change] = {
    "drop characters": _drop,
    "insert a character": _insert,
    "replace a character": _replace,
    "insert a piece": _insert_piece,
    "drop a token": _drop_token,
    "double a token": _double_token,
    "swap tokens": _swap_tokens,
    "repeat a piece": _repeat_piece,
    "change lines": _lines,
    "truncate": _truncate,
    "splice": _splice,
    "number": _exchange(_NUMBER, _NUMBERS),
    "vast number": _exchange(_NUMBER, _VAST),
    "digit": _digit,
    "name": _exchange(_NAME, None),
    "operator of the text": _exchange(_OPERATOR, None),
    "operator of another": _borrow_operator,
    "dtype": _exchange(_DTYPE, _DTYPES),
    "metadata": _metadata,
}


def mutant(seed: int, text: str, others: Sequence[str]) -> tuple[str, str]:
    """Return the kind of change and the changed text; one in four is changed twice."""
    dice = random.Random(seed)
    kinds = dice.choices(list(CHANGES), k=2 if dice.randrange(4) == 0 else 1)
    for kind in kinds:
        if text:
            text = CHANGES[kind](dice, text, others)
    return " + ".join(kinds), text

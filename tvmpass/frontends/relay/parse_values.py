"""Numbers, attribute values and references to metadata in Relay text."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from . import ast
from .errors import RelayError
from .lexer import END, META, NUMBER, STRING, WORD
from .nodes import AttrsNode, NodeGraph
from .parse_stream import Stream, cut

_NUMBER = re.compile(r"([0-9]+)(\.[0-9]*)?([eE][+-]?[0-9]+)?(?:([fi])([0-9]*))?")
_SPECIAL = re.compile(r"(inf|nan)f([0-9]*)")
_META = re.compile(r"meta\[\s*([^\]]*?)\s*\]\[\s*([0-9]{1,9})\s*\]")

_INTEGERS: dict[str, np.dtype] = {"16": np.dtype("int16"), "32": np.dtype("int32"), "64": np.dtype("int64")}
_FLOATS: dict[str, np.dtype] = {
    "16": np.dtype("float16"),
    "32": np.dtype("float32"),
    "64": np.dtype("float64"),
}

_DEVICE = "virtual_device"

_WORDS = {"True": True, "False": False, "None": None, "nullptr": None}

_CASTS = frozenset(f"{kind}{bits}" for kind in ("int", "uint", "float") for bits in (8, 16, 32, 64)) - {
    "float8"
}


class Metadata:
    """The metadata section; decoded where something refers to it."""

    def __init__(self, stream: Stream):
        self._stream = stream
        self._decoded: dict[str, list] | None = None

    def take(self) -> Any:
        """Parse ``meta[KEY][N]`` and return what stands there."""
        stream = self._stream
        at, text = stream.at, stream.text
        found = _META.fullmatch(text)
        if found is None:
            raise stream.error(f"{cut(text)} is no reference: meta[TYPE][NUMBER] is")
        if stream.tokens.metadata is None:
            raise stream.error(
                f"{cut(text)} has no metadata section; print the program with mod.astext(show_meta_data=True)"
            )
        if self._decoded is None:
            where = f"{stream.tokens.where}: metadata section"
            self._decoded = NodeGraph(stream.tokens.metadata, where).metadata()
        items = self._decoded.get(found.group(1), [])
        number = int(found.group(2))
        if number >= len(items):
            held = f"{len(items)} of this type" if items else "none of this type"
            raise stream.error(f"{cut(text)} is not in the metadata section, which holds {held}")
        stream.step()
        value = items[number]
        if isinstance(value, ast.Constant) and value.place is ast.NOWHERE:
            value.place = stream.place(at)
        return value


def is_number(stream: Stream) -> bool:
    """Say whether the current token is a number, without its sign."""
    return stream.kind == NUMBER or (stream.kind == WORD and _SPECIAL.fullmatch(stream.text) is not None)


def constant(stream: Stream, negative: bool = False) -> np.ndarray:
    """Parse a number and return it as a scalar of its dtype.

    ``3`` is int32, or int64 where it does not fit; ``3i64``, ``2f`` (float32)
    and ``2f16`` say their dtype.
    """
    value, dtype = _parse(stream, negative)
    if dtype is None:
        raise stream.error(f"the number {stream.text} does not say its dtype: {stream.text}f is float32")
    made = _scalar(stream, value, dtype)
    stream.step()
    return made


def plain_number(stream: Stream, negative: bool = False) -> int | float:
    """Parse a number and return it as a plain one; it may lack a dtype.

    Relay prints every float attribute like a float32, doubles too: only
    integers are held to the dtype they say.
    """
    value, dtype = _parse(stream, negative)
    if isinstance(value, int) and dtype is not None:
        _scalar(stream, value, dtype)
    elif math.isinf(value) and stream.kind == NUMBER:
        raise _too_large(stream, _FLOATS["64"])
    stream.step()
    return value


def sign(stream: Stream) -> bool:
    """Step over minus signs; say whether their number is odd."""
    negative = False
    while stream.text == "-":
        stream.step()
        negative = not negative
    return negative


def is_cast(stream: Stream) -> bool:
    """Say whether ``int64(3)`` stands here: how TVM up to 0.7 prints some scalars."""
    return stream.text in _CASTS and stream.ahead() == "("


def cast(stream: Stream) -> np.ndarray:
    """Parse ``DTYPE(NUMBER)`` and return the scalar."""
    dtype = np.dtype(stream.step())
    stream.expect("(")
    negative = sign(stream)
    if not is_number(stream):
        raise stream.expected("a number")
    value, _ = _parse(stream, negative)
    made = _scalar(stream, value, dtype)
    stream.step()
    stream.expect(")")
    return made


def attributes(stream: Stream, metadata: Metadata, into: dict[str, Any]) -> None:
    """Parse one ``key=value`` into a dict."""
    at, key = stream.at, stream.expect_kind(WORD, "an attribute, name=value")
    if key in into:
        raise stream.error(f"attribute {key} is given twice", at)
    stream.expect("=")
    if key.endswith(_DEVICE) and stream.kind == META:
        # Where Relay placed a value: tvmpass decides that itself, so the metadata may be missing.
        stream.step()
        into[key] = AttrsNode("VirtualDevice")
    else:
        into[key] = attribute_value(stream, metadata)


def attribute_value(stream: Stream, metadata: Metadata) -> Any:
    """Parse the value of an attribute: plain, or what metadata holds."""
    if stream.text == "-" or is_number(stream):
        negative = sign(stream)
        if not is_number(stream):
            raise stream.expected("a number")
        return plain_number(stream, negative)
    if stream.kind == STRING:
        return stream.step()[1:-1]
    if stream.kind == WORD and stream.text in _WORDS:
        return _WORDS[stream.step()]
    if stream.kind == META:
        return metadata.take()
    if stream.text in ("[", "("):
        return _list(stream, metadata)
    raise stream.expected("the value of an attribute", tuple(_WORDS))


def _list(stream: Stream, metadata: Metadata) -> Any:
    begin = stream.text
    stream.enter()
    at = stream.at
    found = stream.sequence(begin, "]" if begin == "[" else ")", lambda: attribute_value(stream, metadata))
    stream.leave()
    # Parentheses group a single value: (3) is 3, and (3,) a list.
    single = begin == "(" and len(found) == 1 and stream.tokens.texts[stream.at - 2] != ","
    if begin == "(" and not found:
        raise stream.error("expected the value of an attribute, found ()", at)
    return found[0] if single else found


def _parse(stream: Stream, negative: bool) -> tuple[int | float, np.dtype | None]:
    """Return value and dtype of the current token, a number; None if it says none."""
    text = stream.text
    special = _SPECIAL.fullmatch(text) if stream.kind == WORD else None
    if special is not None:
        value = float(special.group(1))
        return -value if negative else value, _dtype(stream, _FLOATS, special.group(2))
    found = _NUMBER.fullmatch(text) if stream.kind != END else None
    if found is None:
        raise stream.error(f"{cut(text)} is not a number")
    whole, fraction, exponent, kind, bits = found.groups()
    if kind == "f" or (kind is None and (fraction or exponent)):
        number = float(whole + (fraction or "") + (exponent or ""))
        return -number if negative else number, _dtype(stream, _FLOATS, bits) if kind else None
    if fraction or exponent:
        raise stream.error(f"{cut(text)} is not an integer; a number with a fraction ends in f, f16 or f64")
    digits = whole.lstrip("0") or "0"
    if len(digits) > 19:
        raise _too_large(stream, _INTEGERS["64"])
    integer = -int(digits) if negative else int(digits)
    if kind is None:
        return integer, _INTEGERS["32" if -(2**31) <= integer < 2**31 else "64"]
    return integer, _dtype(stream, _INTEGERS, bits)


def _dtype(stream: Stream, known: dict[str, np.dtype], bits: str) -> np.dtype:
    if (bits or "32") not in known:
        raise stream.error(f"{cut(stream.text)} is no number: its width is one of {', '.join(known)}")
    return known[bits or "32"]


def _scalar(stream: Stream, value: int | float, dtype: np.dtype) -> np.ndarray:
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if not isinstance(value, int) or not limits.min <= value <= limits.max:
            raise _too_large(stream, dtype)
        return np.array(value, dtype)
    finite = math.isfinite(value)
    if (not finite and stream.kind == NUMBER) or (finite and abs(value) > float(np.finfo(dtype).max)):
        raise _too_large(stream, dtype)
    # Relay rounds to float32 first: float16 is made from that.
    return np.array(value, "float64" if dtype.itemsize == 8 else "float32").astype(dtype)


def _too_large(stream: Stream, dtype: np.dtype) -> RelayError:
    return stream.error(f"the number {cut(stream.text)} does not fit {dtype}")

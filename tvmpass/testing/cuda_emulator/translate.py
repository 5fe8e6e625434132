"""Emitted CUDA source made palatable for a host compiler, line by line the same.

Most of CUDA's spelling is taken by the headers in ``shim``.  Two things no header
can give a meaning to are rewritten here: shared variables, which belong to a
block of threads, and inline PTX.
"""

from __future__ import annotations

import re

from .errors import Unmodelled

_DYNAMIC = re.compile(r"extern\s+__shared__\s+(?:__align__\(\d+\)\s*)?(\w[\w ]*?)\s+(\w+)\[\];")
_STATIC = re.compile(
    r"__shared__\s+(?:(?:alignas|__align__)\((\d+)\)\s*)?(\w[\w: ]*?)\s+(\w+)\s*((?:\[[^\]]*\])*)\s*;"
)
_ASM = re.compile(r"\b(?:asm|__asm__)\s+(?:volatile|__volatile__)?\s*\(")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_KERNEL = re.compile(r'extern\s+"C"\s+__global__\s+void\s+(?:__\w+__\([^)]*\)\s*)*(\w+)\s*\(')


def translate(source: str) -> str:
    """Return C++ for the shim's headers; raises `Unmodelled` for PTX that is not known."""
    slots = iter(range(1 << 20))

    def static(match: re.Match) -> str:
        alignment, kind, name, extents = match.groups()
        made = f"emu::static_shared<emu_array_{name}>({next(slots)}, {alignment or 1})"
        return f"typedef {kind} emu_array_{name}{extents}; emu_array_{name}& {name} = {made};"

    source = _DYNAMIC.sub(r"\1* \2 = static_cast<\1*>(emu_dynamic_shared());", source)
    source = _STATIC.sub(static, source)
    return _without_asm(source)


def kernel_names(source: str) -> list[str]:
    """Return the names of the ``__global__`` functions, each once."""
    return list(dict.fromkeys(_KERNEL.findall(source)))


def shared_granule(source: str) -> int:
    """Return how many bytes of shared memory share a shadow cell: the smallest type named."""
    body = source[_KERNEL.search(source).start() :] if _KERNEL.search(source) else source
    body = re.sub(r"\buchar (\w+)\[\];", "", body)
    if re.search(r"\b(?:char|uchar|bool|u?int8_t|u?char[234])\b", body):
        return 1
    small = r"\b(?:u?short|half|half2|half4|nv_bfloat16\w*|u?int16_t|u?short[234])\b"
    return 2 if re.search(small, body) else 4


def _without_asm(source: str) -> str:
    parts, at = [], 0
    while (match := _ASM.search(source, at)) is not None:
        end = _closing(source, match.end())
        text = source[match.end() : end]
        made = _statements(text, source.count("\n", 0, match.start()) + 1)
        # The line count stays: messages name lines of the emitted source.
        parts += [source[at : match.start()], made, "\n" * source.count("\n", match.start(), end)]
        at = end + 1
    return "".join([*parts, source[at:]])


def _closing(source: str, start: int) -> int:
    """Return the position of the parenthesis that closes the one before ``start``."""
    depth, at = 1, start
    while depth:
        if source[at] == '"':
            at = _STRING.match(source, at).end()
            continue
        depth += {"(": 1, ")": -1}.get(source[at], 0)
        at += 1
    return at - 1


def _sections(text: str) -> list[str]:
    """Split an asm statement at its colons: template, outputs, inputs, clobbers."""
    parts, depth, at, begin = [], 0, 0, 0
    while at < len(text):
        if text[at] == '"':
            at = _STRING.match(text, at).end()
            continue
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        if text[at] == ":" and not depth:
            parts.append(text[begin:at])
            begin = at + 1
        at += 1
    return [*parts, text[begin:]]


def _operands(section: str) -> list[str]:
    """Return the expressions of a list of operands, ``"constraint"(expression)`` each."""
    found, at = [], 0
    while (match := _STRING.search(section, at)) is not None:
        opening = section.index("(", match.end())
        end = _closing(section, opening + 1)
        found.append(section[opening : end + 1])
        at = end + 1
    return found


def _statements(text: str, line: int) -> str:
    """Return C++ statements for one asm statement."""
    sections = _sections(text)
    template = "".join(match.group()[1:-1] for match in _STRING.finditer(sections[0]))
    template = template.replace("\\n", "\n").replace("\\t", " ").replace("%%", "%")
    operands = [o for section in sections[1:3] for o in _operands(section)]
    if template.startswith("{"):  # a block of instructions, the last without a semicolon before the brace
        template = template.removeprefix("{").strip().removesuffix("}")
    made = []
    for instruction in re.split(r"[;\n]", template):
        instruction = instruction.strip()
        if instruction:
            made.append(_instruction(instruction, operands, line))
    return "{ " + " ".join(made) + " }"


def _instruction(text: str, operands: list[str], line: int) -> str:
    if text.startswith("@"):
        predicate, _, rest = text[1:].partition(" ")
        return f"if ({predicate}) {{ {_instruction(rest.strip(), operands, line)} }}"
    name, _, rest = text.partition(" ")
    for pattern, make in _INSTRUCTIONS:
        if re.fullmatch(pattern, name):
            args = [_operand(a, operands) for a in re.findall(r"[^\s,\[\]{}]+", rest)]
            return make(*args) + ";"
    raise Unmodelled(f"the emulator does not model the PTX instruction {name!r} (line {line})", line)


def _operand(text: str, operands: list[str]) -> str:
    return operands[int(text[1:])] if text.startswith("%") else text


def _copy(destination: str, source: str, size: str, given: str | None = None) -> str:
    return f"emu_cp_async({destination}, (const void*){source}, {size}, {given or size})"


_INSTRUCTIONS = (
    (r"\.reg", lambda kind, name: f"bool {name} = false"),
    (r"setp\.eq\.\w+", lambda p, a, b: f"{p} = {a} == {b}"),
    (r"setp\.ne\.\w+", lambda p, a, b: f"{p} = {a} != {b}"),
    (r"cp\.async\.c[ag]\.shared(?:::cta)?\.global(?:\.L2::\w+)*", _copy),
    (r"cp\.async\.commit_group", lambda: "emu_cp_async_commit()"),
    (r"cp\.async\.wait_group", lambda pending: f"emu_cp_async_wait({pending})"),
    (r"cp\.async\.wait_all", lambda: "emu_cp_async_commit(), emu_cp_async_wait(0)"),
    (r"st\.shared(?:\.v[24])?\.u32", lambda at, *v: f"emu::store_shared<unsigned>({at}, {', '.join(v)})"),
    (r"mov\.b32", lambda to, value: f"{to} = {value}"),
    (r"ld\.global\.nc\.f32", lambda to, at: f"{to} = *(const float*){at}"),
    (r"dp4a\.[us]32\.[us]32", lambda to, a, b, c: f"{to} = emu::dot4({a}, {b}, {c})"),
)

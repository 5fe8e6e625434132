"""Nothing that a file says reaches the terminal as a control sequence."""

from __future__ import annotations

import json

from tvmpass.cli.printable import printable, printable_json, printable_strings

EVIL = "a\x1b[31m\x9b2J\u202eb\nc"


def test_what_does_not_print_becomes_an_escape():
    assert printable(EVIL) == r"a\x1b[31m\x9b2J\u202eb\nc"
    assert printable("größer … 中") == "größer … 中"
    assert printable_strings({EVIL: [EVIL, 1, None]}) == {printable(EVIL): [printable(EVIL), 1, None]}


def test_json_stays_the_same_document():
    text = printable_json(json.dumps([EVIL], ensure_ascii=False))
    assert json.loads(text) == [EVIL]
    assert not any(ord(c) < 32 or 0x7F <= ord(c) < 0xA0 for c in text)


def test_a_report_with_control_sequences(tvmpass, report, tmp_path):
    report["model"] = report["kernels"][0]["name"] = report["decisions"][0]["origin"][0] = EVIL
    (tmp_path / "r.json").write_text(json.dumps(report))
    for arguments in ((), ("-v",), ("--json", "-"), ("--at", "\x1b[31m")):
        done = tvmpass("explain", tmp_path / "r.json", *arguments)
        text = done.stdout + done.stderr
        assert text and not any(c != "\n" and not c.isprintable() and c != "\u202e" for c in text)

"""Calls with a large stack."""

from __future__ import annotations

import threading

import pytest

from tvmpass.compile import deep_stack
from tvmpass.compile.deep_stack import call_deep


def test_the_result_comes_back_from_another_thread():
    assert call_deep(lambda: (threading.current_thread().name, 3)) == ("tvmpass-run", 3)


def test_what_is_raised_is_raised():
    with pytest.raises(ZeroDivisionError):
        call_deep(lambda: 1 // 0)


def test_the_size_for_other_threads_stays():
    before = threading.stack_size()
    call_deep(lambda: None)
    assert threading.stack_size() == before


def test_without_such_a_thread_it_is_called_here(monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(deep_stack.threading.Thread, "start", refuse)
    assert call_deep(lambda: threading.current_thread().name) == threading.current_thread().name

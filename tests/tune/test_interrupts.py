"""Interrupts end a tune even where the exception of the signal gets lost."""

from __future__ import annotations

import contextlib
import os
import signal
import threading

import pytest

import tvmpass
from tests.tune.stubs import CONFIG, StubRunner, model
from tvmpass.tune.interrupts import ALL, Interrupts
from tvmpass.tune.session import TuneInterrupted


def lose(number: int) -> None:
    """Send a signal and swallow what it raises, as a callback inside TVM does."""
    with contextlib.suppress(KeyboardInterrupt):
        os.kill(os.getpid(), number)


@pytest.fixture(autouse=True)
def nothing_ignored():
    """Undo what nohup, or a shell's ``&``, makes this process ignore."""
    usual = {number: signal.SIG_DFL for number in ALL} | {signal.SIGINT: signal.default_int_handler}
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", ALL)
def test_a_signal_raises_and_is_remembered(number):
    with Interrupts(ALL) as interrupts:
        interrupts.check()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()
        assert interrupts.exit_code == 128 + number
    assert signal.getsignal(number) != interrupts._take


def test_handlers_of_others_and_ignored_signals_are_left_alone():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts(ALL) as outer, Interrupts(ALL) as inner:
            os.kill(os.getpid(), signal.SIGHUP)
            lose(signal.SIGTERM)
            assert outer.number == signal.SIGTERM and inner.number is None
    finally:
        signal.signal(signal.SIGHUP, before)


def test_an_error_after_a_signal_is_that_signal():
    with pytest.raises(KeyboardInterrupt), Interrupts():
        lose(signal.SIGINT)
        raise RuntimeError("")
    with pytest.raises(RuntimeError), Interrupts():
        raise RuntimeError("")


def test_outside_the_main_thread_nothing_is_installed():
    found = []

    def work():
        with Interrupts() as interrupts:
            found.append(interrupts._before)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [{}]


@pytest.mark.parametrize("where", ["planning", "failing", "measuring"])
def test_an_interrupt_that_got_lost_still_ends_the_tune(tmp_path, monkeypatch, where):
    from tvmpass.tune import session

    class Runner(StubRunner):
        def measure(self, jobs, done):
            super().measure(jobs, done)
            if where == "measuring":
                lose(signal.SIGINT)

    plan = session.plan_tasks

    def planned(*arguments, **options):
        if where != "measuring":
            lose(signal.SIGINT)
        if where == "failing":
            raise RuntimeError("")
        return plan(*arguments, **options)

    monkeypatch.setattr(session, "plan_tasks", planned)
    with pytest.raises(TuneInterrupted), tvmpass.PassContext(config=CONFIG):
        tvmpass.tune(model(), logs=tmp_path, trials=500, runner=Runner())

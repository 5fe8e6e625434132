"""What a watcher of a tune is told."""

from tvmpass.tune.interrupts import Interrupts
from tvmpass.tune.progress import Teller


def test_a_watcher_hears_that_the_tune_is_alive():
    heard = []
    Teller(heard.append, Interrupts()).alive()
    assert [progress.kind for progress in heard] == ["alive"]


def test_print_as_a_watcher_shows_only_what_happened(capsys):
    teller = Teller(print, Interrupts())
    teller.stage("planning the model")
    teller.alive()
    assert capsys.readouterr().out == "planning the model\n"

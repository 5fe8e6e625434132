"""Which job goes to which server, and whose fault a failure is: no network, a clock of its own."""

import pytest

from tvmpass.core.errors import TvmpassError
from tvmpass.tune.rpc_dispatch import (
    ASK_S,
    LOST,
    MAX_KEPT_BACK,
    SILENT,
    UNREACHED,
    WATCH_S,
    Dispatcher,
    Failure,
)
from tvmpass.tune.rpc_tracker import Server, Status, TrackerError
from tvmpass.tune.work import Measurement

KEY = "cpu"


class Network:
    """A tracker with ``free`` servers, which may also be down; time passes when told."""

    def __init__(self, *names: str):
        self.now = 0.0
        self.names = list(names)
        self.free = list(names)
        self.down = False

    def status(self, key: str) -> Status:
        if self.down:
            raise TrackerError("no RPC tracker answers at here:1")
        return Status(tuple(self.names) if key == KEY else (), len(self.free))

    def request(self, key: str, seconds: float) -> Server | None:
        if not self.free:
            return None
        return Server(self.free.pop(0), 1, "")

    def dispatcher(self, *jobs: str) -> Dispatcher[str]:
        self.said: list[str] = []
        found: Dispatcher[str] = Dispatcher(self, KEY, say=self.said.append, clock=lambda: self.now)
        for job in jobs:
            found.submit(job)
        return found

    def start(self, dispatcher):
        self.now += 2 * ASK_S
        return dispatcher.start()


def test_each_free_server_gets_a_job_at_once_and_no_more():
    network = Network("a", "b")
    dispatcher = network.dispatcher("1", "2", "3")
    first, second = network.start(dispatcher), network.start(dispatcher)
    assert (first[0].work, first[1].name) == ("1", "a:1")
    assert (second[0].work, second[1].name) == ("2", "b:1")
    assert network.start(dispatcher) is None
    assert dispatcher.waiting == 1 and dispatcher.running == 2 and dispatcher.servers == 2


def test_a_measurement_names_its_server_and_counts_the_time_of_every_try():
    network = Network("a", "b")
    dispatcher = network.dispatcher("1")
    item, server = network.start(dispatcher)
    network.now += 2.0
    assert dispatcher.failed(item, server, Failure(LOST, "the session broke off")) is None
    item, server = network.start(dispatcher)
    network.now += 3.0
    measurement = dispatcher.measured(item, server, Measurement("ok", spent_s=1.0))
    assert measurement.worker == "b:1"
    assert measurement.spent_s == pytest.approx(6.0)
    assert dispatcher.waiting == dispatcher.running == 0


def test_what_brought_down_one_server_is_tried_after_the_others():
    network = Network("a", "b", "c")
    dispatcher = network.dispatcher("1", "2")
    item, server = network.start(dispatcher)
    dispatcher.failed(item, server, Failure(LOST, "the session broke off"))
    assert network.start(dispatcher)[0].work == "2"
    assert network.start(dispatcher)[0].work == "1"


@pytest.mark.parametrize("kind, status", [(LOST, "crash"), (SILENT, "timeout")])
def test_the_second_failure_is_the_jobs_own(kind, status):
    network = Network("a", "b")
    dispatcher = network.dispatcher("1")
    item, server = network.start(dispatcher)
    assert dispatcher.failed(item, server, Failure(kind, "gone")) is None
    item, server = network.start(dispatcher)
    measurement = dispatcher.failed(item, server, Failure(kind, "gone"))
    assert measurement.status == status
    assert measurement.cause == "gone, on a:1 and on b:1"
    assert network.start(dispatcher) is None and dispatcher.waiting == 0


def test_a_server_out_of_reach_is_never_the_jobs_fault():
    network = Network()
    network.names = ["a"]
    dispatcher = network.dispatcher("1")
    for _ in range(5):
        network.free = ["a"]
        item, server = network.start(dispatcher)
        assert dispatcher.failed(item, server, Failure(UNREACHED, "no route")) is None
    network.free = ["b"]
    item, server = network.start(dispatcher)
    assert item.failed_on == []
    assert dispatcher.measured(item, server, Measurement("ok")).worker == "b:1"


def test_servers_that_come_back_are_used_and_both_are_said_once():
    network = Network()
    dispatcher = network.dispatcher("1")
    for _ in range(10):
        assert network.start(dispatcher) is None
    network.names = network.free = ["a"]
    assert network.start(dispatcher)[1].name == "a:1"
    assert len(network.said) == 2
    assert "no server of the key 'cpu'" in network.said[0]


@pytest.mark.parametrize("down, text", [(True, "no RPC tracker answers"), (False, "no server of the key")])
def test_waiting_in_vain_ends_with_what_is_missing(down, text):
    network = Network()
    network.down = down
    dispatcher = network.dispatcher("1", "2")
    assert network.start(dispatcher) is None
    network.now += 61.0
    with pytest.raises(TvmpassError, match=rf"{text}.*2 candidates are not measured"):
        dispatcher.start()


def test_nobody_waits_in_vain_while_a_try_is_under_way():
    network = Network("a")
    dispatcher = network.dispatcher("1", "2")
    item, server = network.start(dispatcher)
    network.down = True
    network.now += 600.0
    assert network.start(dispatcher) is None
    dispatcher.failed(item, server, Failure(LOST, "the session broke off"))
    network.now += WATCH_S
    assert network.start(dispatcher) is None
    network.now += 61.0
    with pytest.raises(TvmpassError, match="no RPC tracker"):
        dispatcher.start()


def test_a_job_that_failed_goes_to_another_server_where_there_is_one():
    network = Network("a", "b")
    dispatcher = network.dispatcher("1")
    item, server = network.start(dispatcher)
    dispatcher.failed(item, server, Failure(LOST, "gone"))
    network.free = ["a", "b"]
    assert network.start(dispatcher) is None
    assert network.start(dispatcher)[1].name == "b:1"


def test_a_job_that_failed_does_not_wait_for_another_server_for_ever():
    network = Network("a", "b")
    dispatcher = network.dispatcher("1")
    item, server = network.start(dispatcher)
    dispatcher.failed(item, server, Failure(LOST, "gone"))
    for _ in range(MAX_KEPT_BACK):
        network.free = ["a"]
        assert network.start(dispatcher) is None
    network.free = ["a"]
    assert network.start(dispatcher)[1].name == "a:1"


def test_servers_that_stay_out_of_reach_end_it():
    network = Network("a")
    dispatcher = network.dispatcher("1")
    with pytest.raises(TvmpassError, match=r"server a:1 cannot be reached: no route, for 6\d s"):
        for _ in range(20):
            network.free = ["a"]
            item, server = network.start(dispatcher)
            network.now += 5.0
            dispatcher.failed(item, server, Failure(UNREACHED, "no route"))
    assert len(network.said) == 1


def test_one_server_out_of_reach_does_not_end_what_another_does():
    network = Network("a", "b")
    dispatcher = network.dispatcher(*"123456789")
    for _ in range(20):
        network.free = ["a"]
        item, server = network.start(dispatcher)
        network.now += 20.0
        assert dispatcher.failed(item, server, Failure(UNREACHED, "no route")) is None
        network.free = ["b"]
        item, server = network.start(dispatcher)
        dispatcher.measured(item, server, Measurement("ok"))
        dispatcher.submit("more")
    assert len(network.said) == 2  # once that it is out of reach, once that there are others


def test_busy_servers_are_waited_for():
    network = Network("a")
    network.free = []
    dispatcher = network.dispatcher("1")
    network.now += 1000.0
    assert dispatcher.start() is None
    assert network.said == []

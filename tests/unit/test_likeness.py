"""The conditions under which the loads of two clients count as the same."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import pytest

from metrics.windows.broker import BrokerWindow, RequestWindow
from tests.bench.fidelity import CASES, Case, Comparison
from tests.bench.likeness import BrokerLoad, NoReadingError, differences, load_of

pytestmark = pytest.mark.long  # a tool of developers

LOAD = BrokerLoad(100.0, 8_000.0, 800_000.0, 0.5, 4.0)


def _pairs(*local_ms: tuple[float, float]) -> list[tuple[BrokerLoad, BrokerLoad]]:
    return [(replace(LOAD, local_ms=one), replace(LOAD, local_ms=other)) for one, other in local_ms]


def test_a_disk_that_is_slower_for_a_while_hits_both_windows_of_a_pair() -> None:
    drifting = _pairs((4.0, 4.1), (9.0, 9.2), (4.0, 4.2), (8.0, 8.0), (9.0, 4.1))
    assert differences(drifting) == differences(_pairs((0.1, 0.3))) == {}, "tenths are the same"
    slower = _pairs((4.0, 6.5), (9.0, 12.0), (4.0, 6.6), (8.0, 11.0), (9.0, 4.1))
    assert set(differences(slower)) == {"local_ms"}


def _window(broker: int, requests: float, local_ms: float | None, idle: float) -> BrokerWindow:
    produce = RequestWindow(per_s=requests, local_ms=local_ms)
    return BrokerWindow(
        broker, 0.0, 5.0, 0.5, 10, 0, produce=produce, bytes_in_per_s=requests * 1_000.0,
        handler_idle=idle,
    )  # fmt: skip


def test_brokers_count_by_their_requests() -> None:
    windows = [_window(1, 30.0, 2.0, 0.6), _window(2, 10.0, 6.0, 0.8), _window(3, 0.0, None, 1.0)]
    load = load_of(windows)
    assert (load.requests_per_s, load.request_bytes) == (40.0, 1_000.0)
    assert load.local_ms == pytest.approx(3.0)
    assert load.handler_idle == pytest.approx(0.8)
    for requests, words in ((30.0, r"broker 1 gave no produce\.local_ms"), (0.0, "no produce req")):
        with pytest.raises(NoReadingError, match=words):
            load_of([_window(1, requests, None, 0.6)])


class Scripted(Comparison):
    """A comparison with scripted loads instead of clients."""

    def __init__(self, local_ms: dict[str, list[float]]) -> None:
        self.local_ms = local_ms
        self.order: list[str] = []

    def _topic(self) -> AbstractContextManager[str]:
        return nullcontext("t")

    def load(self, client: str, case: Case, topic: str) -> BrokerLoad:
        self.order.append(client)
        times = self.local_ms[client]
        return replace(LOAD, local_ms=times[self.order.count(client) - 1])


def test_clients_take_turns_and_a_window_that_stalled_does_not_count() -> None:
    comparison = Scripted({"wire": [4.0, 4.1, 4.2], "librdkafka": [20.0, 4.1, 4.1]})
    compared = comparison.compare(CASES[0], rounds=3)
    assert comparison.order == ["wire", "librdkafka", "librdkafka", "wire", "wire", "librdkafka"]
    assert compared.librdkafka.local_ms == pytest.approx(4.1)
    assert compared.differences == {}
    slower = Scripted({"wire": [4.0] * 3, "librdkafka": [8.0, 8.1, 8.2]})
    assert set(slower.compare(CASES[0], rounds=3).differences) == {"local_ms"}

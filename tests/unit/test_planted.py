"""The limit that follows from stated service times."""

from __future__ import annotations

import math

import pytest

from jobs.config.loading import load_workload
from metrics.planning.planted import HandlerTime, measured, planted_np
from metrics.traffic.producer import ProducerPattern
from metrics.windows.broker import BrokerWindow, RequestWindow

FIVE = HandlerTime(stated_ms=5.0)


def calibrated() -> ProducerPattern:
    return load_workload("calibrated").pattern(1000).producer


def window(per_s: float | None, idle: float | None) -> BrokerWindow:
    produce = RequestWindow(per_s=per_s)
    return BrokerWindow(1, 0.0, 10.0, 1.0, 10, 0, handler_idle=idle, produce=produce)


def test_every_batch_of_the_calibrated_workload_is_full_before_its_linger_ends() -> None:
    producer = calibrated()
    assert producer.records_per_batch == producer.records_per_full_batch == 16
    assert producer.batch_interval_s == 0.256 < producer.options.linger_ms / 1000.0 / 3
    # The next batch is due long after the last one is acknowledged, so none travel together.
    assert producer.options.max_in_flight * producer.batch_interval_s > 1.0


@pytest.mark.parametrize(
    ("times", "idle_min", "expected"),
    [
        (FIVE, 0.2, 160.0),
        (FIVE, 0.5, 100.0),
        (HandlerTime(5.0, handlers=3), 0.2, 480.0),
        (HandlerTime(4.0, own_ms=1.0), 0.2, 160.0),
        (HandlerTime(5.0, others=0.05), 0.2, 150.0),
        (HandlerTime(7.0, own_ms=1.0, others=0.1, handlers=2), 0.2, 175.0),
        (HandlerTime(5.0, others=0.9), 0.2, 0.0),
        (HandlerTime(0.0), 0.2, math.inf),
    ],
)
def test_requests_at_the_limit(times: HandlerTime, idle_min: float, expected: float) -> None:
    assert times.requests_per_s(idle_min) == pytest.approx(expected)
    if math.isfinite(expected) and expected:
        assert times.idle(expected) == pytest.approx(idle_min)


def test_producers_at_the_limit_are_those_of_the_slowest_broker() -> None:
    producer = calibrated()
    even = planted_np([FIVE] * 3, producer, 0.2)
    assert even == pytest.approx(3 * 160 / 3.90625)
    assert planted_np([FIVE], producer, 0.2) == pytest.approx(even / 3)
    slow = planted_np([FIVE, FIVE, HandlerTime(8.0)], producer, 0.2)
    assert slow == pytest.approx(3 * 100 / 3.90625)


def test_small_terms_come_from_windows_at_light_load() -> None:
    truth = HandlerTime(5.0, own_ms=0.8, others=0.03, handlers=2)
    windows = [window(per_s, truth.idle(per_s)) for per_s in (10.0, 30.0, 50.0)]
    found = measured(5.0, 2, [*windows, window(None, 0.99), window(70.0, None)])
    assert found.own_ms == pytest.approx(0.8)
    assert found.others == pytest.approx(0.03)
    assert (found.stated_ms, found.handlers) == (5.0, 2)


def test_others_never_take_less_than_no_time() -> None:
    # As read on real brokers: the edges of the lighter window hid a hundredth of its time.
    found = measured(5.0, 1, [window(14.3, 0.929), window(43.8, 0.749)])
    assert found.others == 0.0
    assert found.own_ms == pytest.approx(0.66, abs=0.01)


@pytest.mark.parametrize("loads", [[], [20.0], [20.0, 20.0]])
def test_one_load_tells_no_time_of_a_request(loads: list[float]) -> None:
    with pytest.raises(ValueError, match="different loads are known; expected windows at two"):
        measured(5.0, 1, [window(load, 0.9) for load in loads])

"""The limit that follows from stated service times."""

from __future__ import annotations

import math

import pytest

from jobs.config.loading import load_workload
from metrics.planning.planted import (
    HandlerTime,
    complete_handler_times,
    environment_of_handlers,
    planted_scale,
    stated_handler_times,
)
from metrics.traffic.pattern import TrafficPattern
from metrics.windows.broker import BrokerWindow, RequestWindow

FIVE = HandlerTime(stated_ms=5.0)


def calibrated() -> TrafficPattern:
    return load_workload("calibrated").pattern(1000)


def idle(times: HandlerTime, requests_per_s: float) -> float:
    """The idle fraction of the handlers at a rate of produce requests."""
    time_s = (times.stated_ms + times.own_ms) / 1000.0
    return 1.0 - times.others - requests_per_s * time_s / times.handlers


def window(
    per_s: float | None, idle_share: float | None, local_ms: float | None, broker: int = 1
) -> BrokerWindow:
    produce = RequestWindow(per_s=per_s, local_ms=local_ms)
    return BrokerWindow(broker, 0.0, 10.0, 1.0, 10, 0, handler_idle=idle_share, produce=produce)


def test_every_batch_of_the_calibrated_workload_is_full_before_its_linger_ends() -> None:
    producer = calibrated().producer
    assert producer.records_per_batch == producer.records_per_full_batch == 16
    assert producer.batch_interval_s == 0.512 < producer.options.linger_ms / 1000.0 / 1.5
    # The next batch is due long after the last one is acknowledged, so none travel together.
    assert producer.options.max_in_flight * producer.batch_interval_s > 1.0


@pytest.mark.parametrize(
    ("times", "idle_min", "expected"),
    [
        (FIVE, 0.5, 100.0),
        (HandlerTime(7.0, own_ms=1.0, others=0.1, handlers=2), 0.2, 175.0),
        (HandlerTime(5.0, others=0.9), 0.2, 0.0),
        (HandlerTime(0.0), 0.2, math.inf),
    ],
)
def test_requests_at_the_limit(times: HandlerTime, idle_min: float, expected: float) -> None:
    assert times.requests_per_s(idle_min) == pytest.approx(expected)
    if math.isfinite(expected) and expected:
        assert idle(times, expected) == pytest.approx(idle_min)


def test_producers_at_the_limit_are_those_of_the_slowest_broker() -> None:
    one = calibrated()
    even = planted_scale([FIVE] * 3, one, 0.2)
    assert even == pytest.approx(3 * 160 / 1.953125)
    assert planted_scale([FIVE], one, 0.2) == pytest.approx(even / 3)
    slow = planted_scale([FIVE, FIVE, HandlerTime(8.0)], one, 0.2)
    assert slow == pytest.approx(3 * 100 / 1.953125)


def test_small_terms_come_from_a_window_at_light_load_and_are_means_over_brokers() -> None:
    planted = {1: HandlerTime(60.0, handlers=4), 2: HandlerTime(80.0, handlers=4)}
    truth = {
        i: HandlerTime(each.stated_ms, 0.8, 0.03, each.handlers) for i, each in planted.items()
    }
    # The errors of the two brokers' windows cancel out.
    windows = [
        window(6.0, idle(truth[i], 6.0) + blur, truth[i].stated_ms + 0.8 + jitter, i)
        for i, blur, jitter in ((1, 0.01, 0.2), (2, -0.01, -0.2))
    ]
    found = complete_handler_times(planted, windows)
    assert [(each.stated_ms, each.handlers) for each in found] == [(60.0, 4), (80.0, 4)]
    for each in found:
        assert (each.own_ms, each.others) == pytest.approx((0.8, 0.03), abs=0.001)


def test_the_time_of_other_requests_is_never_negative() -> None:
    # Readings of real brokers: waiting handlers report their idle time only every 0.3 s.
    read = [(6.53, 0.9151, 60.97), (6.63, 0.9013, 60.98), (6.42, 0.9002, 60.93)]
    planted = {i: HandlerTime(60.0, handlers=4) for i in (1, 2, 3)}
    found = complete_handler_times(planted, [window(*each, i) for i, each in enumerate(read, 1)])
    assert {each.others for each in found} == {0.0}
    assert found[0].own_ms == pytest.approx(0.96)


def test_brokers_without_these_metrics_have_no_planted_limit() -> None:
    lacking = (
        window(6.0, None, 61.0), window(None, 0.9, 61.0), window(0.0, 0.9, 61.0),
        window(6.0, 0.9, None), window(6.0, 0.9, 61.0, broker=2),
    )  # fmt: skip
    for windows in ([], *([each] for each in lacking)):
        with pytest.raises(ValueError, match="at a light load"):
            complete_handler_times({1: HandlerTime(60.0, handlers=4)}, windows)


def test_stated_times_pass_through_the_environment() -> None:
    def passed(stated_ms: dict[int, float], **facts: str) -> dict[int, HandlerTime]:
        facts = {f"broker.{name.replace('_', '.')}.threads": text for name, text in facts.items()}
        return stated_handler_times(environment_of_handlers(stated_ms, (1, 2)) | facts, (1, 2))

    assert stated_handler_times({}, (1, 2)) == passed({}) == {}
    assert passed({1: 60.0}) == {}, "a broker without a planted time"
    four = HandlerTime(60.0, handlers=4)
    assert passed({1: 60.0, 2: 60.0}, config_num_io="4") == {1: four, 2: four}
    unlike = passed({1: 60.0, 2: 80.5}, **{"2_config_num_io": "1"})
    assert unlike == {1: HandlerTime(60.0, handlers=8), 2: HandlerTime(80.5, handlers=1)}

"""Rest between trials, and the warm-up's measure of speed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jobs.trials.recovery import (
    DISK_PATIENCE_S,
    UNNOTED_S,
    Baseline,
    NotIdle,
    Recovery,
    wait_until_at_rest,
    why_not_idle,
)
from jobs.trials.warm_up import handler_cost_ms
from metrics.sources.beans import HANDLER_IDLE_NS, UPTIME_MS
from metrics.sources.sample import BrokerSample
from metrics.windows.broker import BrokerWindow, RequestWindow
from tests.support.scripted_source import ScriptedSource

WINDOW = BrokerWindow(1, 0.0, 1.0, 1.0, 1, 0, handler_idle=0.97)
SHARED = Baseline(0.6, 3.0, 2.0, 100.0, 5e6)


def test_a_broker_is_at_rest_when_it_is_no_busier_than_its_baseline() -> None:
    cases: list[tuple[dict[str, Any], Baseline, str | None]] = [
        ({}, Baseline(), None),
        ({"handler_idle": 0.84}, Baseline(), "broker 1: request handlers idle 0.84"),
        ({"start_s": None}, Baseline(), "the metrics of broker 1 cannot be read"),
        ({"handler_idle": None}, Baseline(), None),
        ({"contradiction": "broker 1 restarted"}, Baseline(), "broker 1 restarted"),
        ({"request_queue_max": 1.0}, Baseline(), "broker 1: 1 requests wait for a handler"),
        ({"replica_lag_max_records": 3.0}, Baseline(), "broker 1: 3 records behind"),
        ({"under_replicated_max": 1.0}, Baseline(), "broker 1: 1 partitions under-replicated"),
        ({"replica_lag_max_records": 0.0, "under_replicated_max": 0.0}, Baseline(), None),
        ({"disk_write_bytes_per_s": 1.1e6}, Baseline(), "broker 1: still writes 1.1 MB/s to its"),
        ({"disk_write_bytes_per_s": 1.1e6}, SHARED, None),
        ({"disk_write_bytes_per_s": 11.1e6}, SHARED, "broker 1: still writes 11.1 MB/s to its"),
        ({"handler_idle": 0.51, "under_replicated_max": 2.0}, SHARED, None),
        ({"replica_lag_max_records": 150.0, "request_queue_max": 3.0}, SHARED, None),
        ({"handler_idle": 0.49}, SHARED, "broker 1: request handlers idle 0.49"),
        ({"under_replicated_max": 3.0}, SHARED, "broker 1: 3 partitions under-replicated"),
    ]
    for change, baseline, reason in cases:
        found = why_not_idle(replace(WINDOW, **change), baseline)
        assert (found is None) if reason is None else (found is not None and reason in found.text)


def test_a_measurement_after_requests_may_lack_idle_time_and_a_disk_may_still_write() -> None:
    first = replace(WINDOW, handler_idle=0.75)
    assert why_not_idle(first, Baseline(), UNNOTED_S) is None
    for window, unnoted_s in (
        (first, 0.0),
        (replace(first, handler_idle=0.69), UNNOTED_S),
        (replace(first, end_s=3.0), UNNOTED_S),  # a longer window lacks a smaller share
    ):
        busy = why_not_idle(window, Baseline(), unnoted_s)
        assert busy is not None and busy.invalidates
    writes = why_not_idle(replace(WINDOW, disk_write_bytes_per_s=9e6), Baseline())
    assert writes is not None and not writes.invalidates
    shared = replace(WINDOW, handler_idle=1.04, under_replicated_max=2.0)
    assert Baseline.of(shared) == Baseline(under_replicated=2.0)


class Source(ScriptedSource):
    """One broker with busy handlers until a given second, and polls of 40 ms."""

    def __init__(self, busy_until_s: float, written_per_s: float = 0.0) -> None:
        super().__init__()
        self.polls = 0
        self._rest_s = 1_000.0 + busy_until_s
        self._written_per_s = written_per_s

    def sample_all(self) -> list[BrokerSample]:
        self.polls += 1
        at_s = self.now_s + 0.02
        self.now_s += 0.04
        values = {
            HANDLER_IDLE_NS: max(0.0, at_s - self._rest_s) * 1e9,
            UPTIME_MS: at_s * 1000.0,
            "disk_write_bytes": at_s * self._written_per_s,
        }
        return [BrokerSample(1, at_s, values)]

    def wait(self, **options: Any) -> Recovery:
        return wait_until_at_rest(self, clock=self.clock, pause=self.pause, **options)


def test_the_wait_needs_a_whole_second_of_rest() -> None:
    busy, reported = Source(busy_until_s=7.0), list[str]()
    recovery = busy.wait(report=reported.append)
    assert recovery.not_idle == ()
    assert recovery.since_s == pytest.approx(1_007.0, abs=1.1)
    assert recovery.duration_s == pytest.approx(8.0, abs=1.1)
    assert set(reported[:6]) == {"broker 1: request handlers idle 0.00"}


def test_the_wait_has_a_deadline_which_is_near_for_a_disk_alone() -> None:
    busy = Source(busy_until_s=7.0)
    recovery = busy.wait(deadline_s=5.0)
    assert recovery.not_idle == (NotIdle("broker 1: request handlers idle 0.00"),)
    assert recovery.since_s is None and recovery.invalidates
    assert busy.now_s < 1_007.0
    recovery = Source(busy_until_s=0.0, written_per_s=5e6).wait(deadline_s=60.0)
    assert [each.invalidates for each in recovery.not_idle] == [False]
    assert not recovery.invalidates
    assert recovery.duration_s < 2 * DISK_PATIENCE_S
    calm = Source(busy_until_s=0.0)
    earlier = calm.sample_all()
    calm.pause(3.0)
    recovery = calm.wait(earlier=earlier)
    assert recovery.not_idle == () and recovery.duration_s < 0.1
    assert calm.polls == 2, "an earlier poll saves the wait"


def test_the_cost_of_a_request_is_busy_time_over_rate() -> None:
    loaded = replace(WINDOW, handler_idle=0.2, produce=RequestWindow(per_s=400.0))
    assert handler_cost_ms(loaded) == pytest.approx(2.0)
    assert handler_cost_ms(replace(loaded, produce=RequestWindow())) is None
    assert handler_cost_ms(replace(loaded, handler_idle=None)) is None

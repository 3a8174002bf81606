"""Windows of samples, and the samples as series over time."""

from __future__ import annotations

import random
from dataclasses import replace
from operator import attrgetter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metrics.sources.hosts.host_sample import HostSample
from metrics.sources.sample import BrokerSample
from metrics.windows.broker import (
    BrokerWindow,
    Span,
    any_isr_changed_share,
    broker_window,
    broker_windows,
    find_contradiction,
    good_samples,
    isr_changed,
)
from metrics.windows.series import (
    NO_BROKER,
    UNWRITTEN,
    SeriesPoint,
    host_series_points,
    series_points,
)
from tests.support.evidence import START_S, busy_samples, sample


def window_of(samples: list[BrokerSample], seconds: float = 10.0) -> BrokerWindow:
    return broker_window(samples, 1, START_S, START_S + seconds, 1.0)


def test_rates_and_means_are_exact() -> None:
    window = window_of(busy_samples())
    expected = {
        "samples_missed": 0, "start_s": START_S, "end_s": START_S + 10, "contradiction": None,
        "handler_idle": 0.5,
        "network_idle": 0.3,  # the busiest of two network threads
        "produce.per_s": 200, "produce.total_ms": 4.0, "produce.local_ms": 3.0,
        "produce.remote_ms": 0.0, "messages_in_per_s": 5_000, "bytes_in_per_s": 500_000,
        "flush_ms": 20.0, "flush_threads": 0.2, "cpu_cores": 0.5, "cpu_process_share": 0.25,
        "cpu_machine_share": 0.75, "gc_share": 0.010, "request_queue_max": 2,
        "heap_used_share_max": 0.111, "isr_changed_share": 0.0, "leader_partitions_min": 10,
        "leader_partitions_max": 10,
    }  # fmt: skip
    assert {name: attrgetter(name)(window) for name in expected} == pytest.approx(expected)
    shuffled = busy_samples() + busy_samples()[3:6]
    random.Random(4).shuffle(shuffled)
    assert window_of(shuffled) == window, "order and repetition do not matter"
    epochs = [
        replace(each, values={**each.values, "controller_epoch": 4.0 + 2 * (number > 5)})
        for number, each in enumerate(busy_samples())
    ]
    assert window_of(epochs).controller_elections == 2.0
    assert window_of(epochs[6:]).controller_elections == 0.0


def test_a_value_without_samples_is_none_and_not_zero() -> None:
    window = window_of([sample(second, {"bytes_in": 1.0}) for second in range(11)])
    assert window.bytes_in_per_s == 0.0
    known = {"bytes_in_per_s", "broker_id", "start_s", "end_s", "interval_s", "samples_expected"}
    known |= {"samples_missed", "edge_gap_s", "produce", "fetch_consumer", "fetch_follower"}
    values = {name: value for name, value in vars(window).items() if name not in known}
    assert set(values.values()) == {None}
    assert set(vars(window.produce).values()) == {None}


KINDS = ("produce", "fetch_consumer", "fetch_follower")


@pytest.mark.parametrize(
    ("per_s", "constant", "expected"),
    [
        ({"produce_throttle_ms_count": 10.0, "failed_produce_requests": 3.0},
         {"produce_throttle_ms_mean": 7.0},
         {"produce.throttle_ms": 7.0, "failed_produce_requests_per_s": 3.0}),
        ({"disk_read_bytes": 3e6, "disk_write_bytes": 5e6}, {},
         {"disk_read_bytes_per_s": 3e6, "disk_write_bytes_per_s": 5e6}),
        # Each kind of request has its own times.
        *(({f"{kind}_local_ms_count": 50.0},
           {f"{kind}_local_ms_mean": 7.0, f"{kind}_total_ms_count": 1.0},
           {f"{each}.local_ms": 7.0 if each == kind else None for each in KINDS})
          for kind in KINDS),
        # A histogram that recorded nothing has no mean.
        ({}, {"log_flush_ms_count": 5.0, "log_flush_ms_mean": 3.0},
         {"flush_ms": None, "flush_per_s": 0.0, "flush_threads": 0.0}),
        # The JVM's value for unknown is left out.
        ({}, {"machine_cpu_share": -1.0}, {"cpu_machine_share": None}),
        # A source that does not measure standstills or epochs shows none.
        ({}, {}, {"standstill_s": None, "controller_elections": None, "produce_delayed_max": None}),
    ],
)  # fmt: skip
def test_counters_become_rates_and_histograms_means(
    per_s: dict[str, float], constant: dict[str, float], expected: dict[str, float | None]
) -> None:
    taken = [
        sample(second, constant | {name: rate * second for name, rate in per_s.items()})
        for second in range(11)
    ]
    window = window_of(taken)
    assert {name: attrgetter(name)(window) for name in expected} == pytest.approx(expected)


def test_only_samples_inside_the_window_count() -> None:
    calm_before = [sample(-3.0, {"handler_idle_ns": 0.0}), sample(-0.01, {"handler_idle_ns": 3e9})]
    inside = [sample(s, {"handler_idle_ns": 3e9 + 0.1e9 * s}) for s in range(11)]
    calm_after = [sample(11.0, {"handler_idle_ns": 5e9})]
    window = window_of(calm_before + inside + calm_after)
    assert window.handler_idle == pytest.approx(0.1)


def test_the_time_between_samples_is_the_brokers_own() -> None:
    late_poll = [
        BrokerSample(1, START_S + 0.2, {"uptime_ms": 10_000.0, "bytes_in": 0.0}),
        BrokerSample(1, START_S + 8.0, {"uptime_ms": 18_000.0, "bytes_in": 800.0}),
    ]
    assert window_of(late_poll).bytes_in_per_s == pytest.approx(100.0)
    no_uptime = [replace(s, values={"bytes_in": s.values["bytes_in"]}) for s in late_poll]
    for samples in (no_uptime, [late_poll[0], no_uptime[1]], [no_uptime[0], late_poll[1]]):
        assert window_of(samples).bytes_in_per_s == pytest.approx(800 / 7.8)


def test_a_restart_or_a_counter_that_falls_is_a_contradiction_without_values() -> None:
    def with_reading(index: int, name: str, value: float) -> BrokerWindow:
        samples = busy_samples(seconds=14)
        samples[index] = replace(samples[index], values={**samples[index].values, name: value})
        return window_of(samples)

    restarted = with_reading(6, "uptime_ms", 400.0)
    assert restarted.contradiction == "broker 1 restarted: its uptime fell to 0.4 s"
    assert (restarted.handler_idle, restarted.produce.per_s) == (None, None)
    assert with_reading(0, "uptime_ms", 9e9).contradiction is not None, "in the warm-up"
    assert with_reading(13, "uptime_ms", 400.0).contradiction is None, "after the window"
    fallen = with_reading(6, "messages_in", 1.0).contradiction or ""
    assert "counter messages_in fell from 25070 to 1" in fallen
    assert find_contradiction(busy_samples()) is None


def silent(silences_ms: dict[int, float], collected_ms: dict[int, float]) -> list[BrokerSample]:
    """Samples each second from 1 s before the window of 10 s to 2 s after it, index 0 to 13."""
    collected, samples = 0.0, []
    for index, each in enumerate(busy_samples(seconds=14)):
        collected += collected_ms.get(index, 0.0)
        own = {"silent_ms": silences_ms.get(index, 3.0), "gc_ms:G1 Young Generation": collected}
        values = {**each.values, "gc_ms:G1 Old Generation": 0.0, **own}
        samples.append(replace(each, values=values))
    return samples


def test_a_standstill_is_the_missing_time_without_collections() -> None:
    cases: list[tuple[int, dict[int, float], float]] = [
        (6, {}, 0.9),
        (6, {6: 850.0}, 0.05),
        (6, {7: 850.0}, 0.05),  # the collection was counted one sample later
        (6, {8: 850.0}, 0.9),
        (6, {6: 2_000.0}, 0.003),
        (1, {}, 0.9),  # on the window's first edge
        (1, {1: 850.0}, 0.05),
        (12, {}, 0.9),  # seen after the window, and from inside it
        (0, {}, 0.003),
        (13, {}, 0.003),
    ]
    for index, collected, standstill_s in cases:
        window = window_of(silent({index: 900.0}, collected))
        assert window.standstill_s == pytest.approx(standstill_s), (index, collected)


def test_idle_slightly_above_one_is_normal_and_far_above_is_two_pools() -> None:
    for idle, contradicts in ((1.1, False), (1.13, False), (1.2, True)):
        window = window_of(busy_samples(idle=idle))
        assert window.handler_idle == pytest.approx(idle), "never clamped"
        assert (window.contradiction is not None) is contradicts


def test_missed_samples_are_counted_and_errors_are_no_samples() -> None:
    samples = busy_samples()
    failed = [replace(s, values={}, error="no answer") for s in samples[3:7]]
    window = window_of(samples[:3] + failed + samples[7:])
    assert (window.samples_expected, window.samples_missed) == (10, 3)
    assert window.missed_share == pytest.approx(0.3)
    assert window.handler_idle == pytest.approx(0.5), "counters bridge a gap"
    for kept in (0, 1):
        few = window_of(samples[1 : 1 + kept])
        assert (few.start_s, few.handler_idle, few.samples_missed) == (None, None, 10 - kept)
    assert replace(window, samples_expected=0, samples_missed=0).missed_share == 1.0
    assert window_of([sample(s) for s in (0.5, 3.0, 6.0)]).edge_gap_s == pytest.approx(4.0)
    late = replace(samples[0], at_s=samples[0].at_s + 0.4)
    assert good_samples([late, samples[0]]) == {1: [samples[0]]}, "a late answer"
    windows = broker_windows(samples, {2, 1}, START_S, START_S + 10, 1.0)
    assert [(w.broker_id, w.start_s is None) for w in windows] == [(1, False), (2, True)]


@pytest.mark.parametrize(
    ("first_s", "under_replicated", "changes", "seconds", "at_rest", "share"),
    [
        (0, [0, 0, 0, 0], [5, 5, 5, 5], 3, None, 0.0),
        (0, [0, 0, 3, 3], [5, 5, 6, 6], 3, None, 0.5),  # one change that persists
        (0, [0, 0, 0, 0], [5, 6, 7, 8], 3, None, 0.75),  # the first has none before it
        (0, [2, 2, 2, 2], [5, 5, 5, 5], 3, None, 1.0),
        (0, [0, 3, 0, 0], [5, 6, 6, 6], 3, None, 0.25),
        (-1, [0, 0, 0, 0, 0], [0, 1, 1, 1, 1], 3, None, 0.25),  # since a sample before the window
        (-1, [1] * 12, [0] * 12, 10, None, 1.0),  # one replica counts without a baseline
        (-1, [0] * 12 + [1] * 4, [0] * 16, 10, None, 0.0),  # after the window
        # Partitions that were under-replicated before the run do not count.
        (-1, [1] * 12, [0] * 12, 10, {1: 0.0}, 1.0),
        (-1, [1] * 12, [0] * 12, 10, {1: 1.0}, 0.0),
        (-1, [3] * 12, [0] * 12, 10, {1: 1.0}, 1.0),
    ],
)
def test_isr_changes_and_under_replication_count_per_sample(
    first_s: int, under_replicated: Any, changes: Any, seconds: int, at_rest: Any, share: float
) -> None:
    for counter in ("isr_shrinks", "isr_expands"):
        taken = [
            sample(first_s + n, {"under_replicated_partitions": float(u), counter: float(c)})
            for n, (u, c) in enumerate(zip(under_replicated, changes, strict=True))
        ]
        span = START_S, START_S + seconds, 1.0
        (window,) = broker_windows(taken, (1,), *span, at_rest=at_rest or {})
        assert window.isr_changed_share == pytest.approx(share)


def test_an_unknown_number_of_replicas_is_not_a_change() -> None:
    still = {"isr_shrinks": 5.0, "isr_expands": 5.0}
    assert not isr_changed(sample(0.0, still), sample(1.0, still))
    assert isr_changed(sample(0.0, still), sample(1.0, still | {"isr_shrinks": 6.0}))


@given(
    st.lists(st.integers(1, 5_000), min_size=1, max_size=60),
    st.lists(st.integers(1, 5_000), min_size=1, max_size=60),
)
def test_a_windows_mean_is_that_of_the_times_recorded_in_it(
    before: list[int], inside: list[int]
) -> None:
    everything = before + inside
    first = sample(0, {"x_count": len(before), "x_mean": sum(before) / len(before)})
    last = sample(10, {"x_count": len(everything), "x_mean": sum(everything) / len(everything)})
    mean = Span([first, last]).mean("x")
    assert mean == pytest.approx(sum(inside) / len(inside), rel=1e-6)


def test_the_most_requests_that_wait_for_followers_are_kept() -> None:
    """Requests wait for followers with acks=all."""
    waiting = (2.0, 7.0, 3.0)
    taken = [sample(float(at), {"produce_delayed": n}) for at, n in enumerate(waiting)]
    found = broker_window(taken, 1, START_S, START_S + 2, 1.0)
    assert found.produce_delayed_max == 7.0
    unknown = [sample(0.0), sample(1.0), sample(2.0)]
    none = broker_window(unknown, 1, START_S, START_S + 2, 1.0)
    assert none == replace(found, produce_delayed_max=None)


def _at(broker_id: int, second: float, under_replicated: float) -> BrokerSample:
    return sample(second, {"under_replicated_partitions": under_replicated}, broker_id)


def test_changes_that_wander_from_broker_to_broker_count_together() -> None:
    """Three brokers in 40 % of the samples each, never two at a time."""
    taken = [
        _at(broker_id, second + 0.003 * broker_id, float(second % 5 in (broker_id, broker_id + 2)))
        for second in range(-1, 10)
        for broker_id in (0, 1, 2)
    ]
    span = START_S, START_S + 10
    for broker_id in range(3):
        own = broker_window(taken, broker_id, *span, 1.0).isr_changed_share
        assert own == any_isr_changed_share(taken, (broker_id,), *span) == pytest.approx(0.4)
    assert any_isr_changed_share(taken, (0, 1, 2), *span) == pytest.approx(1.0)


def test_a_broker_that_missed_samples_dilutes_no_share() -> None:
    span = START_S, START_S + 10
    taken = [_at(1, float(second), 0.0) for second in range(-1, 11)]
    taken += [_at(2, second + 0.01, 1.0) for second in (3, 4)]
    assert any_isr_changed_share(taken, (1, 2), *span) == pytest.approx(2 / 11)
    assert any_isr_changed_share(taken, (3,), *span) is None


IDLE, WAITING, BYTES = "Request handlers idle [ratio]", "Requests waiting", "Bytes in [MB/s]"


def readings(idle_ns: float, bytes_in: float, queue: float) -> dict[str, float]:
    return {"handler_idle_ns": idle_ns, "bytes_in": bytes_in, "request_queue_size": queue}


def test_gauges_are_values_and_counters_are_rates() -> None:
    taken = [
        sample(1.0, readings(1.25e9, 1e6, 0.0)),
        sample(-2.0, readings(0.0, 5e6, 1.0)),
        sample(0.0, readings(1e9, 9e6, 3.0)),
        sample(0.0, readings(7.0, 7.0, 7.0), broker_id=9),
    ]
    assert series_points(taken, {1}, START_S) == [
        SeriesPoint(IDLE, 1, 0.0, 0.5),
        SeriesPoint(IDLE, 1, 1.0, 0.25),
        SeriesPoint(WAITING, 1, -2.0, 1.0),
        SeriesPoint(WAITING, 1, 0.0, 3.0),
        SeriesPoint(WAITING, 1, 1.0, 0.0),
        SeriesPoint(BYTES, 1, 0.0, 2.0),
    ]
    idle = {0.0: {"handler_idle_ns": 3e9}, 1.0: {}, 2.0: {"handler_idle_ns": 6e9}}
    points = series_points([sample(at_s, values) for at_s, values in idle.items()], {1}, START_S)
    assert points == [SeriesPoint(IDLE, 1, 2.0, 1.5)], "a failed poll leaves a gap"


def test_counts_of_one_minute_rates_are_drawn_once_a_tick() -> None:
    ticks = {0: (7, 40), 1: (7, 40), 2: (17, 45), 3: (17, 45), 7: (47, 50), 8: (0, 0)}
    taken = [
        sample(float(at_s), {"bytes_in": 1e6 * mb, "ticked_s:bytes_in": float(ticked_s)})
        for at_s, (mb, ticked_s) in ticks.items()
    ]
    assert series_points(taken, {1}, START_S) == [
        SeriesPoint(BYTES, 1, 2.0, 2.0),
        SeriesPoint(BYTES, 1, 7.0, 6.0),
    ]


def test_hosts_show_the_pages_that_no_disk_has() -> None:
    taken = [
        HostSample("b", START_S + 2.0, {"dirty_bytes": 3e6, "writeback_bytes": 1e6}),
        HostSample("b", START_S, {"dirty_bytes": 2e6}),
        HostSample("a", START_S, {"cores": 2.0}),
        HostSample("executor", START_S, {"dirty_bytes": 9e6}),
    ]
    points = host_series_points(taken, {"a", "b"}, START_S)
    assert points == [
        SeriesPoint(UNWRITTEN, NO_BROKER, 0.0, 2.0, "b"),
        SeriesPoint(UNWRITTEN, NO_BROKER, 2.0, 4.0, "b"),
    ]
    assert [points[0].name, SeriesPoint(IDLE, 1, 0.0, 0.5).name] == ["b", "broker 1"]

"""Samples of a trial as series over time."""

from __future__ import annotations

from metrics.sources.hosts.sample import HostSample
from metrics.windows.series import (
    NO_BROKER,
    UNWRITTEN,
    SeriesPoint,
    host_series_points,
    series_points,
)
from tests.support.evidence import START_S, sample

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


def test_counts_of_one_minute_rates_are_drawn_once_a_tick() -> None:
    taken = [
        sample(at_s, {"bytes_in": count, "ticked_s:bytes_in": ticked_s})
        for at_s, count, ticked_s in (
            (0.0, 7e6, 40.0),
            (1.0, 7e6, 40.0),
            (2.0, 17e6, 45.0),
            (3.0, 17e6, 45.0),
            (7.0, 47e6, 50.0),
            (8.0, 0.0, 0.0),
        )
    ]
    assert series_points(taken, {1}, START_S) == [
        SeriesPoint(BYTES, 1, 2.0, 2.0),
        SeriesPoint(BYTES, 1, 7.0, 6.0),
    ]


def test_a_failed_poll_leaves_a_gap_and_parts_of_a_reading_are_added() -> None:
    first = {"handler_idle_ns:a": 1e9, "handler_idle_ns:b": 2e9}
    later = {"handler_idle_ns:a": 2e9, "handler_idle_ns:b": 4e9}
    taken = [sample(0.0, first), sample(1.0, {}), sample(2.0, later)]
    assert series_points(taken, {1}, START_S) == [SeriesPoint(IDLE, 1, 2.0, 1.5)]


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

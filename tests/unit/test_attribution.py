"""The USE table, and the rules that `test_judging` does not reach through a verdict."""

from __future__ import annotations

from dataclasses import replace

import pytest
from syrupy.assertion import SnapshotAssertion

from metrics.judging.attribution import Attribution, attribute
from metrics.judging.nearness import GC_SHARE_HIGH
from metrics.judging.thresholds import Thresholds
from metrics.windows.broker import BrokerWindow, RequestWindow, broker_windows
from metrics.windows.resource import Resource
from metrics.windows.use import ResourceUse, use_of, use_table
from tests.support.evidence import START_S, broker, busy_samples, evidence, sample

EMPTY = BrokerWindow(7, None, None, 1.0, 10, 10)


def bound(brokers: list[BrokerWindow]) -> Attribution:
    """The limiting resource of these brokers."""
    return attribute(evidence(brokers=brokers), Thresholds())


def row(window: BrokerWindow, resource: Resource) -> ResourceUse:
    (found,) = [each for each in use_of(window) if each.resource is resource]
    return found


def test_every_resource_has_a_row_and_unknown_values_stay_unknown() -> None:
    rows = use_of(EMPTY)
    of_none = {Resource.MEMORY, Resource.CONNECTION}
    assert [r.resource for r in rows] == [
        r for r in Resource if r is not Resource.UNKNOWN and r not in of_none
    ]
    assert {(r.utilization, r.saturation, r.errors) for r in rows} == {(None, None, None)}
    assert {r.broker_id for r in rows} == {7}


def test_waiting_requests_are_counted_by_littles_law() -> None:
    window = broker(
        produce=RequestWindow(
            per_s=100.0, request_queue_ms=30.0, response_queue_ms=5.0, response_send_ms=2.0
        ),
        fetch_follower=RequestWindow(per_s=50.0, request_queue_ms=20.0, response_queue_ms=0.0),
    )
    assert row(window, Resource.REQUEST_HANDLERS).saturation == pytest.approx(4.0)
    assert row(window, Resource.NETWORK_THREADS).saturation == pytest.approx(0.5)
    assert row(window, Resource.NETWORK).saturation == pytest.approx(0.2)


def test_a_count_or_ratio_without_its_unit_would_not_be_readable() -> None:
    full = broker(offline_replicas_max=1.0, replica_lag_max_records=5.0, gc_share=0.1)
    for each in use_of(full):
        assert (each.saturation is None) or each.saturation_unit, each
        assert (each.errors is None) or each.errors_unit, each


def test_only_flushes_are_waits_for_the_disk() -> None:
    slow = RequestWindow(per_s=100.0, local_ms=18.0)
    waits = broker(produce=slow, cpu_cores=0.3, flush_threads=0.4)
    found = row(waits, Resource.DISK)
    assert (found.utilization, found.saturation) == (0.4, 0.4)
    several = row(broker(produce=slow, flush_threads=1.7), Resource.DISK)
    assert (several.utilization, several.saturation) == (1.0, 1.7)


def test_a_broker_that_uses_all_its_cores_keeps_the_machine_busy() -> None:
    assert row(broker(cpu_process_share=0.97), Resource.CPU).utilization == 0.97
    assert row(broker(cpu_process_share=0.2), Resource.CPU).utilization == 0.4
    alone = broker(cpu_machine_share=None, cpu_process_share=0.3)
    assert row(alone, Resource.CPU).utilization == 0.3


def test_a_link_is_used_by_all_bytes_of_its_busier_direction_and_unknown_unless_stated() -> None:
    window = broker(
        link_mbit_per_s=100.0,
        network_in_bytes_per_s=5e6,
        replication_bytes_in_per_s=1e6,
        network_out_bytes_per_s=2e6,
    )
    assert row(window, Resource.NETWORK).utilization == pytest.approx(0.48)
    out = broker(link_mbit_per_s=100.0, network_in_bytes_per_s=1e6, network_out_bytes_per_s=9e6)
    assert row(out, Resource.NETWORK).utilization == pytest.approx(0.72)
    counters_only = broker(
        link_mbit_per_s=100.0, bytes_out_per_s=3e6, replication_bytes_out_per_s=4e6
    )
    assert row(counters_only, Resource.NETWORK).utilization == pytest.approx(0.56)
    assert row(broker(network_in_bytes_per_s=1e9), Resource.NETWORK).utilization is None


def test_a_full_link_is_named_with_both_directions() -> None:
    full = broker(
        2, link_mbit_per_s=40.0, network_in_bytes_per_s=4.75e6, network_out_bytes_per_s=1e6
    )
    found = bound([broker(1), full])
    assert (found.resource, found.broker_id) == (Resource.NETWORK, 2)
    assert (
        "Kafka's bytes filled 95% of the 40 Mbit/s interface (38 Mbit/s in, 8 Mbit/s out)"
        in found.text
    )
    assert "network 0.95" not in found.text, "the others' use only"
    almost = broker(2, link_mbit_per_s=40.0, network_in_bytes_per_s=4.4e6)
    assert bound([almost]).resource is Resource.UNKNOWN


def test_a_full_heap_explains_busy_handlers_before_the_cpu_does() -> None:
    window = broker(
        handler_idle=0.1, gc_share=0.31, heap_used_share_min=0.88, cpu_machine_share=0.97
    )
    found = bound([window])
    assert found.resource is Resource.HEAP
    assert (
        "garbage collection stopped all threads for 31% of the time, with never less than 88% of "
        "the heap in use" in found.text
    )
    just = replace(window, gc_share=GC_SHARE_HIGH)
    assert bound([just]).resource is Resource.HEAP
    assert bound([replace(just, gc_share=GC_SHARE_HIGH - 0.01)]).resource is Resource.CPU
    assert bound([broker(gc_share=0.31)]).resource is Resource.HEAP
    assert bound([broker(gc_share=0.2)]).resource is Resource.UNKNOWN


def test_a_quota_comes_before_its_effects() -> None:
    throttled = broker(produce=RequestWindow(throttle_ms=12.5), handler_idle=0.01)
    found = bound([throttled])
    assert found.resource is Resource.QUOTA
    assert "throttled for 12.5 ms on average" in found.text
    assert row(throttled, Resource.QUOTA).saturation == 12.5


def test_a_throttle_time_within_rounding_is_no_quota() -> None:
    rounded = broker(produce=RequestWindow(per_s=100.0, throttle_ms=1e-9), handler_idle=0.01)
    assert row(rounded, Resource.QUOTA).saturation == 0.0
    assert bound([rounded]).resource is not Resource.QUOTA
    short = broker(produce=RequestWindow(per_s=100.0, throttle_ms=0.001), handler_idle=0.01)
    assert bound([short]).resource is Resource.QUOTA, "one millisecond in ten seconds"


def test_the_follower_that_lags_is_named_beside_the_leader_that_shows_it() -> None:
    leader = broker(1, isr_changed_share=0.9, replica_lag_max_records=0.0)
    follower = broker(2, replica_lag_max_records=51_234.0)
    found = bound([leader, follower])
    assert (found.resource, found.broker_id) == (Resource.REPLICATION, 1)
    assert "the replicas on broker 2 by up to 51234 records" in found.text


def test_the_text_names_the_utilization_of_all_known_resources(snapshot: SnapshotAssertion) -> None:
    window = broker(
        handler_idle=0.07,
        produce=RequestWindow(per_s=40.0, total_ms=444.0, local_ms=41.0, request_queue_ms=400.0),
        flush_threads=1.6,
        flush_ms=40.0,
        cpu_machine_share=0.38,
        network_idle=0.89,
    )
    found = bound([window])
    assert found.resource is Resource.DISK
    assert found.text == snapshot
    figures = ("444.0 ms", "41.0 of it local", "400.0 queued", "local 93%")
    assert not [figure for figure in figures if figure not in found.text]
    assert found.text.endswith(
        "utilization of the others: request handlers 0.93, network threads 0.11, CPU 0.38, "
        "replication 0.00"
    )


def test_the_readings_of_sockets_heap_and_disks_reach_the_window() -> None:
    samples = busy_samples()
    for second, each in enumerate(samples):
        assert isinstance(each.values, dict)
        each.values.update(
            {
                "network_in_bytes:PLAINTEXT/0": 50 + 1_000.0 * second,
                "network_in_bytes:INTERNAL/1": 70 + 500.0 * second,
                "network_out_bytes:PLAINTEXT/0": 10 + 20.0 * second,
                "gc_ms:ZGC Major Cycles": 900.0 * second,
                "gc_ms:zgc_minor_cycles": 900.0 * second,
                "offline_replicas": float(second == 5),
            }
        )
    (window,) = broker_windows(samples, [1], START_S, START_S + 10, 1.0, link_mbit_per_s=100.0)
    assert window.network_in_bytes_per_s == pytest.approx(1_500.0)
    assert window.network_out_bytes_per_s == pytest.approx(20.0)
    assert window.gc_share == pytest.approx(0.01), "concurrent cycles stop no threads"
    assert window.heap_used_share_min == pytest.approx(0.101)
    assert window.heap_used_share_max == pytest.approx(0.111)
    assert window.offline_replicas_max == 1.0
    assert window.link_mbit_per_s == 100.0
    assert broker_windows([sample(0)], [1], START_S, START_S + 1, 1.0)[0].gc_share is None


def test_the_tables_of_all_brokers_stand_one_below_the_other() -> None:
    rows = use_table([broker(1), broker(2)])
    assert [r.broker_id for r in rows] == [1] * 8 + [2] * 8

"""The limiting resource of an overload with its figures, and the USE table beside it."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from metrics.judging.attribution import attribute
from metrics.judging.nearness import GC_SHARE_HIGH
from metrics.judging.thresholds import Thresholds
from metrics.judging.verdict import judge
from metrics.windows.broker import BrokerWindow, RequestWindow, broker_windows
from metrics.windows.host import DiskWindow, HostWindow, InterfaceWindow
from metrics.windows.use import Resource, ResourceUse, use_of, use_table
from search.model import Verdict
from tests.support.evidence import (
    HOST,
    START_S,
    broker,
    busy_samples,
    client,
    evidence,
    goal,
    judged,
    links,
    sample,
    with_one,
)

Given = dict[str, Any]
R = Resource


def over(**changes: Any) -> Given:
    """A shortfall of three brokers, with changes of the second."""
    return {"seen": client(acked_records=9_000), "brokers": with_one(**changes)}


def on(host: Given, **changes: Any) -> Given:
    """The same on one host, with changes of the host."""
    return over(**changes) | {"hosts": (replace(HOST, **host),)}


def those(*brokers: BrokerWindow) -> Given:
    return over() | {"brokers": brokers}


BUSY = RequestWindow(per_s=100.0, total_ms=20.0, local_ms=18.0, request_queue_ms=1.5, remote_ms=0.1)
WAITING: Given = {
    "handler_idle": 0.05,
    "produce": RequestWindow(per_s=100.0, total_ms=20.0, local_ms=18.0, request_queue_ms=1.5),
    "cpu_cores": 0.2,
}
LATE: Given = {"handler_idle": 0.1, "produce": BUSY}
FULL_DISK = (DiskWindow("sda", 90e6, 1e6, 800.0, 0.99, 7.5),)
# Readings of brokers on a planted disk of 10 MB/s that took more than it writes: the kernel lets
# writers wait for up to 0.2 s, and the disk rests meanwhile.
RESTING_DISK = (DiskWindow("loop1", 0.0, 8.31e6, 68.0, 0.82, 9.28),)
HEAP: Given = {"handler_idle": 0.1, "heap_used_share_min": 0.88, "cpu_machine_share": 0.97}
SHARED: Given = LATE | {"cpu_machine_share": 0.96, "cpu_process_share": 0.2}

CASES: dict[str, tuple[Resource, Given]] = {
    # --- readings of brokers
    "fsync per append": (R.DISK,
        over(handler_idle=0.07, produce=BUSY, flush_per_s=100.0, flush_ms=16.0, flush_threads=1.6,
             cpu_cores=0.4)),
    "half of the flushes are a follower's": (R.REQUEST_HANDLERS,
        over(handler_idle=0.07, produce=BUSY, flush_threads=1.6, flush_ms=16.0,
             replication_bytes_in_per_s=1e6, cpu_cores=1.8, cpu_machine_share=0.5)),
    "half of the flushes are a follower's, on a disk that never rests": (R.DISK,
        over(handler_idle=0.07, produce=RequestWindow(per_s=100.0, total_ms=20.0, local_ms=9.0),
             flush_threads=0.95, flush_ms=6.0, replication_bytes_in_per_s=2e6, cpu_cores=0.3)),
    "all resources with their figures": (R.DISK,
        over(handler_idle=0.07, flush_threads=1.6, flush_ms=40.0, cpu_machine_share=0.38,
             produce=RequestWindow(per_s=40.0, total_ms=444.0, local_ms=41.0,
                                   request_queue_ms=400.0), network_idle=0.89)),
    "machine busy": (R.CPU, over(**LATE, cpu_machine_share=0.97)),
    "waiting without CPU and without flushes": (R.REQUEST_HANDLERS,
        over(**LATE, flush_threads=0.0, cpu_cores=0.2)),
    "a wait with its reads": (R.REQUEST_HANDLERS,
        over(**LATE, flush_threads=0.2, cpu_cores=0.2, disk_read_bytes_per_s=85e6,
             disk_write_bytes_per_s=0.0)),
    "a wait for what may be flushes": (R.REQUEST_HANDLERS,
        over(**LATE, flush_threads=None, cpu_cores=0.2)),
    "busy, and no CPU among the metrics": (R.REQUEST_HANDLERS,
        over(**LATE, cpu_cores=None, cpu_machine_share=None)),
    "few flushes beside many fetches": (R.REQUEST_HANDLERS,
        over(handler_idle=0.1, produce=RequestWindow(per_s=10.0, total_ms=20.0, local_ms=10.0),
             fetch_consumer=RequestWindow(per_s=100.0, local_ms=8.0), flush_threads=0.09,
             cpu_cores=0.8)),
    "handlers on a machine that others keep busy": (R.REQUEST_HANDLERS,
        over(**LATE, flush_threads=0.0, cpu_cores=0.2, cpu_process_share=0.1,
             cpu_machine_share=0.97)),
    "a machine that others keep busy": (R.CPU, over(cpu_machine_share=0.97, cpu_process_share=0.1)),
    "a machine that brokers keep busy together": (R.CPU,
        those(*(broker(n, **SHARED) for n in (1, 2, 3)))),
    "one of several brokers on a busy machine": (R.REQUEST_HANDLERS,
        those(broker(1, **SHARED), *(broker(n, cpu_process_share=0.2) for n in (2, 3)))),
    "followers behind on a machine that others keep busy": (R.REPLICATION,
        over(cpu_machine_share=0.97, cpu_process_share=0.1, isr_changed_share=0.9)),
    "a follower that flushes all the time": (R.DISK, over(flush_threads=1.0)),
    "a heap that is never emptied": (R.HEAP, over(heap_used_share_min=0.97, gc_share=0.1)),
    "a full heap before the CPU": (R.HEAP, over(**HEAP, gc_share=0.31)),
    "a heap that is just full": (R.HEAP, over(**HEAP, gc_share=GC_SHARE_HIGH)),
    "a heap that is not full": (R.CPU, over(**HEAP, gc_share=GC_SHARE_HIGH - 0.01)),
    "many collections": (R.HEAP, over(gc_share=0.31)),
    "fewer collections": (R.UNKNOWN, over(gc_share=0.2)),
    "few handlers": (R.REQUEST_HANDLERS, over(**LATE, flush_threads=0.0, cpu_cores=1.9)),
    "network threads": (R.NETWORK_THREADS, over(network_idle=0.04)),
    "a full link": (R.NETWORK,
        over(link_mbit_per_s=40.0, network_in_bytes_per_s=4.75e6, network_out_bytes_per_s=1e6)),
    "an almost full link": (R.UNKNOWN, over(link_mbit_per_s=40.0, network_in_bytes_per_s=4.4e6)),
    "shortfall on a busy machine": (R.CPU, over(cpu_machine_share=0.99)),
    "followers behind": (R.REPLICATION, over(isr_changed_share=0.9)),
    "the follower that lags beside its leader": (R.REPLICATION,
        those(broker(1, isr_changed_share=0.9, replica_lag_max_records=0.0),
              broker(2, replica_lag_max_records=51_234.0))),
    "followers of one broker after the other": (R.REPLICATION,
        those(*(broker(n, isr_changed_share=0.3 + n / 100) for n in (1, 2, 3)))
        | {"any_isr_changed_share": 0.9}),
    "waiting for followers": (R.REPLICATION,
        over(produce=RequestWindow(per_s=1.0, total_ms=40.0, local_ms=1.0, remote_ms=38.0))),
    "nothing near its limit": (R.UNKNOWN, over()),
    "a quota before its effects": (R.QUOTA,
        over(produce=RequestWindow(throttle_ms=12.5), handler_idle=0.01)),
    "a throttle time within rounding": (R.REQUEST_HANDLERS,
        over(produce=RequestWindow(per_s=100.0, throttle_ms=1e-9), handler_idle=0.01)),
    "a throttle time of one millisecond in ten seconds": (R.QUOTA,
        over(produce=RequestWindow(per_s=100.0, throttle_ms=0.001), handler_idle=0.01)),
    "several resources": (R.DISK,
        those(broker(1, handler_idle=0.02, produce=BUSY, flush_threads=1.6),
              broker(2, network_idle=0.05), broker(3, cpu_machine_share=0.95))),
    # --- readings of hosts
    "a host with nothing at its limit": (R.UNKNOWN, on({})),
    "a full interface": (R.NETWORK, on({"interfaces": links(received_bytes_per_s=118e6)})),
    "the host of another broker": (R.UNKNOWN,
        on({"brokers": (9,), "interfaces": links(received_bytes_per_s=124e6)})),
    "packets that the host drops": (R.NETWORK,
        on({"interfaces": links(dropped=3_000.0, speed_bytes_per_s=None),
            "retransmitted_share": 0.03})),
    "packets lost elsewhere": (R.NETWORK, on({"retransmitted_share": 0.03})),
    "few packets that are sent again": (R.UNKNOWN, on({"retransmitted_share": 0.005})),
    "a slow disk by its queue": (R.DISK, on({"disks": FULL_DISK}, **WAITING)),
    "a slow disk that rests while writers wait for it": (R.DISK,
        on({"disks": RESTING_DISK, "pressure_io": 0.77}, **WAITING)),
    "a disk that rests while no task waits for it": (R.REQUEST_HANDLERS,
        on({"disks": RESTING_DISK, "pressure_io": 0.25}, **WAITING)),
    "a disk that rests on a host that does not show waits for I/O": (R.REQUEST_HANDLERS,
        on({"disks": RESTING_DISK}, **WAITING)),
    "a disk with work for half of the time while tasks wait for it": (R.REQUEST_HANDLERS,
        on({"disks": (replace(RESTING_DISK[0], busy_share=0.5),), "pressure_io": 0.77}, **WAITING)),
    "a disk that rests while writers that are no handlers wait for it": (R.UNKNOWN,
        on({"disks": RESTING_DISK, "pressure_io": 0.77})),
    "a slow disk that handlers do not wait for": (R.DISK, on({"disks": FULL_DISK})),
    "a disk that is busy with one operation at a time": (R.UNKNOWN,
        on({"disks": (replace(FULL_DISK[0], queue=0.97),)})),
    "a busy disk with an unknown queue": (R.UNKNOWN,
        on({"disks": (replace(FULL_DISK[0], queue=None),)})),
    "handlers that use the CPU beside a busy disk": (R.REQUEST_HANDLERS,
        on({"disks": FULL_DISK}, **WAITING | {"cpu_cores": 1.75})),
    "handlers that wait while the disk is known to rest": (R.REQUEST_HANDLERS, on({}, **WAITING)),
    "handlers that wait while the disk is busy for just half of the time": (R.REQUEST_HANDLERS,
        on({"disks": (replace(HOST.disks[0], busy_share=0.5),)}, **WAITING)),
    "the CPU by its run queue": (R.CPU,
        on({"cpu_busy": 0.97, "running_threads": 9.0}, cpu_machine_share=None)),
    "handlers that a CPU quota stops": (R.CPU,
        on({"throttled_shares": {2: 0.93, 1: 0.1}},
           **WAITING | {"handler_idle": 0.03, "cpu_cores": 0.3})),
    "a broker that a CPU quota stops": (R.CPU, on({"throttled_shares": {2: 0.5}}, cpu_cores=0.3)),
    "a CPU quota that stops a broker at times": (R.REQUEST_HANDLERS,
        on({"throttled_shares": {2: 0.49}}, **WAITING | {"handler_idle": 0.03, "cpu_cores": 0.3})),
    "memory that swaps": (R.MEMORY,
        on({"swapped_pages_per_s": 900.0, "memory_total_bytes": 10.0,
            "memory_available_bytes": 1.0}, **WAITING)),
    "a process that was killed for memory": (R.MEMORY, on({"oom_kills": 1.0})),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_limiting_resource_with_its_figures(case: str, snapshot: SnapshotAssertion) -> None:
    resource, given = CASES[case]
    found = attribute(evidence(**given), Thresholds())
    assert found.resource is resource
    assert found.text == snapshot
    judgement = judged(**given)
    if resource is not R.QUOTA:
        assert judgement.verdict is Verdict.OVERLOADED
        assert (judgement.limited_by, judgement.attribution) == (found.resource, found.text)


def test_missing_evidence_is_named() -> None:
    def text(given: Given) -> str:
        return attribute(evidence(**given), Thresholds()).text

    silent = text(over(start_s=None, handler_idle=None))
    assert "not known: broker 2 gave no samples; the metrics" in silent
    bare = text(over(cpu_machine_share=None, flush_threads=None, isr_changed_share=None))
    assert (
        "the metrics of driver-jvm do not show the machines' CPU, garbage collection, flushes, "
        "ISR changes; " in bare
    )
    stated = text(those(broker(1, link_mbit_per_s=1_000.0)))
    bare_host = text(on({"disks": (), "interfaces": links(speed_bytes_per_s=None)}))
    hints = ("link_mbit_per_s", "metrics.host")
    for seen, named in ((bare, (1, 1)), (stated, (0, 1)), (on({}), (0, 0)), (bare_host, (1, 1))):
        found = seen if isinstance(seen, str) else text(seen)
        assert tuple(hint in found for hint in hints) == named, found


# --- the table of utilization, saturation and errors ------------------------------------------

EMPTY = BrokerWindow(7, None, None, 1.0, 10, 10)
LITTLE: Given = {
    "produce": RequestWindow(
        per_s=100.0, request_queue_ms=30.0, response_queue_ms=5.0, response_send_ms=2.0
    ),
    "fetch_follower": RequestWindow(per_s=50.0, request_queue_ms=20.0, response_queue_ms=0.0),
}
LINK: Given = {"link_mbit_per_s": 100.0}


@pytest.mark.parametrize(
    ("changes", "resource", "utilization", "saturation"),
    [
        (LITTLE, R.REQUEST_HANDLERS, 0.2, 4.0),  # waiting requests by Little's law
        (LITTLE, R.NETWORK_THREADS, 0.1, 0.5),
        (LITTLE, R.NETWORK, None, 0.2),
        # Only flushes are waits for the disk.
        ({"produce": BUSY, "cpu_cores": 0.3, "flush_threads": 0.4}, R.DISK, 0.4, 0.4),
        ({"produce": BUSY, "flush_threads": 1.7}, R.DISK, 1.0, 1.7),
        # A broker that uses all its cores keeps the machine busy.
        ({"cpu_process_share": 0.97}, R.CPU, 0.97, None),
        ({"cpu_process_share": 0.2}, R.CPU, 0.4, None),
        ({"cpu_machine_share": None, "cpu_process_share": 0.3}, R.CPU, 0.3, None),
        # A link is used by all bytes of its busier direction.
        (LINK | {"network_in_bytes_per_s": 5e6, "replication_bytes_in_per_s": 1e6,
                 "network_out_bytes_per_s": 2e6}, R.NETWORK, 0.48, 0.01),
        (LINK | {"network_in_bytes_per_s": 1e6, "network_out_bytes_per_s": 9e6}, R.NETWORK, 0.72,
         0.01),
        (LINK | {"bytes_out_per_s": 3e6, "replication_bytes_out_per_s": 4e6}, R.NETWORK, 0.56,
         0.01),
        ({"network_in_bytes_per_s": 1e9}, R.NETWORK, None, 0.01),
        ({"produce": RequestWindow(throttle_ms=12.5)}, R.QUOTA, None, 12.5),
        ({"produce": RequestWindow(per_s=100.0, throttle_ms=1e-9)}, R.QUOTA, None, 0.0),
    ],
)  # fmt: skip
def test_the_use_of_a_resource(
    changes: Given, resource: Resource, utilization: float | None, saturation: float | None
) -> None:
    (found,) = [each for each in use_of(broker(**changes)) if each.resource is resource]
    assert found.utilization == pytest.approx(utilization)
    assert found.saturation == pytest.approx(saturation)


def test_every_resource_has_a_row_and_unknown_values_stay_unknown() -> None:
    rows = use_of(EMPTY)
    of_none = {R.MEMORY, R.CONNECTION, R.UNKNOWN}
    assert [r.resource for r in rows] == [r for r in R if r not in of_none]
    assert {(r.broker_id, r.utilization, r.saturation, r.errors) for r in rows} == {
        (7, None, None, None)
    }
    assert Counter(r.broker_id for r in use_table([broker(1), broker(2)])) == {1: 8, 2: 8}
    full = broker(offline_replicas_max=1.0, replica_lag_max_records=5.0, gc_share=0.1)
    for each in use_of(full):
        assert (each.saturation is None) or each.saturation_unit, each
        assert (each.errors is None) or each.errors_unit, each


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


# --- the named resource and the table beside it ----------------------------------------------

shares = st.none() | st.floats(0.0, 1.0) | st.just(1.0)
amounts = st.none() | st.floats(0.0, 4.0)
times = st.builds(
    RequestWindow,
    per_s=st.none() | st.floats(0.0, 1_000.0),
    local_ms=st.none() | st.floats(0.0, 50.0),
    throttle_ms=st.none() | st.just(0.0) | st.floats(0.0, 50.0),
    **dict.fromkeys(
        ("total_ms", "request_queue_ms", "remote_ms"), st.none() | st.floats(0.0, 500.0)
    ),
)
windows: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(
            ("handler_idle", "network_idle", "cpu_machine_share", "cpu_process_share", "gc_share",
             "heap_used_share_min", "isr_changed_share"), shares),
        **dict.fromkeys(
            ("bytes_in_per_s", "replication_bytes_in_per_s", "network_in_bytes_per_s"),
            st.none() | st.floats(0.0, 1e8)),
        **dict.fromkeys(("cpu_cores", "flush_threads"), amounts),
        "flush_ms": st.none() | st.floats(0.0, 50.0),
        "link_mbit_per_s": st.none() | st.floats(1.0, 10_000.0),
        **dict.fromkeys(("produce", "fetch_consumer"), times),
    },
)  # fmt: skip
LIMITS = {
    R.REQUEST_HANDLERS: 0.8, R.NETWORK_THREADS: 0.8, R.CPU: 0.9, R.HEAP: 0.95, R.DISK: 0.9,
    R.NETWORK: 0.9, R.REPLICATION: 0.5,
}  # fmt: skip
"""The utilizations at which a row of the table is at its limit, as in docs/attribution.md."""
HALF_OF_A_BUSY_HANDLER = 0.4


def near(row: ResourceUse) -> float:
    """The nearness of a row to its limit, as the table shows it; at most 1."""
    if row.resource is Resource.QUOTA:
        return 1.0 if row.saturation else 0.0
    used = (row.utilization or 0.0) / LIMITS[row.resource]
    if row.resource is Resource.REPLICATION:
        return 1.0 if used > 1.0 else min(used, 0.999)
    if row.resource is Resource.HEAP:
        used = max(used, (row.saturation or 0.0) / 0.25)
    return min(1.0, used)


@pytest.mark.computes
@settings(max_examples=500, deadline=None, derandomize=True)
@given(st.lists(windows, min_size=1, max_size=3))
def test_the_named_resource_never_contradicts_the_table_beside_it(
    changed: list[dict[str, Any]],
) -> None:
    brokers = [broker(number, **changes) for number, changes in enumerate(changed, 1)]
    found = attribute(evidence(brokers=brokers), Thresholds())
    rows = use_table(brokers)
    fullest = max(near(each) for each in rows)
    if found.resource is Resource.UNKNOWN:
        assert fullest < 1.0
        assert not [each for each in rows if (each.utilization or 0.0) >= 1.0]
        assert "not known: " in found.text
        return
    own = {each.resource: each for each in rows if each.broker_id == found.broker_id}
    named = own[found.resource]
    if "waiting for followers took" in found.text:
        assert fullest < 1.0
    elif found.resource is Resource.DISK and near(own[Resource.REQUEST_HANDLERS]) == 1.0:
        assert (named.utilization or 0.0) >= HALF_OF_A_BUSY_HANDLER - 1e-9
    else:
        assert near(named) >= fullest - 1e-6
    others = {each.resource for each in rows if near(each) == 1.0} - {found.resource}
    for each in others - {Resource.REQUEST_HANDLERS}:
        assert f"{each.value} (broker " in found.text, "each resource at its limit is named"


def readings(kind: type, chance: Random) -> dict[str, Any]:
    """Each reading of a window that may be missing: missing, or near one of the limits."""
    names = [each.name for each in fields(kind) if str(each.type) == "float | None"]
    values = [None, None, 0.01, 0.6, 0.97, 1.5, 300.0]
    return {name: chance.choice(values) for name in names if name not in ("start_s", "end_s")}


@pytest.mark.computes
def test_a_missing_reading_is_never_put_into_words() -> None:
    chance = Random(5)
    limits = goal(network_idle_min=0.3, request_queue_max=10.0, produce_response_ms_max=5.0)
    named = set()
    for _ in range(3_000):
        produce = RequestWindow(**readings(RequestWindow, chance))
        window = broker(1, **readings(BrokerWindow, chance) | {"produce": produce})
        generates = chance.random() < 0.3
        host = HostWindow(
            "h1",
            brokers=() if generates else (1,),
            generates=generates,
            shares_machine=False,
            disks=(DiskWindow("sda", **readings(DiskWindow, chance)),),
            interfaces=(InterfaceWindow("eth0", **readings(InterfaceWindow, chance)),),
            throttled_shares={1: chance.choice([0.0, 0.0, 0.6])},
            **readings(HostWindow, chance),
        )
        seen = evidence(client(acked_records=5_000), [window], hosts=(host,))
        found = attribute(seen, limits)
        named.add(found.resource)
        for text in (found.text, *(each.text for each in judge(seen, limits).reasons)):
            assert "None" not in text and "nan" not in text
    assert len(named) > 6, "the readings reach most of the rules"

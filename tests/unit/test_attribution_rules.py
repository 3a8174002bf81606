from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from metrics.judging.attribution import attribute
from metrics.judging.thresholds import Thresholds
from metrics.judging.verdict import judge
from metrics.trial.judgement import Judgement
from metrics.windows.broker import BrokerWindow, RequestWindow
from metrics.windows.host import DiskWindow, HostWindow, InterfaceWindow
from metrics.windows.resource import Resource
from metrics.windows.use import ResourceUse, use_table
from search.model import Verdict
from tests.support.evidence import broker, client, evidence, goal, judged, with_one


def overload(acked: int, **changes: object) -> Judgement:
    return judged(client(acked_records=acked), with_one(**changes))


BUSY = RequestWindow(per_s=100.0, total_ms=20.0, local_ms=18.0, request_queue_ms=1.5, remote_ms=0.1)
CASES: dict[str, tuple[Callable[[], Judgement], Resource, tuple[str, ...]]] = {
    "fsync per append": (
        lambda: overload(
            10_000,
            handler_idle=0.07,
            produce=BUSY,
            flush_per_s=100.0,
            flush_ms=16.0,
            flush_threads=1.6,
            cpu_cores=0.4,
        ),
        Resource.DISK,
        ("idle 0.07", "89%", "16.0 ms"),
    ),
    "half of the flushes are a follower's": (
        lambda: overload(
            10_000,
            handler_idle=0.07,
            produce=BUSY,
            flush_threads=1.6,
            flush_ms=16.0,
            replication_bytes_in_per_s=1e6,
            cpu_cores=1.8,
            cpu_machine_share=0.5,
        ),
        Resource.REQUEST_HANDLERS,
        ("idle", "too few request handlers"),
    ),
    "half of the flushes are a follower's, on a disk that never rests": (
        lambda: overload(
            10_000,
            handler_idle=0.07,
            produce=RequestWindow(per_s=100.0, total_ms=20.0, local_ms=9.0),
            flush_threads=0.95,
            flush_ms=6.0,
            replication_bytes_in_per_s=2e6,
            cpu_cores=0.3,
        ),
        Resource.DISK,
        ("34%",),
    ),
    "machine busy": (
        lambda: overload(10_000, handler_idle=0.1, produce=BUSY, cpu_machine_share=0.97),
        Resource.CPU,
        ("97%",),
    ),
    "waiting without CPU and without flushes": (
        lambda: overload(
            10_000,
            handler_idle=0.1,
            produce=BUSY,
            flush_threads=0.0,
            cpu_cores=0.2,
        ),
        Resource.REQUEST_HANDLERS,
        ("89%", "0% flushes", "a lock"),
    ),
    "a wait with its reads": (
        lambda: overload(
            10_000,
            handler_idle=0.1,
            produce=BUSY,
            flush_threads=0.2,
            cpu_cores=0.2,
            disk_read_bytes_per_s=85e6,
            disk_write_bytes_per_s=0.0,
        ),
        Resource.REQUEST_HANDLERS,
        ("11% flushes", "a full page cache", "85.0 MB/s", "wrote 0.0 MB/s"),
    ),
    "a wait for what may be flushes": (
        lambda: overload(10_000, handler_idle=0.1, produce=BUSY, flush_threads=None, cpu_cores=0.2),
        Resource.REQUEST_HANDLERS,
        ("flushes are unknown",),
    ),
    "busy, and no CPU among the metrics": (
        lambda: overload(
            10_000, handler_idle=0.1, cpu_cores=None, cpu_machine_share=None, produce=BUSY
        ),
        Resource.REQUEST_HANDLERS,
        ("the brokers' CPU",),
    ),
    "few flushes beside many fetches": (
        lambda: overload(
            10_000,
            handler_idle=0.1,
            produce=RequestWindow(per_s=10.0, total_ms=20.0, local_ms=10.0),
            fetch_consumer=RequestWindow(per_s=100.0, local_ms=8.0),
            flush_threads=0.09,
            cpu_cores=0.8,
        ),
        Resource.REQUEST_HANDLERS,
        ("idle", "too few request handlers"),
    ),
    "handlers on a machine that others keep busy": (
        lambda: overload(
            10_000,
            handler_idle=0.1,
            produce=BUSY,
            flush_threads=0.0,
            cpu_cores=0.2,
            cpu_process_share=0.1,
            cpu_machine_share=0.97,
        ),
        Resource.REQUEST_HANDLERS,
        ("97%", "keep other work off this machine"),
    ),
    "a machine that others keep busy": (
        lambda: overload(9_000, cpu_machine_share=0.97, cpu_process_share=0.1),
        Resource.CPU,
        ("97%", "10%", "keep other work off this machine", "not known: "),
    ),
    "followers behind on a machine that others keep busy": (
        lambda: overload(
            9_000, cpu_machine_share=0.97, cpu_process_share=0.1, isr_changed_share=0.9
        ),
        Resource.REPLICATION,
        ("90%",),
    ),
    "a follower that flushes all the time": (
        lambda: overload(9_000, flush_threads=1.0),
        Resource.DISK,
        ("1.0 threads",),
    ),
    "a heap that is never emptied": (
        lambda: overload(9_000, heap_used_share_min=0.97, gc_share=0.1),
        Resource.HEAP,
        ("97%",),
    ),
    "few handlers": (
        lambda: overload(10_000, handler_idle=0.1, produce=BUSY, flush_threads=0.0, cpu_cores=1.9),
        Resource.REQUEST_HANDLERS,
        ("too few request handlers", "20.0 ms", "18.0 of it local", "1.5 queued"),
    ),
    "network threads": (
        lambda: overload(9_000, network_idle=0.04),
        Resource.NETWORK_THREADS,
        ("idle 0.04",),
    ),
    "shortfall on a busy machine": (
        lambda: overload(9_000, cpu_machine_share=0.99),
        Resource.CPU,
        ("99%",),
    ),
    "followers behind": (
        lambda: overload(10_000, isr_changed_share=0.9),
        Resource.REPLICATION,
        ("90%",),
    ),
    "waiting for followers": (
        lambda: overload(
            9_000, produce=RequestWindow(per_s=1.0, total_ms=40.0, local_ms=1.0, remote_ms=38.0)
        ),
        Resource.REPLICATION,
        ("95%", "38.0 of 40.0 ms", "not known: "),
    ),
    "nothing near its limit": (
        lambda: overload(9_000),
        Resource.UNKNOWN,
        ("CPU with 44%",),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_limiting_resource_with_its_figures(case: str, snapshot: SnapshotAssertion) -> None:
    make, resource, figures = CASES[case]
    judgement = make()
    assert judgement.verdict is Verdict.OVERLOADED
    assert judgement.limited_by is resource
    assert judgement.attribution == snapshot
    assert not [figure for figure in figures if figure not in judgement.attribution]
    assert judgement.attribution.startswith(f"{resource.value}: broker ")
    assert "; utilization of the others: " in judgement.attribution


def test_an_unknown_resource_is_explained_by_the_missing_evidence() -> None:
    silent = evidence(brokers=with_one(start_s=None, handler_idle=None))
    assert (
        "not known: broker 2 gave no samples; the metrics" in attribute(silent, Thresholds()).text
    )
    bare = overload(9_000, cpu_machine_share=None, flush_threads=None, isr_changed_share=None)
    assert bare.limited_by is Resource.UNKNOWN
    assert (
        "the metrics of driver-jvm do not show the machines' CPU, garbage collection, flushes, "
        "ISR changes; " in bare.attribution
    )
    assert "(link_mbit_per_s)" in bare.attribution
    assert "(metrics.host)" in bare.attribution
    stated = judged(client(acked_records=9_000), [broker(1, link_mbit_per_s=1_000.0)])
    assert "link_mbit_per_s" not in stated.attribution


def test_other_resources_at_their_limit_are_named_with_their_broker() -> None:
    brokers = [
        broker(1, handler_idle=0.02, produce=BUSY, flush_threads=1.6),
        broker(2, network_idle=0.05),
        broker(3, cpu_machine_share=0.95),
    ]
    seen = judged(client(), brokers)
    assert seen.limited_by is Resource.DISK
    also = seen.attribution.partition("; also at its limit: ")[2].partition(";")[0]
    assert also == "CPU (broker 3), network threads (broker 2)"
    assert "also at its limit" not in judged(client(), brokers[:1]).attribution.replace(
        "disk (broker 1)", ""
    )


def test_brokers_that_share_a_machine_keep_it_busy_together() -> None:
    alike = {"handler_idle": 0.1, "produce": BUSY, "cpu_machine_share": 0.96}
    three = [broker(number, cpu_process_share=0.2, **alike) for number in (1, 2, 3)]
    assert judged(client(), three).limited_by is Resource.CPU
    apart = [three[0], *(broker(number, cpu_process_share=0.2) for number in (2, 3))]
    assert judged(client(), apart).limited_by is Resource.REQUEST_HANDLERS


def test_an_isr_that_wanders_is_named_like_one_that_stays() -> None:
    wandering = [broker(number, isr_changed_share=0.3 + number / 100) for number in (1, 2, 3)]
    seen = judged(client(), wandering, any_isr_changed_share=0.9)
    assert seen.limited_by is Resource.REPLICATION
    assert "replication: broker 3: followers fell behind" in seen.attribution
    assert "in 90% of the samples" in seen.attribution


# --- the named resource and the table beside it ----------------------------------------------

shares = st.none() | st.floats(0.0, 1.0) | st.just(1.0)
amounts = st.none() | st.floats(0.0, 4.0)
times = st.builds(
    RequestWindow,
    per_s=st.none() | st.floats(0.0, 1_000.0),
    total_ms=st.none() | st.floats(0.0, 500.0),
    local_ms=st.none() | st.floats(0.0, 50.0),
    request_queue_ms=st.none() | st.floats(0.0, 500.0),
    remote_ms=st.none() | st.floats(0.0, 500.0),
    throttle_ms=st.none() | st.just(0.0) | st.floats(0.0, 50.0),
)
windows: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "handler_idle": shares,
        "network_idle": shares,
        "cpu_machine_share": shares,
        "cpu_process_share": shares,
        "cpu_cores": amounts,
        "gc_share": shares,
        "heap_used_share_min": shares,
        "flush_threads": amounts,
        "flush_ms": st.none() | st.floats(0.0, 50.0),
        "bytes_in_per_s": st.none() | st.floats(0.0, 1e8),
        "replication_bytes_in_per_s": st.none() | st.floats(0.0, 1e8),
        "network_in_bytes_per_s": st.none() | st.floats(0.0, 1e8),
        "link_mbit_per_s": st.none() | st.floats(1.0, 10_000.0),
        "isr_changed_share": shares,
        "produce": times,
        "fetch_consumer": times,
    },
)
LIMITS = {
    Resource.REQUEST_HANDLERS: 0.8,
    Resource.NETWORK_THREADS: 0.8,
    Resource.CPU: 0.9,
    Resource.HEAP: 0.95,
    Resource.DISK: 0.9,
    Resource.NETWORK: 0.9,
    Resource.REPLICATION: 0.5,
}
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

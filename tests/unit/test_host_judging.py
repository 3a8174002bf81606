"""Readings of hosts become causes with evidence, or make trials invalid."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from metrics.judging.attribution import attribute
from metrics.judging.thresholds import Thresholds
from metrics.judging.verdict import judge
from metrics.trial.evidence import Evidence
from metrics.trial.judgement import Judgement
from metrics.trial.quota import QuotaWindow
from metrics.windows.broker import RequestWindow
from metrics.windows.host import DiskWindow, HostWindow, InterfaceWindow
from metrics.windows.resource import Resource
from search.model import Observation, Verdict
from tests.support.evidence import broker, client, evidence, goal, judged, rules, with_one
from tests.support.rows import trial

HOST = HostWindow(
    "h",
    (1, 2, 3),
    generates=False,
    shares_machine=True,
    start_s=0.0,
    end_s=10.0,
    samples=10,
    cores=4.0,
    cpu_busy=0.3,
    running_threads=2.0,
    swapped_pages_per_s=0.0,
    oom_kills=0.0,
    retransmitted_share=0.0001,
    disks=(DiskWindow("sda", 0.0, 1e6, 20.0, 0.2, 0.1),),
    interfaces=(InterfaceWindow("eth0", 50e6, 10e6, 60_000.0, 0.0, 0.0, 125e6),),
)
FULL_DISK = (DiskWindow("sda", 90e6, 1e6, 800.0, 0.99, 7.5),)
# Readings of brokers on a planted disk of 10 MB/s that took more than it writes: the kernel lets
# writers wait for up to 0.2 s, and the disk rests meanwhile.
RESTING_DISK = (DiskWindow("loop1", 0.0, 8.31e6, 68.0, 0.82, 9.28),)
WAITING: dict[str, Any] = {
    "handler_idle": 0.05,
    "produce": RequestWindow(per_s=100.0, total_ms=20.0, local_ms=18.0, request_queue_ms=1.5),
    "cpu_cores": 0.2,
}


def overload(host: HostWindow, **changes: Any) -> Judgement:
    """The judgement of a shortfall of brokers on this host, with changes of the first broker."""
    brokers = (broker(1, **changes), broker(2), broker(3))
    return judged(client(acked_records=9_000), brokers, hosts=(host,))


def links(**changes: Any) -> tuple[InterfaceWindow, ...]:
    return (replace(HOST.interfaces[0], **changes),)


CASES: dict[str, tuple[dict[str, Any], dict[str, Any], Resource, str]] = {
    "nothing at its limit": ({}, {}, Resource.UNKNOWN, "no resource that the metrics show"),
    "a full interface": (
        {"interfaces": links(received_bytes_per_s=118e6)},
        {},
        Resource.NETWORK,
        (
            "interface eth0 of host h at 1000 Mbit/s of which 94% was used carried 944 Mbit/s in "
            "and 80 Mbit/s out, and dropped 0.00% of its packets"
        ),
    ),
    "packets that the host drops": (
        {"interfaces": links(dropped=3_000.0, speed_bytes_per_s=None), "retransmitted_share": 0.03},
        {},
        Resource.NETWORK,
        "and dropped 4.76% of its packets; TCP sent 3.00% of its segments again",
    ),
    "packets lost elsewhere": (
        {"retransmitted_share": 0.03},
        {},
        Resource.NETWORK,
        "packets were lost on the way from host h; TCP sent 3.00% of its segments again",
    ),
    "a slow disk by its queue": (
        {"disks": FULL_DISK},
        WAITING,
        Resource.DISK,
        "disk sda of its host was busy 99% of the time, with 7.5 operations at once",
    ),
    "a slow disk that rests while writers wait for it": (
        {"disks": RESTING_DISK, "pressure_io": 0.77},
        WAITING,
        Resource.DISK,
        (
            "disk loop1 of its host was busy 82% of the time, with 9.3 operations at once; it read "
            "0.0 MB/s and wrote 8.3 MB/s, and tasks of the host waited for I/O for 77% of it"
        ),
    ),
    "a disk that rests while no task waits for it": (
        {"disks": RESTING_DISK, "pressure_io": 0.25},
        WAITING,
        Resource.REQUEST_HANDLERS,
        "a lock, an authorizer, a read from the disk or a full page cache",
    ),
    "a disk that rests on a host that does not show waits for I/O": (
        {"disks": RESTING_DISK},
        WAITING,
        Resource.REQUEST_HANDLERS,
        "a full page cache",
    ),
    "a disk with work for half of the time while tasks wait for it": (
        {"disks": (replace(RESTING_DISK[0], busy_share=0.5),), "pressure_io": 0.77},
        WAITING,
        Resource.REQUEST_HANDLERS,
        "a full page cache",
    ),
    "a disk that rests while writers that are no handlers wait for it": (
        {"disks": RESTING_DISK, "pressure_io": 0.77},
        {},
        Resource.UNKNOWN,
        "",
    ),
    "a slow disk that handlers do not wait for": (
        {"disks": FULL_DISK},
        {},
        Resource.DISK,
        "disk sda of its host was busy 99% of the time",
    ),
    "the CPU by its run queue": (
        {"cpu_busy": 0.97, "running_threads": 9.0},
        {"cpu_machine_share": None},
        Resource.CPU,
        "the machine was 97% busy, with 5.0 threads waiting for a core",
    ),
    "handlers that a CPU quota stops": (
        {"throttled_shares": {1: 0.93, 2: 0.1}},
        {"handler_idle": 0.03, "produce": WAITING["produce"], "cpu_cores": 0.3},
        Resource.CPU,
        (
            "CPU: broker 1: request handlers idle 0.03, and the CPU quota of its control group "
            "stopped it in 93% of the periods; it used 0.30 cores"
        ),
    ),
    "a broker that a CPU quota stops": (
        {"throttled_shares": {1: 0.5}},
        {"cpu_cores": 0.3},
        Resource.CPU,
        "the CPU quota of its control group stopped it in 50% of the periods",
    ),
    "a CPU quota that stops a broker at times": (
        {"throttled_shares": {1: 0.49}},
        {"handler_idle": 0.03, "produce": WAITING["produce"], "cpu_cores": 0.3},
        Resource.REQUEST_HANDLERS,
        "waiting without CPU",
    ),
    "memory that swaps": (
        {"swapped_pages_per_s": 900.0, "memory_total_bytes": 10.0, "memory_available_bytes": 1.0},
        WAITING,
        Resource.MEMORY,
        "host h moved 900 pages/s to and from swap, with 90% of its memory in use",
    ),
    "a process that was killed for memory": (
        {"oom_kills": 1.0},
        {},
        Resource.MEMORY,
        "the kernel of host h ended 1 processes for memory",
    ),
    "handlers that wait while the disk is known to rest": (
        {},
        WAITING,
        Resource.REQUEST_HANDLERS,
        "a lock or an authorizer, as no disk of its host was busy for half of the time",
    ),
    "handlers that wait while the disk is busy for just half of the time": (
        {"disks": (replace(HOST.disks[0], busy_share=0.5),)},
        WAITING,
        Resource.REQUEST_HANDLERS,
        "a lock, an authorizer, a read from the disk or a full page cache",
    ),
    # Other limiting resources come first.
    "handlers that use the CPU beside a busy disk": (
        {"disks": FULL_DISK},
        {"handler_idle": 0.05, "produce": WAITING["produce"], "cpu_cores": 1.75},
        Resource.REQUEST_HANDLERS,
        "too few request handlers",
    ),
    "few packets that are sent again": ({"retransmitted_share": 0.005}, {}, Resource.UNKNOWN, ""),
    "a disk that is busy with one operation at a time": (
        {"disks": (replace(FULL_DISK[0], queue=0.97),)},
        {},
        Resource.UNKNOWN,
        "",
    ),
    "a busy disk with an unknown queue": (
        {"disks": (replace(FULL_DISK[0], queue=None),)},
        {},
        Resource.UNKNOWN,
        "",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_resource_of_the_host_is_named_with_its_numbers(case: str) -> None:
    of_host, of_broker, resource, words = CASES[case]
    judgement = overload(replace(HOST, **of_host), **of_broker)
    assert judgement.verdict is Verdict.OVERLOADED
    assert judgement.limited_by is resource, judgement.attribution
    assert words in judgement.attribution


def test_the_host_of_another_broker_is_no_evidence() -> None:
    full = replace(HOST, brokers=(9,), interfaces=links(received_bytes_per_s=124e6))
    assert overload(full).limited_by is Resource.UNKNOWN


def test_metrics_that_hosts_show_are_not_reported_as_missing() -> None:
    text = attribute(evidence(client(acked_records=1), hosts=(HOST,)), Thresholds()).text
    assert "link_mbit_per_s" not in text
    assert "metrics.host" not in text
    bare = replace(HOST, disks=(), interfaces=links(speed_bytes_per_s=None))
    text = attribute(evidence(client(acked_records=1), hosts=(bare,)), Thresholds()).text
    assert "link_mbit_per_s" in text
    assert "metrics.host" in text


TROUBLES: dict[str, tuple[dict[str, Any], str]] = {
    "drops": ({"interfaces": links(dropped=600.0)}, "host g dropped 0.99% of the packets of its"),
    "just swaps": ({"swapped_pages_per_s": 256.0}, "host g moved 256 pages/s to and from swap"),
    "no CPU": (
        {"cpu_busy": 0.95, "running_threads": 6.0},
        "host g was 95% busy, with 2.0 threads waiting for a core; use more executors",
    ),
}
GENERATOR = replace(HOST, host="g", brokers=(), generates=True, shares_machine=False)


@pytest.mark.parametrize("case", TROUBLES)
def test_trouble_of_a_generator_host_makes_a_shortfall_no_answer(case: str) -> None:
    changes, words = TROUBLES[case]
    host = replace(GENERATOR, **changes)
    short = judged(client(acked_records=9_000), hosts=(HOST, host))
    assert short.verdict is Verdict.INVALID
    assert rules(short) == {"generator_limited"}
    assert words in short.reasons[0].text
    slow = judged(
        client(latency_p99_ms=900.0), thresholds=goal(latency_p99_ms_max=100.0), hosts=(host,)
    )
    assert slow.verdict is Verdict.INVALID
    well = judged(hosts=(host,))
    assert well.verdict is Verdict.SUSTAINED, "a sustained load stays sustained"


LATE = "the generator was the limit: it sent records up to "
STOPPED = QuotaWindow("g", 0.2, 40.0)


def slow(
    latency_ms: float, late_ms: float = 0.5, quantile: str = "p99", quota: QuotaWindow | None = None
) -> Judgement:
    """The judgement of a latency by an objective of 100 ms."""
    seen = client(**{f"latency_{quantile}_ms": latency_ms, f"lateness_{quantile}_ms": late_ms})
    objective = goal(**{f"latency_{quantile}_ms_max": 100.0})
    return judged(replace(seen, quota=quota or QuotaWindow()), thresholds=objective)


@pytest.mark.parametrize("quantile", ["p50", "p95", "p99", "p999"])
def test_a_latency_that_the_generators_own_lateness_explains_is_no_overload(quantile: str) -> None:
    late = slow(120.0, 20.5, quantile)
    assert late.verdict is Verdict.INVALID
    assert rules(late) == {"generator_limited"}
    assert late.reasons[0].text == (
        f"{LATE}20.5 ms late at {quantile}, and produce latency {quantile} 120.0 ms, above 100.0 "
        "ms; use more executors or cores"
    )
    assert slow(120.0, 19.5, quantile).verdict is Verdict.OVERLOADED, "not all of the excess"
    assert slow(104.0, 9.0, quantile).verdict is Verdict.OVERLOADED, "a delay that is usual"
    assert slow(120.0, math.nan, quantile).verdict is Verdict.OVERLOADED
    assert slow(99.0, 90.0, quantile).verdict is Verdict.SUSTAINED


def test_a_latency_that_a_quota_of_the_generator_explains_is_no_overload() -> None:
    stopped = slow(130.0, quota=STOPPED)
    assert stopped.verdict is Verdict.INVALID
    assert "quota of its control group on host g stopped it in 20% of the periods for 40 ms" in (
        stopped.reasons[0].text
    )
    assert "raise the quota of executors" in stopped.reasons[0].text
    assert slow(141.0, quota=STOPPED).verdict is Verdict.OVERLOADED, "longer than it was stopped"
    seldom = QuotaWindow("g", 0.01, 40.0)
    assert slow(130.0, quota=seldom).verdict is Verdict.OVERLOADED
    assert slow(130.0, quantile="p50", quota=STOPPED).verdict is Verdict.OVERLOADED, "a fifth"
    assert slow(130.0, quota=QuotaWindow("g", 0.0)).verdict is Verdict.OVERLOADED


def test_an_overload_that_another_reading_shows_stays_one() -> None:
    objective = goal(latency_p99_ms_max=100.0)
    late = client(latency_p99_ms=120.0, lateness_p99_ms=50.0)
    busy = judged(late, with_one(handler_idle=0.1), objective)
    assert busy.verdict is Verdict.OVERLOADED
    two = goal(latency_p99_ms_max=100.0, latency_p50_ms_max=1.0)
    assert judged(late, thresholds=two).verdict is Verdict.OVERLOADED, "p50 is not explained"


def _observed(seen: Evidence) -> Observation:
    judgements = {"default": judge(seen, Thresholds())}
    return replace(trial(), evidence=seen, judgements=judgements).observation("default")


def test_the_search_gets_what_a_generator_offered_and_what_its_limit_was() -> None:
    short = client(acked_records=3_900, unsent_own_records=6_000)
    full = replace(GENERATOR, shares_machine=True, cpu_busy=0.97, cores=2.0)
    seen = _observed(evidence(short, hosts=(full,)))
    assert seen.verdict is Verdict.INVALID
    assert seen.offered_share == pytest.approx(0.39)
    assert seen.cause == "the generator was the limit: 1.9 cores of 2 busy"
    idle = replace(full, cpu_busy=0.6)
    cause = _observed(evidence(short, hosts=(idle,))).cause
    assert cause.startswith("the generator was the limit: 6000 of 6100 missing records")
    assert ";" not in cause
    still = evidence(short, brokers=with_one(standstill_s=1.4), hosts=(full,))
    assert _observed(still).offered_share is None, "a broker stood still as well"
    sustained = _observed(evidence(hosts=(full,)))
    assert (sustained.cause, sustained.offered_share) == ("", None)
    alone = evidence(brokers=with_one(standstill_s=1.4), hosts=(full,))
    assert _observed(alone).cause.startswith("broker 2 stood still for 1.4 s or more")


def test_a_machine_shared_with_brokers_is_judged_as_theirs() -> None:
    busy = replace(GENERATOR, cpu_busy=0.99, running_threads=9.0, swapped_pages_per_s=900.0)
    short = client(acked_records=9_000)
    shared = replace(busy, shares_machine=True)
    assert judged(short, hosts=(shared,)).verdict is Verdict.OVERLOADED
    drops = replace(shared, interfaces=links(dropped=600.0, speed_bytes_per_s=None))
    assert judged(short, hosts=(drops,)).verdict is Verdict.INVALID, "its own end of a link"
    own = replace(drops, brokers=(1, 2, 3))
    assert judged(short, hosts=(own,)).verdict is Verdict.OVERLOADED
    assert judged(short, hosts=(replace(drops, generates=False),)).verdict is Verdict.OVERLOADED


def test_drops_for_the_rate_at_either_end_of_a_link_name_the_link() -> None:
    link = InterfaceWindow("link0", 1e6, 19.9e6, 30_000.0, 0.0, 0.0, 20e6)
    generator_host = replace(
        GENERATOR, shares_machine=True, interfaces=(replace(link, dropped=900.0),)
    )
    broker_host = replace(HOST, interfaces=(replace(link, received_bytes_per_s=17e6),))
    found = judged(client(acked_records=9_000), hosts=(broker_host, generator_host))
    assert (found.verdict, found.limited_by) == (Verdict.OVERLOADED, Resource.NETWORK)
    for part in ("interface link0 of host g at 160 Mbit/s", "dropped 2.91% of its packets"):
        assert part in (found.attribution or "")
    elsewhere = replace(generator_host, shares_machine=False)
    assert judged(client(acked_records=9_000), hosts=(broker_host, elsewhere)).limited_by is None

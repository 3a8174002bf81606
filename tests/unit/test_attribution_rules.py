from __future__ import annotations

from collections.abc import Callable

import pytest

from metrics.trial.judgement import Judgement
from metrics.windows.broker import RequestWindow
from metrics.windows.resource import Resource
from search.model import Verdict
from tests.support.evidence import client, judged, with_one


def overload(acked: int, **changes: object) -> Judgement:
    return judged(client(acked_records=acked), with_one(**changes))


BUSY = RequestWindow(per_s=100.0, total_ms=20.0, local_ms=18.0, request_queue_ms=1.5, remote_ms=0.1)
CASES: dict[str, tuple[Callable[[], Judgement], Resource, str]] = {
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
        "request handlers idle 0.07, and flushes took 89% of their time in appends (16.0 ms each)",
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
        "too few of them",
    ),
    "machine busy": (
        lambda: overload(10_000, handler_idle=0.1, produce=BUSY, cpu_machine_share=0.97),
        Resource.CPU,
        "on a machine 97% busy",
    ),
    "waiting without CPU and without flushes": (
        lambda: overload(
            10_000,
            handler_idle=0.1,
            produce=BUSY,
            flush_threads=0.0,
            cpu_cores=0.2,
        ),
        Resource.DISK,
        "for at least 89% of their local time they waited without using CPU",
    ),
    "few handlers": (
        lambda: overload(10_000, handler_idle=0.1, produce=BUSY, flush_threads=0.0, cpu_cores=1.9),
        Resource.REQUEST_HANDLERS,
        (
            "with CPU to spare and no wait for the disk: too few of them; produce took 20.0 ms, "
            "18.0 of it local, 1.5 queued"
        ),
    ),
    "network threads": (
        lambda: overload(9_000, network_idle=0.04),
        Resource.NETWORK_THREADS,
        "the busiest network thread was idle 0.04",
    ),
    "shortfall on a busy machine": (
        lambda: overload(9_000, cpu_machine_share=0.99),
        Resource.CPU,
        "the machine was 99% busy",
    ),
    "followers behind": (
        lambda: overload(10_000, isr_changed_share=0.9),
        Resource.REPLICATION,
        "followers fell behind",
    ),
    "waiting for followers": (
        lambda: overload(
            9_000, produce=RequestWindow(per_s=1.0, total_ms=40.0, local_ms=1.0, remote_ms=38.0)
        ),
        Resource.REPLICATION,
        "waiting for followers took 95% of a produce request (38.0 of 40.0 ms)",
    ),
    "nothing near its limit": (
        lambda: overload(9_000),
        Resource.UNKNOWN,
        "no resource that the metrics show was near its limit",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_bound_the_brokers(case: str) -> None:
    make, resource, words = CASES[case]
    judgement = make()
    assert judgement.verdict is Verdict.OVERLOADED
    assert judgement.limited_by is resource
    assert words in judgement.attribution
    assert judgement.attribution.startswith(f"{resource.value}: broker ")
    assert "; used of the others: " in judgement.attribution

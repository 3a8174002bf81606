"""A long link is named where it binds, with the setting to change, and nowhere else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from metrics.judging.attribution import attribute
from metrics.judging.thresholds import Thresholds
from metrics.trial.client import BrokerAccount
from metrics.trial.evidence import Evidence
from metrics.trial.sockets import SocketCounts
from metrics.windows.broker import RequestWindow
from metrics.windows.use import Resource, use_table
from search.model import Verdict
from tests.support.evidence import broker, client, evidence, judged


def link(**changes: Any) -> SocketCounts:
    """Eight connections over 50 ms that are busy all the time of a window of 10 s."""
    usual = SocketCounts(
        connections=8, watched=8, looks=800, rtt_min_us=50_000, rtt_sum_us=800 * 50_000,
        in_flight_max_bytes=128_000, in_flight_sum_bytes=800 * 120_000,
        send_buffer_bytes=262_144, sent_bytes=200_000_000, fastest_bytes_per_s=2_560_000.0,
        busy_us=80_000_000, receiver_limited_us=0, send_buffer_limited_us=0,
    )  # fmt: skip
    return replace(usual, **changes)


def seen(sockets: SocketCounts, requests: int = 1_000, **changes: Any) -> Evidence:
    """The evidence of one broker below its limits that acknowledged half of the load."""
    account = client(
        acked_records=5_000,
        producer_sockets={1: sockets},
        by_broker={1: BrokerAccount(requests=requests)},
    )
    return evidence(account, [broker(1)], **changes)


def bound(found: Evidence) -> tuple[Resource, str]:
    named = attribute(found, Thresholds())
    return named.resource, named.text


FULL = link(receiver_limited_us=74_400_000)
ENDS = {1: SocketCounts(8, 8, 8, receive_buffer_bytes=204_800)}
# One request at a time of 16 kB on each of 8 connections: 20 a second at 50 ms.
ONE_AT_A_TIME = link(waiting_looks=780, unanswered_max=1, sent_bytes=25_600_000, busy_us=79_000_000)


@pytest.mark.parametrize(
    "found",
    [
        seen(FULL),
        seen(FULL, broker_sockets=ENDS),
        seen(link(send_buffer_limited_us=60_000_000, receiver_limited_us=20_000_000)),
        seen(ONE_AT_A_TIME, requests=1_560),
    ],
    ids=["receive window", "receive window in numbers", "send buffer", "requests in flight"],
)
def test_the_limit_of_a_connection_with_its_figures(
    found: Evidence, snapshot: SnapshotAssertion
) -> None:
    resource, text = bound(found)
    assert resource is Resource.CONNECTION
    assert text == snapshot


def test_the_limits_measured_on_a_link_of_50_ms_are_named() -> None:
    """Shares as read over two namespaces with a delay line between them, Linux 6.18."""
    busy_us = 4_000_000
    ways = ("socket.receive.buffer.bytes", "send_buffer_bytes", "max_in_flight")
    for receiver, sender, waiting, named in (
        (0.39, 0.00, 0.00, "socket.receive.buffer.bytes"),  # 100 kB at the far end: 2.3 MB/s
        (0.30, 0.00, 0.06, "socket.receive.buffer.bytes"),  # 1 MiB: 28 MB/s
        (0.43, 0.00, 1.00, "socket.receive.buffer.bytes"),  # 100 kB, and requests wait behind it
        (0.17, 0.15, 0.00, "socket.receive.buffer.bytes"),  # 4 MiB at both ends: 50 MB/s
        (0.00, 0.75, 0.00, "send_buffer_bytes"),  # 64 kB here: 2.3 MB/s
        (0.00, 0.41, 0.65, "send_buffer_bytes"),  # 4 MiB there, so that those here bind: 47 MB/s
        (0.00, 0.00, 1.00, "max_in_flight"),  # one request of 16 kB at a time: 0.3 MB/s
    ):
        sockets = link(
            busy_us=busy_us,
            receiver_limited_us=round(receiver * busy_us),
            send_buffer_limited_us=round(sender * busy_us),
            waiting_looks=round(waiting * 800),
            unanswered_max=1,
        )
        resource, text = bound(seen(sockets, requests=1_500))
        assert resource is Resource.CONNECTION
        assert [way for way in ways if way in text] == [named]


def test_a_shortfall_that_the_link_does_not_explain_stays_unknown() -> None:
    for sockets in (
        link(receiver_limited_us=79_000_000, rtt_min_us=900),  # in one machine
        link(receiver_limited_us=79_000_000, rtt_min_us=None),
        link(receiver_limited_us=12_000_000),  # seldom
        link(receiver_limited_us=None, send_buffer_limited_us=None, busy_us=None),  # an old kernel
        link(),
        link(waiting_looks=300, unanswered_max=1),  # seldom waits
        # Five requests unanswered and 20 answers a second: an answer takes 250 ms, not 50.
        link(waiting_looks=780, unanswered_max=5),
    ):
        assert bound(seen(sockets, requests=1_600))[0] is Resource.UNKNOWN
    waits = link(waiting_looks=780, unanswered_max=5)
    assert bound(seen(waits, requests=8_000))[0] is Resource.CONNECTION


def test_a_limit_of_the_link_comes_before_the_wait_for_followers() -> None:
    remote = RequestWindow(per_s=100.0, total_ms=4.0, local_ms=0.5, remote_ms=3.0)
    slow = replace(seen(FULL), brokers=(broker(1, produce=remote),))
    assert bound(slow)[0] is Resource.CONNECTION
    assert bound(replace(slow, client=client(acked_records=5_000)))[0] is Resource.REPLICATION
    judgement = judged(seen(FULL).client, seen(FULL).brokers)
    assert judgement.verdict is Verdict.OVERLOADED
    assert [each.indicator for each in judgement.reasons] == ["achieved"]
    assert judgement.limited_by is Resource.CONNECTION


@pytest.mark.computes
@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    st.fixed_dictionaries(
        {
            "gc_share": st.floats(0.0, 0.5),
            "flush_threads": st.floats(0.0, 2.0),
            **dict.fromkeys(
                ("handler_idle", "network_idle", "cpu_machine_share", "heap_used_share_min",
                 "isr_changed_share"), st.floats(0.0, 1.0)),
        }
    )
)  # fmt: skip
def test_the_link_is_not_named_where_a_resource_of_the_broker_is_at_its_limit(
    changes: dict[str, float],
) -> None:
    found = replace(seen(link(receiver_limited_us=80_000_000)), brokers=(broker(1, **changes),))
    resource, text = bound(found)
    limits = {
        Resource.REQUEST_HANDLERS: 0.8, Resource.NETWORK_THREADS: 0.8, Resource.CPU: 0.9,
        Resource.HEAP: 0.95, Resource.DISK: 0.9, Resource.REPLICATION: 0.5,
    }  # fmt: skip
    full = [
        row.resource
        for row in use_table(found.brokers)
        if (row.utilization or 0.0) > limits.get(row.resource, 2.0) + 1e-9
    ]
    assert (resource is Resource.CONNECTION) == ("in flight at" in text)
    if full:
        assert resource is not Resource.CONNECTION

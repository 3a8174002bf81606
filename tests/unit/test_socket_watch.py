"""Counts of a watch from its looks at a task's sockets."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from jobs.engine.network import socket_watch as module
from jobs.engine.network.socket_watch import (
    MEMORY_EVERY,
    WATCHED_MAX,
    SocketMemory,
    SocketWatch,
    TcpInfo,
)
from jobs.engine.network.transport import Channel, PlainTransport
from metrics.trial.adding import total
from metrics.trial.sockets import KernelBuffers, SocketCounts, kernel_buffers_of

NOTHING_YET = TcpInfo(50_000, 49_000, 14_480, 0, 0, 0, 0, 0, 0, 0, 0)


class Kernel:
    """A kernel whose answers about sockets the test sets; no socket is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers: dict[socket.socket, TcpInfo | None] = {}
        self.memory: SocketMemory | None = SocketMemory(131_072, 87_040, 1_000)
        self.memory_reads = self.looks = 0
        monkeypatch.setattr(module, "tcp_info", self._tcp_info)
        monkeypatch.setattr(module, "socket_memory", self._memory)

    def _tcp_info(self, sock: socket.socket) -> TcpInfo | None:
        self.looks += 1
        return self.answers[sock]

    def _memory(self, _sock: socket.socket) -> SocketMemory | None:
        self.memory_reads += 1
        return self.memory

    def channel(self, info: TcpInfo | None = NOTHING_YET) -> Channel:
        return Channel(self.transport(info))

    def transport(self, info: TcpInfo | None = NOTHING_YET) -> PlainTransport:
        sock: Any = object()
        self.answers[sock] = info
        return PlainTransport(sock)

    def set_figures(self, channel: Channel, **changes: int) -> None:
        """Change the kernel's figures of the channel's socket."""
        assert channel.transport is not None
        known = self.answers[channel.transport.sock]
        assert known is not None
        self.answers[channel.transport.sock] = known._replace(**changes)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return Kernel(monkeypatch)


def test_only_growth_within_the_window_counts(kernel: Kernel) -> None:
    channel = kernel.channel()
    kernel.set_figures(
        channel, sent_bytes=900, acked_bytes=800, busy_us=5_000, receiver_limited_us=4_000
    )
    watch = SocketWatch([(1, channel)])
    watch.look()
    watch.begin()
    kernel.set_figures(channel, in_flight_bytes=128_000, rtt_us=60_000, cwnd_bytes=200_000)
    watch.look()
    kernel.set_figures(
        channel,
        sent_bytes=5_000_900,
        acked_bytes=5_000_800,
        retransmitted_bytes=50_000,
        busy_us=2_005_000,
        receiver_limited_us=1_804_000,
        send_buffer_limited_us=100_000,
        in_flight_bytes=64_000,
        rtt_us=50_000,
    )
    found = watch.end(2.0)[1]
    assert (found.connections, found.watched, found.looks) == (1, 1, 2)
    assert (found.rtt_min_ms, found.rtt_mean_ms) == (49.0, 55.0)
    assert (found.in_flight_max_bytes, found.in_flight_mean_bytes) == (128_000, 96_000)
    assert found.cwnd_mean_bytes == 200_000
    assert found.sent_bytes == 5_000_000
    assert found.retransmitted_share == pytest.approx(0.01)
    assert found.fastest_bytes_per_s == 2_500_000
    assert found.receiver_limited_share == pytest.approx(0.9)
    assert found.send_buffer_limited_share == pytest.approx(0.05)
    assert (found.receive_buffer_bytes, found.send_buffer_bytes) == (131_072, 87_040)
    assert found.memory_max_bytes == 1_000
    watch.begin()
    kernel.set_figures(channel, sent_bytes=5_001_600)
    assert watch.end(1.0)[1].sent_bytes == 700, "a second window starts from zero"


def test_a_connection_that_was_lost_and_opened_again_counts_with_both_sockets(
    kernel: Kernel,
) -> None:
    channel = kernel.channel()
    watch = SocketWatch([(1, channel)])
    watch.begin()
    kernel.set_figures(channel, sent_bytes=3_000, acked_bytes=3_000, busy_us=10)
    watch.look()
    channel.transport = None
    watch.look()
    channel.transport = kernel.transport()
    kernel.set_figures(channel, sent_bytes=500, acked_bytes=400, busy_us=7)
    found = watch.end(1.0)[1]
    assert (found.sent_bytes, found.busy_us) == (3_500, 17)
    assert found.fastest_bytes_per_s == 3_400
    assert (found.connections, found.watched, found.looks) == (1, 1, 2)


def test_few_sockets_are_watched_in_equal_numbers_for_each_broker(kernel: Kernel) -> None:
    counts = {1: 500, 2: 1, 3: 200}
    channels = [(broker, kernel.channel()) for broker, n in counts.items() for _ in range(n)]
    watch = SocketWatch(channels)
    watch.begin()
    before = kernel.looks
    for _ in range(MEMORY_EVERY):
        watch.look()
    assert kernel.looks - before == MEMORY_EVERY * WATCHED_MAX
    assert kernel.memory_reads == WATCHED_MAX, "the buffers are read in one of these looks"
    found = watch.end(1.0)
    assert {broker: each.connections for broker, each in found.items()} == counts
    assert {broker: each.watched for broker, each in found.items()} == {1: 32, 2: 1, 3: 31}
    assert kernel.memory_reads == 2 * WATCHED_MAX, "and at the end"


def test_looks_at_which_requests_wait_for_answers_are_counted(kernel: Kernel) -> None:
    answers = iter([(5, True), (2, False), (5, True), (5, True)])
    watch = SocketWatch([(1, kernel.channel())], lambda _: next(answers))
    watch.begin()
    for _ in range(3):
        watch.look()
    found = watch.end(1.0)[1]
    assert (found.waiting_share, found.unanswered_max) == (0.75, 5)


def test_a_kernel_without_limits_leaves_them_unknown(kernel: Kernel) -> None:
    old = NOTHING_YET._replace(
        rtt_min_us=None, busy_us=None, receiver_limited_us=None, send_buffer_limited_us=None
    )
    kernel.memory = None
    watch = SocketWatch([(1, kernel.channel(old))])
    watch.begin()
    found = watch.end(1.0)[1]
    assert (found.rtt_min_ms, found.busy_us, found.receiver_limited_share) == (None, None, None)
    assert (found.send_buffer_bytes, found.memory_max_bytes) == (None, None)
    nothing = SocketWatch([(1, kernel.channel(None))])
    nothing.begin()
    nothing.look()
    assert nothing.end(1.0) == {}, "on another system"


def test_tasks_add_up() -> None:
    one = SocketCounts(2, 2, 10, rtt_min_us=900, rtt_sum_us=10_000, busy_us=100, sent_bytes=5)
    other = SocketCounts(1, 1, 30, rtt_min_us=400, rtt_sum_us=90_000, fastest_bytes_per_s=7.0)
    both = total([one, other])
    assert (both.connections, both.looks, both.sent_bytes) == (3, 40, 5)
    assert (both.rtt_min_ms, both.rtt_mean_ms) == (0.4, 2.5)
    assert (both.busy_us, both.fastest_bytes_per_s) == (100, 7.0)
    first, second = KernelBuffers("a", rmem_max=1), KernelBuffers("b", rmem_max=2)
    assert kernel_buffers_of([second, None, first, first]) == (first, second), "each host once"

"""The kernel's answers about a socket, and the counts of a watch from its looks at sockets."""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.engine.network import socket_watch as module
from jobs.engine.network.socket_watch import (
    MEMORY_EVERY,
    WATCHED_MAX,
    SocketMemory,
    SocketWatch,
    TcpInfo,
    kernel_buffers,
    parsed,
    socket_memory,
    tcp_info,
)
from jobs.engine.network.sockets import Channel
from jobs.engine.network.transport import PlainTransport
from metrics.trial.adding import total
from metrics.trial.sockets import KernelBuffers, SocketCounts, kernel_buffers_of

FIELDS = {
    "mss": ("=I", 16, 1_448),
    "unacked": ("=I", 24, 90),
    "rtt": ("=I", 68, 50_200),
    "cwnd": ("=I", 80, 100),
    "total_retrans": ("=I", 100, 3),
    "bytes_acked": ("=Q", 120, 1_000_001),
    "bytes_received": ("=Q", 128, 7_000),
    "min_rtt": ("=I", 148, 50_000),
    "busy_time": ("=Q", 168, 9_000_000),
    "rwnd_limited": ("=Q", 176, 8_000_000),
    "sndbuf_limited": ("=Q", 184, 250_000),
    "bytes_sent": ("=Q", 200, 1_130_000),
    "bytes_retrans": ("=Q", 208, 4_000),
}
"""Fields in the kernel's include/uapi/linux/tcp.h: form, offset [B] and value here."""


def answer(size: int) -> bytes:
    answer = bytearray(280)
    for kind, offset, value in FIELDS.values():
        struct.pack_into(kind, answer, offset, value)
    return bytes(answer[:size])


def figures(size: int = 280) -> TcpInfo:
    found = parsed(answer(size))
    assert found is not None
    return found


def test_older_kernels_have_fewer_figures_and_no_wrong_ones() -> None:
    info = figures()
    assert (info.rtt_us, info.rtt_min_us, info.cwnd_bytes) == (50_200, 50_000, 144_800)
    assert info.in_flight_bytes == 1_130_000 - 4_000 - 1_000_000, "to the byte, less the handshake"
    assert (info.acked_bytes, info.sent_bytes, info.received_bytes) == (1_000_001, 1_130_000, 7_000)
    limits = (info.busy_us, info.receiver_limited_us, info.send_buffer_limited_us)
    assert limits == (9_000_000, 8_000_000, 250_000)
    for size, in_flight, sent_again in ((216, 126_000, 4_000), (192, 90 * 1_448, 3 * 1_448)):
        info = figures(size)  # 192: segments replace bytes
        assert (info.in_flight_bytes, info.retransmitted_bytes) == (in_flight, sent_again)
        assert info.busy_us == 9_000_000
    info = figures(168)
    assert (info.rtt_min_us, info.busy_us, info.receiver_limited_us) == (50_000, None, None)
    assert (figures(136).rtt_us, figures(136).rtt_min_us) == (50_200, None)
    assert parsed(answer(60)) is None


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as near,
    ):
        far, _ = server.accept()
        with far:
            yield near, far


@pytest.mark.skipif(sys.platform != "linux", reason="the option is Linux's")
def test_a_real_socket_has_the_figures_of_its_bytes(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    near, far = pair
    near.sendall(b"x" * 5_000)
    far.recv(5_000, socket.MSG_WAITALL)
    sent, got = tcp_info(near), tcp_info(far)
    assert sent is not None and got is not None
    assert (sent.sent_bytes, got.received_bytes) == (5_000, 5_000)
    assert 0 < sent.rtt_us < 1_000_000
    assert sent.cwnd_bytes > 0
    near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 50_000)
    near.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 30_000)
    memory = socket_memory(near)
    assert memory is not None
    assert (memory.send_buffer_bytes, memory.receive_buffer_bytes) == (100_000, 60_000)


def test_a_closed_socket_and_another_system_have_no_figures(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    near, far = pair
    far.close()
    assert (tcp_info(far), socket_memory(far)) == (None, None)
    monkeypatch.setattr(module, "_IS_LINUX", False)
    assert (tcp_info(near), socket_memory(near)) == (None, None)


def test_the_kernels_limits_are_read_as_far_as_they_are_shown(tmp_path: Path) -> None:
    assert kernel_buffers(tmp_path) is None
    (tmp_path / "ipv4").mkdir()
    (tmp_path / "ipv4/tcp_rmem").write_text("4096\t131072\t6291456\n")
    (tmp_path / "core").mkdir()
    (tmp_path / "core/wmem_max").write_text("212992\n")
    found = kernel_buffers(tmp_path)
    assert found is not None
    assert found.tcp_rmem == (4_096, 131_072, 6_291_456)
    assert (found.tcp_wmem, found.rmem_max, found.wmem_max) == ((), None, 212_992)
    assert found.text == (
        "receive up to 6.3 MB if tuned by the kernel and ? if requested, send up to ? if tuned by "
        "the kernel and 0.2 MB if requested"
    )


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
        channel, sent_bytes=5_000_900, acked_bytes=5_000_800, retransmitted_bytes=50_000,
        busy_us=2_005_000, receiver_limited_us=1_804_000, send_buffer_limited_us=100_000,
        in_flight_bytes=64_000, rtt_us=50_000,
    )  # fmt: skip
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

"""The kernel's answers about a socket, from kernels of any version."""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.engine.network import socket_watch as module
from jobs.engine.network.socket_watch import (
    TcpInfo,
    kernel_buffers,
    parsed,
    socket_memory,
    tcp_info,
)

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
        "receive up to 6.3 MB by tuning and ? if requested, send up to ? by tuning and 0.2 MB if "
        "requested"
    )

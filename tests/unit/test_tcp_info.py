"""The kernel's answers about a socket, from kernels of any version."""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.engine.network import socket_watch as module
from jobs.engine.network.socket_watch import kernel_buffers, parsed, socket_memory, tcp_info

U32 = {"mss": 16, "unacked": 24, "rtt": 68, "cwnd": 80, "total_retrans": 100, "min_rtt": 148}
U64 = {
    "bytes_acked": 120,
    "bytes_received": 128,
    "busy_time": 168,
    "rwnd_limited": 176,
    "sndbuf_limited": 184,
    "bytes_sent": 200,
    "bytes_retrans": 208,
}
"""Offsets of the fields in the kernel's include/uapi/linux/tcp.h [B]."""

FACTS = {
    "mss": 1_448,
    "unacked": 90,
    "rtt": 50_200,
    "cwnd": 100,
    "total_retrans": 3,
    "min_rtt": 50_000,
    "bytes_acked": 1_000_001,
    "bytes_received": 7_000,
    "busy_time": 9_000_000,
    "rwnd_limited": 8_000_000,
    "sndbuf_limited": 250_000,
    "bytes_sent": 1_130_000,
    "bytes_retrans": 4_000,
}


def answer(size: int = 280) -> bytes:
    answer = bytearray(280)
    for name, value in FACTS.items():
        kind, offset = ("=I", U32[name]) if name in U32 else ("=Q", U64[name])
        struct.pack_into(kind, answer, offset, value)
    return bytes(answer[:size])


def test_a_current_kernel_has_all_figures() -> None:
    info = parsed(answer())
    assert info is not None
    assert (info.rtt_us, info.rtt_min_us) == (50_200, 50_000)
    assert info.cwnd_bytes == 144_800
    assert info.in_flight_bytes == 1_130_000 - 4_000 - 1_000_000, "to the byte, less the handshake"
    assert (info.acked_bytes, info.sent_bytes, info.received_bytes) == (1_000_001, 1_130_000, 7_000)
    assert info.retransmitted_bytes == 4_000
    assert (info.busy_us, info.receiver_limited_us) == (9_000_000, 8_000_000)
    assert info.send_buffer_limited_us == 250_000


@pytest.mark.parametrize("size", [192, 216])
def test_segments_replace_bytes_where_a_kernel_counts_no_bytes(size: int) -> None:
    info = parsed(answer(size))
    assert info is not None
    by_bytes = size == 216
    assert info.in_flight_bytes == (126_000 if by_bytes else 90 * 1_448)
    assert info.retransmitted_bytes == (4_000 if by_bytes else 3 * 1_448)
    assert info.busy_us == 9_000_000


def test_an_older_kernel_has_fewer_figures_and_no_wrong_ones() -> None:
    before_limits = parsed(answer(168))
    assert before_limits is not None
    assert before_limits.rtt_min_us == 50_000
    assert (before_limits.busy_us, before_limits.receiver_limited_us) == (None, None)
    before_min = parsed(answer(136))
    assert before_min is not None
    assert (before_min.rtt_us, before_min.rtt_min_us) == (50_200, None)
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


@pytest.mark.skipif(sys.platform != "linux", reason="the option is Linux's")
def test_requested_buffers_are_read(pair: tuple[socket.socket, socket.socket]) -> None:
    near, _far = pair
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

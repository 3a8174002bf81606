"""Bytes of records without a reader: the kernel drops them, and they count like the others."""

from __future__ import annotations

import random
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from jobs.engine.consuming.stream import FetchStream
from jobs.engine.network.sockets import Channel, Sockets
from jobs.engine.network.transport import PlainTransport, TlsTransport, Transport
from tests.support.answers import PARTITIONS, Notes, encoded_batch, response
from tests.support.processes import PATIENCE_S
from tests.support.tls_pair import tls_over

LARGE, SMALL = 2_500, 3  # records of a batch


class Reading(Channel):
    """A channel whose stream of answers is parsed."""

    def __init__(self, notes: Notes) -> None:
        super().__init__()
        self.stream = FetchStream(notes, PARTITIONS)

    @property
    def skippable(self) -> int:
        return self.stream.skippable

    def skip(self, size: int, now: float) -> None:
        self.stream.skip(size, now)


class Reader:
    """The owner of such channels, which counts the bytes that were copied."""

    def __init__(self) -> None:
        self.copied = 0
        self.errors: list[str] = []

    def handle_received(self, channel: Channel, data: memoryview, now: float) -> None:
        assert isinstance(channel, Reading)
        self.copied += len(data)
        channel.stream.feed(data, now)

    def handle_flushed(self, channel: Channel, now: float) -> None:
        raise AssertionError("nothing was sent")

    def handle_lost(self, channel: Channel, error: str, now: float) -> None:
        self.errors.append(error)

    def handle_woken(self) -> None:
        raise AssertionError("no other thread")


def answers(*sizes: int) -> bytes:
    """An answer for each size, of a few batches with this number of records."""
    rng = random.Random(4)
    return b"".join(
        response(
            {
                partition: b"".join(encoded_batch(number * 10_000, size) for number in range(3))
                for partition in rng.sample(range(4), 2)
            },
            correlation_id=index,
        )
        for index, size in enumerate(sizes)
    )


MIXED = answers(LARGE, SMALL, LARGE, LARGE, 1, 700, LARGE)


@pytest.fixture(params=["plain", "tls"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[Transport, socket.socket]]:
    """The tested end of a TCP connection, and the peer's."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname(), PATIENCE_S)
        far, _ = server.accept()
    far.settimeout(PATIENCE_S)
    transport: Transport = PlainTransport(near)
    if request.param == "tls":
        wrapped, far = tls_over(near, far)
        transport = TlsTransport(wrapped)
    transport.sock.setblocking(False)
    yield transport, far
    transport.close()
    far.close()


def read(
    pair: tuple[Transport, socket.socket], sent: list[bytes], buffer_bytes: int = 1_048_576
) -> tuple[Notes, Reader, Sockets[Reading]]:
    """The notes of answers that a peer sends in these pieces, one by one."""
    transport, peer = pair
    notes, reader = Notes(), Reader()
    sockets = Sockets(reader, time.monotonic, buffer_bytes)
    sockets.add(Reading(notes), transport)

    def send() -> None:
        for piece in sent:
            peer.sendall(piece)

    sending = threading.Thread(target=send)
    sending.start()
    wait_for(sockets, lambda: len(notes.answers) == 7 or bool(reader.errors))
    sending.join()
    return notes, reader, sockets


def wait_for(sockets: Sockets[Reading], seen: Callable[[], bool]) -> None:
    ends_s = time.monotonic() + PATIENCE_S
    while not seen():
        assert time.monotonic() < ends_s
        sockets.wait(0.1)


def whole() -> Notes:
    notes = Notes()
    FetchStream(notes, PARTITIONS).feed(memoryview(MIXED), 0.0)
    return notes


@pytest.mark.parametrize("buffer_bytes", [65_536, 300_000, 1_048_576])
@pytest.mark.parametrize("cuts", [0, 5, 50])
def test_the_same_batches_are_found_with_and_without_dropped_bytes(
    pair: tuple[Transport, socket.socket], cuts: int, buffer_bytes: int
) -> None:
    rng = random.Random(cuts)
    places = sorted(rng.randrange(len(MIXED)) for _ in range(cuts))
    pieces = [MIXED[a:b] for a, b in zip([0, *places], [*places, len(MIXED)], strict=True)]
    notes, reader, _ = read(pair, pieces, buffer_bytes)
    expected = whole()
    assert notes.batches == expected.batches
    assert notes.answers == expected.answers
    assert reader.errors == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux drops bytes of TCP")
def test_dropped_bytes_are_not_copied_and_the_selector_waits_for_them_only() -> None:
    def mark() -> int:
        return near.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)

    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname(), PATIENCE_S)
        far, _ = server.accept()
    near.setblocking(False)
    with near, far:
        notes, reader = Notes(), Reader()
        channel, sockets = Reading(notes), Sockets(reader, time.monotonic, 65_536)
        sockets.add(channel, PlainTransport(near))
        assert mark() == 1
        far.sendall(MIXED[:10_000])
        wait_for(sockets, lambda: channel.skippable > 200_000)
        assert 1 < mark() <= near.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) / 8
        sending = threading.Thread(target=far.sendall, args=(MIXED[10_000:],))
        sending.start()
        wait_for(sockets, lambda: len(notes.answers) == 7)
        sending.join()
        assert mark() == 1
        assert notes.batches == whole().batches
    assert reader.copied < len(MIXED) / 3


def test_the_end_of_a_connection_is_seen_among_dropped_bytes(
    pair: tuple[Transport, socket.socket],
) -> None:
    notes, reader, sockets = read(pair, [MIXED])
    assert len(notes.answers) == 7
    pair[1].sendall(MIXED[:100_000])
    pair[1].close()
    wait_for(sockets, lambda: bool(reader.errors))
    assert len(reader.errors) == 1
    assert len(notes.batches) == len(whole().batches), "a batch that is cut off does not count"

"""Messages follow their configuration: bytes, sizes, and files of real messages."""

from __future__ import annotations

import random
import statistics
import struct
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.engine.batches.messages import REPEATED, MessagesError, message_stream, read_messages
from jobs.engine.batches.pool import BatchPool
from metrics.traffic.payload import MESSAGE_BYTES_MAX, Payload, Sizes
from tests.support.patterns import producer_pattern

LINES = [b"alpha", b"be", b"gamma gamma", b"d" * 40]


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "messages.txt"
    path.write_bytes(b"\n".join([*LINES, b"", b""]))
    return path


SIZES = st.one_of(
    st.builds(Sizes, st.just("uniform"), st.floats(0.01, 1.0)),
    st.builds(Sizes, st.just("lognormal"), st.floats(0.01, 1.5)),
    st.builds(
        lambda pairs: Sizes("histogram", histogram=tuple(pairs)),
        st.lists(st.tuples(st.integers(1, 100_000), st.floats(0.1, 100)), min_size=1, max_size=20),
    ),
)


@given(sizes=SIZES, mean_bytes=st.integers(1_000, 50_000))
def test_sizes_rise_with_the_quantile_and_have_the_mean(sizes: Sizes, mean_bytes: int) -> None:
    found = [sizes.quantile(mean_bytes, (i + 0.5) / 500) for i in range(500)]
    assert found == sorted(found)
    assert found[0] >= 1
    assert found[-1] <= sizes.largest(mean_bytes) <= MESSAGE_BYTES_MAX
    # The error of a sum over 500 steps of a rising curve, and of rounding to whole bytes.
    coarse = (sizes.largest(mean_bytes) - found[0]) / len(found)
    assert statistics.mean(found) == pytest.approx(mean_bytes, abs=coarse + 0.02 * mean_bytes)


def test_each_distribution_of_sizes_has_its_shape() -> None:
    logs = [Sizes("lognormal", 1.0).quantile(100_000, (i + 0.5) / 999) for i in range(999)]
    assert logs[499] == pytest.approx(100_000 / 2.718**0.5, rel=0.02), "the median"
    uniform = Sizes("uniform", 0.5)
    ends = (uniform.quantile(1_000, 0.0), uniform.largest(1_000))
    assert ends == pytest.approx((500, 1_500), abs=1)
    histogram = Sizes("histogram", histogram=((300, 1.0), (100, 3.0)))
    found = [histogram.quantile(300, (i + 0.5) / 100) for i in range(100)]
    assert {size: found.count(size) for size in set(found)} == {200: 75, 600: 25}
    for mean_bytes in (1, 2, 10_000_000):
        for sizes in (Sizes("uniform", 0.9), Sizes("lognormal", 1.0)):
            found = [sizes.quantile(mean_bytes, (i + 0.5) / 100) for i in range(100)]
            assert 1 <= min(found) <= max(found) <= MESSAGE_BYTES_MAX


def _stream(payload: Payload, count: int, mean_bytes: int = 100) -> list[bytes]:
    read = read_messages(payload) if payload.kind == "messages" else []
    messages = message_stream(payload, mean_bytes, random.Random(1), read=read)
    return [value for _, value, _ in islice(messages, count)]


def test_the_dial_sets_the_share_of_the_repeated_character() -> None:
    for share in (0.0, 0.25, 1.0):
        values = _stream(Payload("mixed", compressibility=share), 500, mean_bytes=7)
        assert {len(value) for value in values} == {7}
        repeated = sum(len(value) - len(value.rstrip(REPEATED)) for value in values)
        assert repeated / 3_500 == pytest.approx(share, abs=0.01)
    assert set(_stream(Payload("repeated"), 3)) == {REPEATED * 100}


def test_messages_of_a_file_come_as_they_are_or_are_cut_or_continued_to_a_size(lines: Path) -> None:
    payload = Payload("messages", messages_file=str(lines))
    values = _stream(replace(payload, sizes="messages"), 400)
    assert set(values) == set(LINES)
    assert min(values.count(line) for line in LINES) > 90
    values = _stream(payload, 200, mean_bytes=9)
    assert {len(value) for value in values} == {9}
    assert all(value in b"".join(LINES) * 3 for value in values)
    assert {value[:5] for value in values} == {b"alpha", b"begam", b"gamma", b"ddddd"}


def test_length_prefixed_messages_may_hold_anything(tmp_path: Path) -> None:
    path, messages = tmp_path / "messages.bin", [b"\n\x00", b"x" * 300, b"\n"]
    path.write_bytes(b"".join(struct.pack(">I", len(m)) + m for m in messages))
    payload = Payload("messages", messages_file=str(path), messages_format="length-prefixed")
    assert read_messages(payload) == messages
    short = replace(payload, pool_bytes=20)
    assert read_messages(short) == messages[:1], "the rest is beyond the pool's size"
    for wrong in (b"\x00\x00", b"\x00\x00\x00\x09abc", b"text that is no length"):
        path.write_bytes(wrong)
        with pytest.raises(MessagesError, match=r"messages\.bin .* at byte 0 is \d+ B"):
            read_messages(payload)


def test_only_the_first_part_of_a_file_is_read(lines: Path) -> None:
    payload = Payload("messages", messages_file=str(lines))
    assert read_messages(replace(payload, pool_bytes=12)) == LINES[:2], "no message that is cut"
    with pytest.raises(MessagesError, match="no message in its first 3 B"):
        read_messages(replace(payload, pool_bytes=3))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    payload = Payload("messages", messages_file=str(tmp_path / "gone"))
    with pytest.raises(MessagesError, match=r"gone cannot be read on this host.*on every executor"):
        BatchPool(producer_pattern(100, 10.0, payload=payload))


def test_sizes_of_a_file_must_have_the_mean_of_the_axis(lines: Path) -> None:
    payload = Payload("messages", messages_file=str(lines), sizes="messages")
    with pytest.raises(
        MessagesError, match=r"is 100; expected 14, the mean.*set message_bytes to \[14\]"
    ):
        BatchPool(producer_pattern(100, 10.0, payload=payload))
    pool = BatchPool(producer_pattern(14, 1_000.0, payload=payload, pool_bytes=65_536))
    assert pool.mean_payload_bytes == pytest.approx(14.25, rel=0.05)

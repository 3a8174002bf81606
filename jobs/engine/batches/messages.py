"""Messages with keys, values and headers. The same seed gives the same messages."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path

from metrics.common.errors import ConfigError
from metrics.traffic.payload import MESSAGE_BYTES_MAX, Payload

MESSAGES_MAX = 200_000
"""Maximum number of messages that are read from a file."""

REPEATED = b"x"
_LENGTH = struct.Struct(">I")
_STRATA = 128

Message = tuple[bytes | None, bytes, list[tuple[str, bytes]]]
"""(key, value, headers)."""


class MessagesError(ConfigError):
    """The file `payload.messages_file` cannot be used."""


class MixedValues:
    """Values that begin with random bytes and end with one repeated character."""

    def __init__(self, rng: random.Random, compressibility: float) -> None:
        self._rng = rng
        self._random_share = 1.0 - compressibility
        self._owed = 0.0

    def make(self, size: int) -> bytes:
        """Make a value of `size` bytes. The number of random bytes is rounded, and the next value
        corrects the rounding error.
        """
        self._owed += size * self._random_share
        count = min(size, max(0, round(self._owed)))
        self._owed -= count
        return self._rng.randbytes(count) + REPEATED * (size - count)


class SampledValues:
    """Values cut from real messages. A value that is longer than a message continues with the bytes
    of the next messages.
    """

    def __init__(self, rng: random.Random, messages: Sequence[bytes]) -> None:
        self._rng = rng
        self._joined = b"".join(messages)
        self._starts = list(accumulate(map(len, messages[:-1]), initial=0))

    def make(self, size: int) -> bytes:
        """Make a value of `size` bytes."""
        start = self._rng.choice(self._starts)
        value = self._joined[start : start + size]
        while len(value) < size:
            value += self._joined[: size - len(value)]
        return value


def read_messages(payload: Payload) -> list[bytes]:
    """Read the first messages of `payload.messages_file`.

    The function reads at most `payload.pool_bytes` bytes, and returns at most `MESSAGES_MAX`
    messages.

    Raises:
        MessagesError: the file cannot be read, has no message, or ends within a message.
    """
    path, limit_bytes = Path(payload.messages_file or ""), payload.pool_bytes
    try:
        with path.open("rb") as file:
            data = file.read(limit_bytes)
            is_whole = not file.read(1)
    except OSError as error:
        raise MessagesError(
            f"payload.messages_file {path} cannot be read on this host: {error.strerror}; expected "
            "the file at this path on every executor; copy the file there, or correct the path"
        ) from None
    is_prefixed = payload.messages_format == "length-prefixed"
    lines = data.split(b"\n")
    found = _prefixed(path, data, is_whole) if is_prefixed else lines[: None if is_whole else -1]
    kept = [each for each in found if each][:MESSAGES_MAX]
    if not kept:
        raise MessagesError(
            f"payload.messages_file {path} has no message in its first {limit_bytes} B; expected "
            "at least one message in the format that payload.messages_format states; correct the "
            "file, or raise payload.pool_bytes"
        )
    return kept


def _prefixed(path: Path, data: bytes, is_whole: bool) -> list[bytes]:
    found, position = [], 0
    while position < len(data):
        end = position + _LENGTH.size
        size = _LENGTH.unpack_from(data, position)[0] if end <= len(data) else 0
        if size > MESSAGE_BYTES_MAX or (is_whole and (end > len(data) or end + size > len(data))):
            raise MessagesError(
                f"payload.messages_file {path} is not length-prefixed: the length at byte "
                f"{position} is {size} B; expected at most {MESSAGE_BYTES_MAX} B, and at most the "
                "rest of the file; correct the file"
            )
        if end + size > len(data):
            break
        found.append(data[end : end + size])
        position = end + size
    return found


def message_stream(
    payload: Payload,
    mean_bytes: int,
    rng: random.Random,
    keys: Sequence[bytes] = (),
    read: Sequence[bytes] = (),
    compressibility: float | None = None,
) -> Iterator[Message]:
    """An endless stream of messages. The same pattern and seed give the same messages.

    Sizes are drawn by stratified sampling, so that the mean size of a long series of messages is
    the configured mean. The distribution of sizes is divided into 128 equally probable ranges.
    Every 128 consecutive messages have one size from each of the 128 ranges, in random order. If
    `payload.sizes` is "messages", whole messages of a file are sent. The list of these messages is
    then divided into 128 equal ranges, and every 128 consecutive messages come from 128 different
    ranges.

    Args:
        keys: keys to choose from; by default each message has a random key.
        read: messages from a file, which are used instead of random values.
        compressibility: share of repeated characters in a value; by default the share in the
            payload's options.
    """
    share = payload.repeated_share if compressibility is None else compressibility
    values = SampledValues(rng, read) if read else MixedValues(rng, share)
    strata, sizes = _stratified(rng), payload.distribution
    while True:
        if payload.sizes == "messages":
            value = read[int(next(strata) * len(read))]
        else:
            size = mean_bytes
            if sizes.vary:
                size = max(payload.key_bytes, sizes.quantile(size, next(strata)))
            value = values.make(size - payload.key_bytes)
        headers = [(f"h{i}", rng.randbytes(payload.header_bytes)) for i in range(payload.headers)]
        key = None
        if payload.key_bytes:
            key = rng.choice(keys) if keys else rng.randbytes(payload.key_bytes)
        yield key, value, headers


def _stratified(rng: random.Random) -> Iterator[float]:
    """Random numbers from 0 to 1; every 128 consecutive numbers are spread evenly over the
    range.
    """
    while True:
        for stratum in reversed(rng.sample(range(_STRATA), _STRATA)):
            yield (stratum + rng.random()) / _STRATA

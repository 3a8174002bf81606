"""Messages with keys, values and headers. The same seed gives the same messages."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

from metrics.common.errors import ConfigError
from metrics.traffic.payload import MESSAGE_BYTES_MAX, Payload

MESSAGES_MAX = 200_000
"""Maximum number of messages that are read from a file."""

REPEATED = b"x"
_LENGTH = struct.Struct(">I")
_STRATA = 128

Header = tuple[str, bytes]
Message = tuple[bytes | None, bytes, list[Header]]
"""(key, value, headers)."""


class MessagesError(ConfigError):
    """A file of messages cannot be used."""


class MixedValues:
    """Values that begin with random bytes and end with one repeated character."""

    def __init__(self, rng: random.Random, compressibility: float) -> None:
        self._rng = rng
        self._random_share = 1.0 - compressibility
        self._owed = 0.0

    def make(self, size: int) -> bytes:
        """Make a value of `size` bytes; the rounding error of earlier values is corrected."""
        self._owed += size * self._random_share
        count = min(size, max(0, round(self._owed)))
        self._owed -= count
        return self._rng.randbytes(count) + REPEATED * (size - count)


class SampledValues:
    """Values cut from real messages. A longer value continues with the next messages."""

    def __init__(self, rng: random.Random, messages: Sequence[bytes]) -> None:
        self._rng = rng
        self._joined = b"".join(messages)
        self._starts: list[int] = []
        start = 0
        for message in messages:
            self._starts.append(start)
            start += len(message)

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
    messages = [each for each in found if each][:MESSAGES_MAX]
    if not messages:
        raise MessagesError(
            f"payload.messages_file {path} has no message in its first {limit_bytes} B; expected "
            "one message per line, or a length of four bytes before each message if "
            "payload.messages_format is length-prefixed; correct the file, or raise "
            "payload.pool_bytes"
        )
    return messages


def _prefixed(path: Path, data: bytes, is_whole: bool) -> list[bytes]:
    messages, position = [], 0
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
        messages.append(data[end : end + size])
        position = end + size
    return messages


class Messages:
    """An endless stream of messages. The same pattern and seed give the same messages.

    Sizes are drawn by stratified sampling: of 128 consecutive sizes, one comes from each 128th of
    the distribution, in random order. Messages of a file, which have sizes of their own, are drawn
    in the same way. So the mean of every long part of the stream is the configured mean.
    """

    def __init__(
        self,
        payload: Payload,
        mean_bytes: int,
        rng: random.Random,
        keys: Sequence[bytes] = (),
        read: Sequence[bytes] = (),
        compressibility: float | None = None,
    ) -> None:
        self._payload = payload
        self._sizes = payload.distribution
        self._mean_bytes = mean_bytes
        self._rng = rng
        self._read = read
        self._strata: list[int] = []
        self._keys = keys
        share = payload.repeated_share if compressibility is None else compressibility
        values = SampledValues(rng, read) if read else MixedValues(rng, share)
        self._make_value: Callable[[int], bytes] = values.make

    def __iter__(self) -> Messages:
        return self

    def __next__(self) -> Message:
        payload, rng = self._payload, self._rng
        if payload.sizes == "messages":
            value = self._read[int(self._share() * len(self._read))]
        else:
            size = self._mean_bytes
            if self._sizes.vary:
                size = max(payload.key_bytes, self._sizes.quantile(size, self._share()))
            value = self._make_value(size - payload.key_bytes)
        headers = [(f"h{i}", rng.randbytes(payload.header_bytes)) for i in range(payload.headers)]
        return self._key(), value, headers

    def _share(self) -> float:
        if not self._strata:
            self._strata = self._rng.sample(range(_STRATA), _STRATA)
        return (self._strata.pop() + self._rng.random()) / _STRATA

    def _key(self) -> bytes | None:
        if not self._payload.key_bytes:
            return None
        if self._keys:
            return self._rng.choice(self._keys)
        return self._rng.randbytes(self._payload.key_bytes)

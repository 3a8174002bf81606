"""The content and sizes of messages, and the sizes of records and batches in Kafka's format v2.

The format is described at https://kafka.apache.org/documentation/#recordbatch and #record.
"""

from __future__ import annotations

import functools
import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from statistics import NormalDist
from typing import Annotated, Literal

from metrics.columns import Column
from metrics.common.bounds import Number, Whole

MESSAGE_BYTES_MAX = 10_000_000
"""Maximum size of a message [B]."""

QUANTILE_MAX = 0.9999
"""Quantile at which distributions are cut off, so that messages have a largest size."""

_NORMAL = NormalDist()
_GRID = 1_024
_ROUNDS = 4


@dataclass(frozen=True)
class Sizes:
    """The distribution of message sizes around a mean. The mean is an argument of the methods.

    Attributes:
        kind: "fixed"; "uniform"; "lognormal"; "histogram"; or "messages" for the sizes of a file's
            messages. The sizes of a file's messages are not scaled to the mean.
        spread: for "uniform", half the width divided by the mean, above 0 up to 1; for "lognormal",
            the standard deviation of the natural logarithm of sizes.
        histogram: for "histogram", pairs of size [B] and weight; sizes are scaled to the mean.
    """

    kind: str = "fixed"
    spread: float = 0.5
    histogram: tuple[tuple[int, float], ...] = ()

    @property
    def vary(self) -> bool:
        """True if messages have different sizes."""
        return self.kind != "fixed"

    def quantile(self, mean_bytes: int, share: float) -> int:
        """The quantile of message sizes at `share` [B].

        Args:
            mean_bytes: mean of the distribution [B]. The mean is approximate, because sizes are cut
                off and rounded.
            share: share of the messages, from 0 to 1 [ratio].
        """
        if self.kind in ("fixed", "messages"):
            return mean_bytes
        return _rounded(_scale(self, mean_bytes) * self._relative(share))

    def largest(self, mean_bytes: int) -> int:
        """Size of the largest message [B].

        The size is not valid for the kind "messages", because the sizes of messages are in a file.
        """
        return self.quantile(mean_bytes, 1.0)

    def _relative(self, share: float) -> float:
        """The quantile at `share` of the distribution before it is scaled to the mean."""
        share = min(max(share, 1 - QUANTILE_MAX), QUANTILE_MAX)
        if self.kind == "uniform":
            return 1 + self.spread * (2 * share - 1)
        if self.kind == "lognormal":
            return math.exp(self.spread * _NORMAL.inv_cdf(share))
        return _histogram_quantile(self.histogram)(share)


def _rounded(size: float) -> int:
    return min(max(1, round(size)), MESSAGE_BYTES_MAX)


@functools.lru_cache(maxsize=64)
def _scale(sizes: Sizes, mean_bytes: int) -> float:
    """The factor by which relative sizes are multiplied, so that the rounded sizes have the given
    mean.
    """
    relative = [sizes._relative((i + 0.5) / _GRID) for i in range(_GRID)]
    scale = mean_bytes * _GRID / sum(relative)
    for _ in range(_ROUNDS):
        mean = sum(_rounded(scale * each) for each in relative) / _GRID
        scale *= mean_bytes / mean
    return scale


@functools.lru_cache(maxsize=16)
def _histogram_quantile(histogram: tuple[tuple[int, float], ...]) -> Callable[[float], float]:
    ordered = sorted(histogram)
    bounds = list(accumulate(weight for _, weight in ordered))

    def quantile(share: float) -> float:
        return float(ordered[min(bisect_left(bounds, share * bounds[-1]), len(ordered) - 1)][0])

    return quantile


HISTOGRAM_LINES_MAX = 10_000


@dataclass(frozen=True)
class Payload:
    """The content of the records.

    Attributes:
        kind: content of a value: "random" for incompressible bytes; "repeated" for one repeated
            character; "mixed" for both; or "messages" for the messages of a file.
        compressibility: for "mixed", the repeated share of each value [ratio].
        wanted_ratio: for "mixed", in place of `compressibility`: size before compression divided by
            size after compression [ratio].
        messages_file: for "messages", the path of the file on the executors.
        messages_format: format of the file: "lines", or "length-prefixed" with a big-endian length
            of four bytes before each message.
        sizes: distribution of sizes around the mean: "fixed"; "uniform"; "lognormal"; "histogram",
            from a file; or "messages", the sizes of the file's messages.
        size_spread: for "uniform", half the width divided by the mean; for "lognormal", the
            standard deviation of the natural logarithm of sizes [ratio].
        histogram_file: file on the driver; each line has a size [B] and the weight of this size.
        key_bytes: size of a message's key; 0 if messages have no keys.
        key_count: number of different keys; 0 means that each message has a new key.
        headers: number of headers per message, with the names h0, h1 and so on.
        header_bytes: size of a header's value.
        seed: seed of all random values.
        pool_bytes: total size of the encoded records that a task keeps and sends repeatedly.
    """

    kind: Annotated[Literal["random", "repeated", "mixed", "messages"], Column("payload")] = (
        "random"
    )
    compressibility: Annotated[float, Number(0, 1)] | None = None
    wanted_ratio: Annotated[float, Number(1, 1_000)] | None = None
    messages_file: str | None = None
    messages_format: Literal["lines", "length-prefixed"] = "lines"
    sizes: Annotated[
        Literal["fixed", "uniform", "lognormal", "histogram", "messages"], Column("message_sizes")
    ] = "fixed"
    size_spread: Annotated[float, Number(0, 3, above=True)] | None = None
    histogram_file: str | None = None
    key_bytes: Annotated[int, Whole(0, 100_000, "bytes"), Column("key_bytes")] = 0
    key_count: Annotated[int, Whole(0, 1_000_000, "keys")] = 0
    headers: Annotated[int, Whole(0, 100, "headers"), Column("headers")] = 0
    header_bytes: Annotated[int, Whole(0, 100_000, "bytes")] = 0
    seed: Annotated[int, Whole(0, 2**63 - 1)] = 1
    pool_bytes: Annotated[int, Whole(65_536, 1_000_000_000, "bytes")] = 8_388_608

    @functools.cached_property
    def distribution(self) -> Sizes:
        """The distribution of message sizes."""
        if self.histogram_file is not None:
            path = Path(self.histogram_file).expanduser()
            return Sizes("histogram", histogram=read_histogram(path))
        return Sizes(self.sizes, self.size_spread or 0.0)

    def __getstate__(self) -> dict[str, object]:
        self.distribution  # noqa: B018 - computed here, because its file may exist only on the driver
        return self.__dict__

    @property
    def repeated_share(self) -> float:
        """Share of each value that consists of one repeated character [ratio]."""
        return {"repeated": 1.0, "mixed": self.compressibility or 0.0}.get(self.kind, 0.0)

    def require_consistent(self) -> None:
        """Refuse options that contradict each other, and read the histogram.

        Raises:
            ValueError: the message has the given and the expected values, and the remedy.
        """
        dials = [d for d in (self.compressibility, self.wanted_ratio) if d is not None]
        if len(dials) != (1 if self.kind == "mixed" else 0):
            raise ValueError(
                f"kind is {self.kind} and {len(dials)} of compressibility and wanted_ratio are "
                "given; expected exactly one of them if kind is mixed, and otherwise neither of "
                "them; change kind or these options"
            )
        self._require_together("messages_file", self.kind == "messages", "kind is messages")
        if self.sizes == "messages" and self.kind != "messages":
            raise ValueError(
                f"sizes is 'messages' and kind is {self.kind!r}; expected kind 'messages', because "
                "the sizes are those of the messages in messages_file; change sizes or kind"
            )
        self._require_together("histogram_file", self.sizes == "histogram", "sizes is histogram")
        spread_by = self.sizes in ("uniform", "lognormal")
        self._require_together("size_spread", spread_by, "sizes is uniform or lognormal")
        if self.sizes == "uniform" and (self.size_spread or 0) > 1:
            raise ValueError(
                f"size_spread is {self.size_spread} with sizes uniform; expected at most 1, "
                "which gives sizes from 0 to twice the mean; lower size_spread"
            )
        self.distribution  # noqa: B018 - reads and checks the file
        for count, size in (("key_count", "key_bytes"), ("header_bytes", "headers")):
            if getattr(self, count) and not getattr(self, size):
                raise ValueError(
                    f"{count} is {getattr(self, count)} and {size} 0; expected {size} above 0; "
                    f"change {count} or {size}"
                )

    def _require_together(self, key: str, is_wanted: bool, reason: str) -> None:
        is_given = getattr(self, key) is not None
        if is_given != is_wanted:
            raise ValueError(
                f"{key} is {'given' if is_given else 'missing'}; expected {key} if and only if "
                f"{reason}; {'remove' if is_given else 'add'} {key}, or change "
                f"{reason.partition(' ')[0]}"
            )


@functools.lru_cache(maxsize=16)
def read_histogram(path: Path) -> tuple[tuple[int, float], ...]:
    """Read pairs of a size [B] and a weight. The file has one pair per line.

    Raises:
        ValueError: the file cannot be read, or a line is not a pair of a size and a weight.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(
            f"histogram_file {path} cannot be read ({error}); expected a text file; "
            "correct the path"
        ) from None
    pairs: list[tuple[int, float]] = []
    for number, line in enumerate(lines, 1):
        text = line.split("#", 1)[0].replace(",", " ").split()
        if text:
            pairs.append(_pair(text, f"histogram_file {path}, line {number}"))
    if not 0 < len(pairs) <= HISTOGRAM_LINES_MAX:
        raise ValueError(
            f"histogram_file {path} has {len(pairs)} sizes; expected 1 to {HISTOGRAM_LINES_MAX} "
            "lines, each with a size in bytes and a weight; correct the file"
        )
    return tuple(pairs)


def _pair(text: list[str], where: str) -> tuple[int, float]:
    try:
        size, weight = int(text[0]), float(text[1])
        is_good = len(text) == 2 and 1 <= size <= MESSAGE_BYTES_MAX and 0 < weight < float("inf")
    except (ValueError, IndexError):
        is_good = False
    if not is_good:
        raise ValueError(
            f"{where} is {' '.join(text)[:60]}; expected a size from 1 to {MESSAGE_BYTES_MAX} "
            "bytes and a weight above 0, such as 1024 17; correct the line"
        )
    return size, weight


BATCH_HEADER_BYTES = 61
"""Size of a record batch header [B]."""


def varint_bytes(value: int) -> int:
    """Size of a number of 0 or more in Kafka's zig-zag varint encoding [B]."""
    return max(1, math.ceil((value << 1).bit_length() / 7))


def record_bytes(
    index: int, message_bytes: int, rate_records_per_s: float, payload: Payload | None = None
) -> int:
    """Size of record `index` of a batch [B].

    A record consists of its length, attributes, timestamp delta, offset delta, key, value and
    headers.

    Args:
        index: position of the record in its batch, from 0.
        message_bytes: size of key and value [B].
        rate_records_per_s: rate of the producer, which determines the timestamp delta [1/s].
        payload: options of keys and headers; None if records have no keys and no headers.
    """
    held = payload or Payload()
    deltas = varint_bytes(int(index * 1000.0 / rate_records_per_s)) + varint_bytes(index)
    value_bytes = message_bytes - held.key_bytes
    keyed = varint_bytes(held.key_bytes) + held.key_bytes if held.key_bytes else 1
    body = 1 + deltas + keyed + varint_bytes(value_bytes) + value_bytes
    body += varint_bytes(held.headers) + sum(
        varint_bytes(size) + size
        for i in range(held.headers)
        for size in (len(f"h{i}"), held.header_bytes)
    )
    return varint_bytes(body) + body


@functools.lru_cache(maxsize=64)
def records_that_fit(
    batch_size: int, message_bytes: int, rate_records_per_s: float, payload: Payload
) -> int:
    """Number of uncompressed records that fit into a batch of this size [B], at least one."""
    size, records = BATCH_HEADER_BYTES, 0
    while True:
        size += record_bytes(records, message_bytes, rate_records_per_s, payload)
        if size > batch_size:
            return max(1, records)
        records += 1

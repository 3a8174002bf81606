"""The sizes of decoded records, and how often their keys repeat; no key or value is kept."""

from __future__ import annotations

import hashlib
import math
import secrets
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

KEYS_MAX = 500_000
"""Number of different keys that are counted apart."""
_HASH_BYTES = 8


@dataclass
class SizeTally:
    """Sizes of one kind: their number, sum and spread.

    Attributes:
        count: number of sizes.
        total: their sum [B].
        logs, squares: sums of their natural logarithms, and of the squares of these, over sizes
            above 0.
        positive: number of sizes above 0.
        largest: the largest one [B].
    """

    count: int = 0
    total: int = 0
    logs: float = 0.0
    squares: float = 0.0
    positive: int = 0
    largest: int = 0

    def add(self, size: int) -> None:
        """Count one size [B]."""
        self.count += 1
        self.total += size
        self.largest = max(self.largest, size)
        if size > 0:
            logarithm = math.log(size)
            self.positive += 1
            self.logs += logarithm
            self.squares += logarithm * logarithm

    @property
    def mean(self) -> float:
        """The mean size [B]; 0 without any."""
        return self.total / self.count if self.count else 0.0

    @property
    def spread(self) -> float:
        """Standard deviation of the sizes' natural logarithm [ratio]; 0 for equal sizes."""
        if self.positive < 2:
            return 0.0
        mean = self.logs / self.positive
        return math.sqrt(max(0.0, self.squares / self.positive - mean * mean))


@dataclass
class RecordTally:
    """What decoded records show.

    Keys are counted by a hash with a secret that ends with this process, so that no key can be
    recognized in what is kept.

    Attributes:
        messages: sizes of key and value together.
        keys, values: sizes of the keys that are there, and of the values.
        headers: number of headers of all records.
        header_bytes: sizes of the headers' values.
        plain_bytes: size of the records before compression [B].
        stored_bytes: size of the same records in the log [B].
        batches: number of batches that were decoded.
        unreadable: number of batches that could not be decoded.
        by_key: hash of a key → number of its records.
    """

    messages: SizeTally = field(default_factory=SizeTally)
    keys: SizeTally = field(default_factory=SizeTally)
    values: SizeTally = field(default_factory=SizeTally)
    headers: int = 0
    header_bytes: SizeTally = field(default_factory=SizeTally)
    plain_bytes: int = 0
    stored_bytes: int = 0
    batches: int = 0
    unreadable: int = 0
    by_key: Counter[bytes] = field(default_factory=Counter)
    _secret: bytes = field(default_factory=lambda: secrets.token_bytes(16), repr=False)

    def add(self, key: bytes | None, value_bytes: int, header_sizes: Sequence[int]) -> None:
        """Count one record.

        Args:
            value_bytes: size of its value [B].
            header_sizes: sizes of the values of its headers [B].
        """
        self.values.add(value_bytes)
        self.messages.add(value_bytes + len(key or b""))
        self.headers += len(header_sizes)
        for size in header_sizes:
            self.header_bytes.add(size)
        if key is None:
            return
        self.keys.add(len(key))
        hashed = hashlib.blake2b(key, digest_size=_HASH_BYTES, key=self._secret).digest()
        if hashed in self.by_key or len(self.by_key) < KEYS_MAX:
            self.by_key[hashed] += 1

    def add_batch(self, plain_bytes: int, stored_bytes: int) -> None:
        """Count one decoded batch by the size of its records before and after compression [B]."""
        self.batches += 1
        self.plain_bytes += plain_bytes
        self.stored_bytes += stored_bytes

    @property
    def ratio(self) -> float:
        """Size of the records before compression over that after it [ratio]."""
        return self.plain_bytes / self.stored_bytes if self.stored_bytes else 1.0

    @property
    def keyed_share(self) -> float:
        """Share of the records that have a key [ratio]."""
        return self.keys.count / self.messages.count if self.messages.count else 0.0

    @property
    def headers_each(self) -> float:
        """Mean number of headers of a record."""
        return self.headers / self.messages.count if self.messages.count else 0.0

    @property
    def key_range(self) -> tuple[int, float]:
        """The number of different keys that were seen, and an estimate of all that are in use.

        The estimate is Chao's lower bound from the keys that were seen once and twice
        (https://doi.org/10.2307/4615964).
        """
        seen = len(self.by_key)
        once = sum(count == 1 for count in self.by_key.values())
        twice = sum(count == 2 for count in self.by_key.values())
        return seen, all_seen(seen, once, twice)

    @property
    def top_key_share(self) -> float:
        """Share of the records with a key that have the most frequent one [ratio]."""
        most = max(self.by_key.values(), default=0)
        return most / self.keys.count if self.keys.count else 0.0

    @property
    def top_tenth_share(self) -> float:
        """Share of the records with a key that have one of the most frequent tenth of keys."""
        ordered = sorted(self.by_key.values(), reverse=True)
        most = sum(ordered[: max(1, len(ordered) // 10)])
        return most / self.keys.count if self.keys.count else 0.0


def all_seen(seen: int, once: int, twice: int) -> float:
    """An estimate of how many kinds there are, from those seen at all, once and twice."""
    return seen + once * (once - 1) / (2.0 * (twice + 1))

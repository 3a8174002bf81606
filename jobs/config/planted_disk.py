"""The options of a planted disk: the stated write rate of each broker's disk."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated

from jobs.config.link import Measure
from metrics.common.bounds import Whole

DIRTY_S = 0.4
"""Bytes that may wait in memory unless their number is given, as the time to write them [s]."""
DIRTY_LEAST_BYTES = 1_000_000
PAUSE_S = 0.2
"""Longest time for which the kernel lets a writer wait before it looks again [s]."""

WRITE_RATE = Measure(
    {"kB/s": 1e3, "MB/s": 1e6, "GB/s": 1e9},
    5e5,
    1e10,
    "a rate from 500kB/s on, such as 10MB/s",
)


@dataclass(frozen=True)
class PlantedDisk:
    """The disk of each broker of a testbed: a file with a stated write rate.

    Attributes:
        write_rate: rate at which each broker's disk writes.
        dirty_bytes: bytes of each disk that wait in memory to be written, at most; beyond them
            the broker waits for the disk. 0 leaves them to the kernel.
        size_bytes: size of each disk; its file grows as the broker writes.
    """

    write_rate: Annotated[str, WRITE_RATE]
    dirty_bytes: Annotated[int, Whole(0, 10**12, "bytes")] | None = None
    size_bytes: Annotated[int, Whole(100_000_000, 10**13, "bytes")] = 8_000_000_000

    @property
    def write_bytes_per_s(self) -> float:
        """The write rate [B/s]."""
        return WRITE_RATE.of(self.write_rate)

    @property
    def dirty_limit_bytes(self) -> int | None:
        """Bytes that wait in memory at most [B]; None where the kernel decides."""
        if self.dirty_bytes is None:
            return max(DIRTY_LEAST_BYTES, round(self.write_bytes_per_s * DIRTY_S))
        return self.dirty_bytes or None

    def require_consistent(self) -> None:
        """Refuse options that contradict each other.

        Raises:
            ValueError: fewer bytes may wait than the disk writes while a writer waits.
        """
        least = round(self.write_bytes_per_s * PAUSE_S)
        if self.dirty_bytes is not None and 0 < self.dirty_bytes < least:
            raise ValueError(
                f"dirty_bytes is {self.dirty_bytes} and write_rate {self.write_rate}; expected 0 "
                f"or at least {least}, what the disk writes in {PAUSE_S:g} s, for which the kernel "
                "lets a writer wait; raise it or leave it out"
            )

    @property
    def facts(self) -> dict[str, str]:
        """Key → value for the rate and for each value that differs from its default."""
        values = {each.name: (getattr(self, each.name), each.default) for each in fields(self)}
        return {
            key: f"{value}"
            for key, (value, default) in values.items()
            if key == "write_rate" or value != default
        }

    def words(self) -> str:
        """The disk in words, such as `10MB/s, at most 4.0 MB of it wait in memory`."""
        limit = self.dirty_limit_bytes
        waiting = "what waits in memory is left to the kernel"
        if limit is not None:
            waiting = f"at most {limit / 1e6:.1f} MB wait in memory"
        return f"{self.write_rate} a broker; {waiting}"

"""Sizes, times and counts as people write them: `64 MiB`, `30s`, `10k`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal

_FORM = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-zµ/]+)")

_PREFIXES = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_COUNTS = {prefix: Decimal(1000**power) for prefix, power in _PREFIXES.items()} | {
    f"{prefix}i": Decimal(1024**power) for prefix, power in _PREFIXES.items() if prefix
}
"""k is 1000, Ki is 1024."""

_SECONDS = {
    "ms": Decimal("0.001"),
    "s": Decimal(1),
    "m": Decimal(60),
    "min": Decimal(60),
    "h": Decimal(3600),
}
_BYTES = _COUNTS | {f"{prefix}B": factor for prefix, factor in _COUNTS.items()}
_UNITS = {
    "bytes": _BYTES,
    "bytes per second": _BYTES | {f"{name}/s": factor for name, factor in _BYTES.items()},
    "records per second": _COUNTS
    | {
        f"{name}{each}/s": factor
        for name, factor in _COUNTS.items()
        for each in ("", "msg", "messages", "records")
    },
    "seconds": _SECONDS,
    "milliseconds": {name: 1000 * factor for name, factor in _SECONDS.items()},
}

EXAMPLES = {
    "bytes": "64 MiB",
    "bytes per second": "2 MB/s",
    "records per second": "50k/s",
    "seconds": "30s",
    "milliseconds": "20ms",
}


def amount(text: str, unit: str) -> float | int | None:
    """The value of a text with a unit, as a number of `unit`; None for another text.

    Args:
        text: a number with a unit.
        unit: unit of the result, a plural noun such as `seconds`; a noun that is not a unit of
            time or size, such as `records`, accepts k, M, Ki and so on.
    """
    found = _FORM.fullmatch(text.strip())
    if found is None:
        return None
    factor = _UNITS.get(unit, _COUNTS).get(found[2])
    if factor is None:
        return None
    number = Decimal(found[1]) * factor
    return int(number) if number == number.to_integral_value() else float(number)


@dataclass(frozen=True)
class OfferedRate:
    """A rate of all producers together.

    Attributes:
        per_s: the payload [B/s] or the messages [1/s].
        is_payload: True for a payload.
    """

    per_s: float
    is_payload: bool

    def __str__(self) -> str:
        """The rate in words: `200 MB/s`, `50,000 messages/s`."""
        return f"{self.per_s / 1e6:g} MB/s" if self.is_payload else f"{self.per_s:,g} messages/s"


def offered_rate(text: str) -> OfferedRate | None:
    """The rate of a text such as `200MB/s` or `50k msg/s`; None for another text, or for 0."""
    compact = "".join(text.split())
    is_payload = compact.endswith("B/s")
    unit = "bytes per second" if is_payload else "records per second"
    rate = amount(compact, unit) if compact.endswith("/s") else None
    return OfferedRate(float(rate), is_payload) if rate else None

"""The format of numbers for people, such as sizes, rates and durations.

Units are decimal: 1 kB is 1000 bytes, 1 MB is 10⁶ bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime, timezone

from search.model import LEVEL

_SIZE_UNITS = ("B", "kB", "MB", "GB", "TB")
UNKNOWN = "?"


def format_size(size_bytes: float) -> str:
    """A size with up to four digits, such as 100 → `100 B`, 1000 → `1 kB` and 1024 → `1.024 kB`."""
    return _with_unit(size_bytes, digits=4)


def format_volume(size_bytes: float) -> str:
    """An amount of data with two digits or as a whole number, such as `1.2 MB`, `12 MB` or `123
    MB`.
    """
    return _with_unit(size_bytes, digits=2)


def _with_unit(size_bytes: float, digits: int) -> str:
    if not math.isfinite(size_bytes):
        return UNKNOWN
    value, unit = float(size_bytes), _SIZE_UNITS[0]
    for unit in _SIZE_UNITS:
        rounded = _round(value, digits)
        if abs(rounded) < 1000 or unit == _SIZE_UNITS[-1]:
            break
        value /= 1000
    return f"{rounded:g} {unit}" if rounded < 1e6 else f"{rounded:.0f} {unit}"


def _round(value: float, digits: int) -> float:
    """Round a value to `digits` significant digits. Whole numbers below 1000 are not changed."""
    if value == 0 or (value < 1000 and value == int(value)):
        return value
    return round(value, max(0, digits - 1 - math.floor(math.log10(abs(value)))))


def format_mb_per_s(mb_per_s: float | None) -> str:
    """A rate in MB/s without its unit, such as `0.123`, `1.23`, `12.3`, `123.4` or `1,234`."""
    if mb_per_s is None or not math.isfinite(mb_per_s):
        return UNKNOWN
    if mb_per_s == 0:
        return "0"
    if abs(mb_per_s) < 0.0005:
        return "<0.001"
    decimals = 3 if mb_per_s < 0.9995 else 2 if mb_per_s < 9.995 else 1 if mb_per_s < 999.95 else 0
    return f"{mb_per_s:,.{decimals}f}"


def format_megabytes(size_bytes: float | None) -> str:
    """A size in MB as a whole number without its unit, such as `1,234`."""
    return UNKNOWN if size_bytes is None else f"{size_bytes / 1e6:,.0f}"


def format_beside(value: float, limit: float, digits: int = 2) -> str:
    """A value with enough digits to look different from a limit that is printed beside the value.

    If the limit is 0.2, the value 0.1996 becomes `0.1996`, because `0.20` would look like the
    limit. If the value is far from the limit, `digits` decimals are enough, such as `0.05`.
    """
    for more in range(digits, digits + 4):
        if float(f"{value:.{more}f}") != float(f"{limit:.{more}f}"):
            return f"{value:.{more}f}"
    return f"{value:.{digits}f}"


def format_ms(duration_ms: float | None) -> str:
    """Milliseconds without the unit, such as `0.62`, `27.3` or `279`."""
    if duration_ms is None or not math.isfinite(duration_ms):
        return UNKNOWN
    decimals = 2 if duration_ms < 9.995 else 1 if duration_ms < 99.95 else 0
    return f"{duration_ms:,.{decimals}f}"


def format_span(low: float, high: float, parts: int | None = None) -> str:
    """An interval of loads, such as `44 to 50`, or `1.6 to 2.9` for loads below ten. The low end is
    rounded down, and the high end is rounded up.

    Args:
        low, high: the ends of the interval.
        parts: number of rounding steps per unit of load, such as 100 for `2.63 to 2.79`. Without
            `parts`, both ends are rounded to tenths if the high end is below ten. Otherwise both
            ends are rounded to whole numbers.
    """
    parts = parts or (1 if high >= 10 else 10)
    # A value that differs from a step only by a rounding error counts as the step.
    least = math.floor(round(low * parts, 6)) / parts
    most = math.ceil(round(high * parts, 6)) / parts
    return f"{least:,g} to {most:,g}"


def format_estimate(value: float) -> str:
    """An estimated load, with one decimal below a hundred, such as `1,234`, `81.1` or `4.2`."""
    return f"{value:,.0f}" if value >= 99.95 else f"{value:,.1f}"


def format_count(count: float | None) -> str:
    """A whole number with separated thousands, such as `12,000`."""
    if count is None or not math.isfinite(count):
        return UNKNOWN
    return f"{count:,.0f}"


def format_counted(count: int, noun: str) -> str:
    """A count with its noun, such as `1 broker` or `3 brokers`."""
    return f"{format_count(count)} {noun}{'' if count == 1 else 's'}"


def format_some(names: Iterable[object], most: int = 1) -> str:
    """The first `most` names and the number of the other names, such as `a, b and 3 more`."""
    found = list(map(str, names))
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return f"{', '.join(found[:most])}{more}"


def format_ratio(ratio: float | None) -> str:
    """A ratio as a percentage: 0.047 → `4.7 %`, 0.5 → `50 %`."""
    if ratio is None or not math.isfinite(ratio):
        return UNKNOWN
    percent = ratio * 100
    digits = f"{percent:.1f}".removesuffix(".0") if percent < 9.95 else f"{percent:.0f}"
    return f"{digits} %"


AT_LEVEL = f"at {format_ratio(LEVEL)}"
"""The words that follow an interval in texts: `at 90 %`."""


def format_duration(duration_s: float | None) -> str:
    """A duration, such as `12 s`, `1 min 20 s` or `2 h 05 min`; `?` if it is not known."""
    if duration_s is None or not math.isfinite(duration_s):
        return UNKNOWN
    whole_s = max(0, round(duration_s))
    if whole_s < 60:
        return f"{whole_s} s"
    minutes, seconds = divmod(whole_s, 60)
    if minutes < 60:
        return f"{minutes} min {seconds:02d} s" if seconds else f"{minutes} min"
    hours, minutes = divmod(round(duration_s / 60), 60)
    return f"{hours} h {minutes:02d} min"


def iso_utc(at_s: float) -> str:
    """A wall-clock time [s since the epoch] as ISO 8601 in UTC, such as `2026-11-21T11:46:32Z`."""
    return datetime.fromtimestamp(at_s, tz=timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")

"""Sizes and times with units of their own."""

from __future__ import annotations

from metrics.common.bounds import EXAMPLES, amount


def test_a_value_with_another_unit_is_converted() -> None:
    for text, unit, number in (
        ("64 MiB", "bytes", 64 * 1024**2), ("64Mi", "bytes", 64 * 1024**2), ("1k", "bytes", 1000),
        ("1.5 GB", "bytes", 1_500_000_000), ("7 B", "bytes", 7), ("1Ki", "bytes", 1024),
        ("2 MB/s", "bytes per second", 2_000_000), ("2M", "bytes per second", 2_000_000),
        ("30s", "seconds", 30), ("1.5h", "seconds", 5400), ("5 min", "seconds", 300),
        ("5m", "seconds", 300), ("250ms", "seconds", 0.25), ("0.1s", "milliseconds", 100),
        ("20 ms", "milliseconds", 20), ("48h", "milliseconds", 172_800_000),
        ("10k", "records", 10_000),
    ):  # fmt: skip
        found = amount(text, unit)
        assert (found, type(found)) == (number, type(number)), text
    for unit, example in EXAMPLES.items():
        assert amount(example, unit) is not None, example
    for text, unit in (
        ("30", "seconds"), ("30s", "bytes"), ("1 kB", "seconds"), ("-1s", "seconds"),
        ("k", "bytes"), ("1MB/s", "bytes"), ("", "bytes"), ("1e3k", "bytes"),
        ("1 2k", "bytes"), ("1s", "x"),
    ):  # fmt: skip
        assert amount(text, unit) is None, text

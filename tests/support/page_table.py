"""The table of docs/metrics.md: what is read under the rules of each project."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

_PAGE = Path(__file__).parents[2] / "docs/metrics.md"
_BEGIN = "| exporter's rules | handlers' idle"
_IDLE = ("handler_idle_ns", "broker_handler_idle_ns")

ROWS: Mapping[str, str] = {
    "none": "none (Amazon MSK)",
    "lower case": "none, with lowercaseOutputName (Bitnami's chart)",
    "kafka-kraft-3_0_0": "kafka-kraft-3_0_0",
    "kafka-2_0_0": "kafka-2_0_0",
    "strimzi": "Strimzi's kafka-metrics.yaml",
    "confluent": "Confluent's kafka_broker.yml, cp-ansible's kafka.yml",
    "none, stand-alone": "none, stand-alone exporter",
    "confluent, stand-alone": "Confluent's, stand-alone exporter",
    "Strimzi's Metrics Reporter": "Strimzi's Metrics Reporter 0.2.0, without the exporter",
    "one-minute rates": "one-minute rates only",
}
"""Rules of the tests → their row, without backquotes."""

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "bytes, messages, ISR": ("bytes_in", "messages_in", "isr_shrinks", "isr_expands"),
    "network threads": ("network_wait_ns", "network_in_bytes", "network_out_bytes"),
    "machine's CPU": ("machine_cpu_share", "processors"),
    "process": ("uptime_ms", "process_cpu_ns", "heap_used_bytes", "heap_max_bytes", "gc_ms"),
    "node id": ("node_id",),
}
"""Column → the readings that all must be there."""


def stated_rows() -> dict[str, dict[str, str]]:
    """First cell of a row, without backquotes → column of a kind of readings → its cell."""
    text = _PAGE.read_text(encoding="utf-8")
    assert _BEGIN in text
    head, _, *rows = (_BEGIN + text.partition(_BEGIN)[2]).partition("\n\n")[0].split("\n")
    names = _cells(head)
    found = {}
    for row in rows:
        label, *cells = _cells(row)
        named = dict(zip(names[1:], cells, strict=True))
        found[label.replace("`", "")] = {name: named[name] for name in names[1:-1]}
    return found


def cells_of(readings: Collection[str]) -> dict[str, str]:
    """Column → its cell, for the readings that a page shows."""

    def has(names: Collection[str]) -> bool:
        return all(name in readings for name in names)

    idle = any(name in readings for name in _IDLE)
    means = any(f"produce_local_ms_{word}" in readings for word in ("mean", "sum"))
    counts = "counts" if has(("produce_local_ms_count",)) else "no"
    return {
        "handlers' idle time": "yes" if idle else "no",
        "request times": "yes" if means and counts == "counts" else counts,
        **{column: "yes" if has(names) else "no" for column, names in COLUMNS.items()},
    }


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]

"""Further rows: compression, idempotence, TLS, delivery reports, small batches, given rates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from jobs.config import load_workload
from jobs.engine.batches.pool import CODECS
from tests.bench.contest import Entry
from tests.bench.requests import COMPILER, is_possible
from tests.bench.rows import JAVA, KERNEL

CODECS_SHOWN = ("lz4", "zstd")

# Half of each value is one character: random bytes do not compress, and one character vanishes.
_HALF = {"kind": "mixed", "compressibility": 0.5}


@dataclass(frozen=True)
class Variants:
    """The measured variants, and a sentence for each skipped one.

    Attributes:
        groups: entries that take turns, the size of their messages, and that of the batches that
            consumers read [B].
    """

    groups: tuple[tuple[tuple[Entry, ...], int, int], ...]
    skipped: tuple[str, ...]


def variants() -> Variants:
    """The variants that can be measured here."""
    idempotent: Mapping[str, Any] = {"enable_idempotence": True, "acks": "all"}
    entries = [
        *(Entry("producer", name, "idempotent", idempotent) for name in _PEERS),
        *(Entry("producer", name, "TLS", is_tls=True) for name in _PEERS),
        Entry("producer", "librdkafka", "no delivery reports", {"reports": False}),
        *as_shipped("1kB", 100),
        *as_shipped("quick", 25),
        *as_shipped("quick", 25, is_tls=True),
        *(Entry("producer", name, "a record each", pace=_pace(100, 40, 0.0)) for name in _PEERS),
        Entry("producer", "wire", f"{IDLE:,} idle", pace=_pace(IDLE, 0.1, 0.0)),
        *(Entry("consumer", name, "small batches") for name in _PEERS),
    ]
    skipped = [] if is_possible() else [f"no row for {KERNEL}: Linux and {COMPILER} are missing"]
    for name in CODECS_SHOWN:
        if CODECS[name].is_installed():
            options = {"compression": name, "payload": _HALF}
            entries += [Entry("producer", each, name, options) for each in ("wire", "librdkafka")]
        else:
            skipped.append(f"no row for {name}: the package {CODECS[name].package} is missing")
    skipped.append("no compression row for java: its tool makes payload of another kind")
    groups = (
        (tuple(entries), MESSAGE_BYTES, SMALL_BATCH_BYTES),
        (tuple(_full_batches()), 100, SMALL_BATCH_BYTES),
    )
    return Variants(groups, tuple(skipped))


def as_shipped(name: str, producers: int, is_tls: bool = False) -> Iterator[Entry]:
    """Producers with the rate, the linger and the batches of a workload of the project.

    At these rates a batch has few records. Java's tool is one producer; its row shows what a
    process with one producer costs.
    """
    pattern = load_workload(name).pattern(MESSAGE_BYTES).producer
    options = pattern.options
    delivery = {"acks": options.acks, "enable_idempotence": options.enable_idempotence}
    pace = {
        "producers": producers,
        "records_per_s": round(pattern.rate_records_per_s),
        "linger_ms": options.linger_ms,
        "batch_bytes": options.batch_size,
    }
    variant = f"as in {name}{', TLS' if is_tls else ''}"
    for client in _PEERS:
        yield Entry("producer", client, variant, delivery, is_tls, pace)
    if is_possible() and not is_tls:
        yield Entry("producer", KERNEL, variant, pace=pace)


def _full_batches() -> Iterator[Entry]:
    """Producers whose batches of 16 KiB are full before their linger is over."""
    for client in _PEERS:
        yield Entry("producer", client, "16 KiB batches", pace=_pace(25, 16_000, 100.0))


def _pace(producers: int, records_per_s: float, linger_ms: float) -> Mapping[str, Any]:
    return {
        "producers": producers,
        "records_per_s": records_per_s,
        "linger_ms": linger_ms,
        "batch_bytes": 16_384,
    }


MESSAGE_BYTES = 1_000
"""Size of the messages of all variants but one [B]."""

SMALL_BATCH_BYTES = 7_500
"""`batch.size` of the batches that consumers read, which hold 7 records of 1,000 B [B]."""

IDLE = 10_000
"""Number of idle producers, each with a record every ten seconds."""

_PEERS = ("wire", "librdkafka", JAVA)

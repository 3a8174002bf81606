"""Further rows: compression, idempotence, TLS and delivery reports, at one size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jobs.engine.batches.compression import CODECS
from tests.bench.contest import Entry
from tests.bench.rows import JAVA

CODECS_SHOWN = ("lz4", "zstd")

# Half of each value is one character: random bytes do not compress, and one character vanishes.
_HALF = {"kind": "mixed", "compressibility": 0.5}


@dataclass(frozen=True)
class Variants:
    """The measured variants, and a sentence for each skipped one."""

    entries: tuple[Entry, ...]
    skipped: tuple[str, ...]


def variants() -> Variants:
    """The variants that can be measured here."""
    idempotent: Mapping[str, Any] = {"enable_idempotence": True, "acks": "all"}
    entries = [
        *(Entry("producer", name, "idempotent", idempotent) for name in _PEERS),
        *(Entry("producer", name, "TLS", is_tls=True) for name in _PEERS),
        Entry("producer", "librdkafka", "no delivery reports", {"reports": False}),
    ]
    skipped = []
    for name in CODECS_SHOWN:
        if CODECS[name].is_installed():
            options = {"compression": name, "payload": _HALF}
            entries += [Entry("producer", each, name, options) for each in ("wire", "librdkafka")]
        else:
            skipped.append(f"no row for {name}: the package {CODECS[name].package} is missing")
    skipped.append("no compression row for java: its tool makes payload of another kind")
    return Variants(tuple(entries), tuple(skipped))


_PEERS = ("wire", "librdkafka", JAVA)

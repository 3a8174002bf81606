"""Production to learn from: four kinds of traffic by Kafka's own Java producers, and two groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from jobs.cluster.connect import connect
from jobs.testbed.handle import Testbed
from tests.support.java_traffic import JavaKind, JavaTraffic, java_traffic
from tests.support.neighbors import reading

WORD = "Mustermann-4711"
"""A word that each message holds."""
PARTITIONS = 6
PLAIN = {"enable.idempotence": "false", "acks": "1"}
KINDS = {
    "small-hot": JavaKind(4, 100, 200, properties={**PLAIN, "linger.ms": "50"}),
    "large": JavaKind(
        2, 10, 5_000, properties={**PLAIN, "compression.type": "lz4", "linger.ms": "400",
                                  "batch.size": "131072"},
    ),
    "keyed": JavaKind(3, 30, 500, keys=50, properties={"linger.ms": "200"}),
    "many-slow": JavaKind(24, 1, 1_000, properties={"linger.ms": "5"}),
}  # fmt: skip
"""Topic → its kind; the last two are idempotent, by the defaults of Kafka's producer."""
GROUPS = ("billing", "audit")
"""The consumer groups of the first topic."""


@contextmanager
def original_traffic(
    testbed: Testbed, folder: Path, kinds: Mapping[str, JavaKind] = KINDS
) -> Iterator[JavaTraffic]:
    """The kinds on new topics of three brokers, each with one replica beside the leader's."""
    with connect(testbed.bootstrap_servers) as admin:
        for topic in kinds:
            placed = {n: [1 + n % 3, 1 + (n + 1) % 3] for n in range(PARTITIONS)}
            admin.create_topic(topic, placed, {})
    with ExitStack() as stack:
        running = stack.enter_context(java_traffic(testbed, kinds, WORD, folder / "errors.log"))
        first = next(iter(kinds))
        for group in GROUPS:
            stack.enter_context(reading(testbed, group, first))
        yield running

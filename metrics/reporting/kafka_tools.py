"""Commands of Kafka's own tools that offer a limit, and the overload above it."""

from __future__ import annotations

from metrics.reporting.limit_words import load_words
from metrics.tables.boundary import Boundary
from metrics.traffic.axes import NP

_SECONDS = 60
_OPTIONS = {
    "acks": "acks",
    "linger_ms": "linger.ms",
    "batch_size_bytes": "batch.size",
    "compression": "compression.type",
    "enable_idempotence": "enable.idempotence",
}
"""Column of a pattern → the producer's property."""
SERVERS = "HOST:9092"


def kafka_commands(boundary: Boundary, brokers: int) -> tuple[str, ...]:
    """The lines of a shell script that offers the limit for a minute, then the overload above it.

    Each producer is a process of `kafka-producer-perf-test.sh`, with the run's rate, size and
    batching; its records have random bytes. Empty for a mix, and without a number of producers or
    a sustained load.
    """
    boundary = boundary.lasting
    known, (low, over) = boundary.pattern, boundary.loads
    if boundary.along is not NP or boundary.parts or not low or not known.get("acks"):
        return ()
    topic = f"redline-check-{boundary.message_bytes}"
    partitions = int(float(known.get("partitions_per_broker", 1))) * max(1, brokers)
    rate = boundary.mps / low
    options = " ".join(
        f"{name}={known[column].lower()}" for column, name in _OPTIONS.items() if column in known
    )
    each = (
        f"kafka-producer-perf-test.sh --topic {topic} --record-size {boundary.message_bytes} "
        f"--throughput {max(1, round(rate))} --num-records {max(1, round(rate * _SECONDS))} "
        f"--producer-props bootstrap.servers={SERVERS} {options}"
    )
    sides = [(low, boundary.mb_per_s, "the limit")]
    if over is not None:
        sides.append((over, boundary.mb_per_s_overloaded or 0.0, "the overload above it"))
    lines = [
        (
            f"kafka-topics.sh --bootstrap-server {SERVERS} --create --topic {topic} "
            f"--partitions {partitions} --replication-factor {known.get('replication_factor', '1')}"
        )
    ]
    for load, mb_per_s, what in sides:
        lines += [
            f"# {what}: {load_words(boundary, load, mb_per_s)}",
            f"for n in $(seq {load}); do {each} & done; wait",
        ]
    return (*lines, f"kafka-topics.sh --bootstrap-server {SERVERS} --delete --topic {topic}")

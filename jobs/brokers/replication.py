"""The state of all replicas of a cluster, by broker, as one answer of its metadata tells it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from kafka import errors as kafka_errors

from jobs.brokers.admin import AdminError, KafkaAdmin
from metrics.sources.client_only import Replicas


def replicas_by_broker(admin: KafkaAdmin) -> dict[int, Replicas]:
    """Broker id → what it leads and holds, over all topics that this client may see.

    Raises:
        AdminError: the cluster did not answer.
    """
    try:
        return counted(admin.client.describe_topics())
    except kafka_errors.KafkaError as error:
        cause = type(error).__name__
        raise AdminError(
            f"could not look at the replicas ({cause}); check that the brokers run and can be "
            "reached, and run again",
            cause,
        ) from error


def counted(topics: Iterable[Mapping[str, Any]]) -> dict[int, Replicas]:
    """The replicas of some topics by broker, from their metadata."""
    led, short, offline = Counter[int](), Counter[int](), Counter[int]()
    holders: set[int] = set()
    for topic in topics:
        for partition in topic["partitions"]:
            leader = int(partition["leader_id"])
            replicas, isr = set(partition["replica_nodes"]), set(partition["isr_nodes"])
            holders |= replicas
            led[leader] += 1
            # Without a leader nobody answers for the partition but those who should lead it.
            for broker in {leader} if leader >= 0 else replicas:
                short[broker] += bool(replicas - isr) or leader < 0
            offline.update(partition.get("offline_replicas") or ())
    return {
        broker: Replicas(led[broker], short[broker], offline[broker]) for broker in sorted(holders)
    }

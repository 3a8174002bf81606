"""Queries of a cluster that change nothing: its replicas, its properties, its features."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from jobs.cluster.admin import KafkaAdmin, Property
from metrics.sources.client_only import Replicas

BROKER_SPECIFIC = frozenset(
    {
        "advertised.listeners",
        "broker.id",
        "controller.quorum.bootstrap.servers",
        "controller.quorum.voters",
        "listeners",
        "log.dir",
        "metadata.log.dir",
        "node.id",
    }
)
"""Properties that identify a broker and do not change how it works."""
LOG_DIRS = "log.dirs"


def replicas_by_broker(admin: KafkaAdmin) -> dict[int, Replicas]:
    """Broker id → its counts of replicas, over all topics that this user may describe.

    Raises:
        AdminError: the cluster did not answer.
    """
    return count_replicas(admin.describe_topics("look at the replicas"))


def count_replicas(topics: Iterable[Mapping[str, Any]]) -> dict[int, Replicas]:
    """Broker id → its counts of replicas, from the metadata of topics."""
    led, short, offline = Counter[int](), Counter[int](), Counter[int]()
    holders: set[int] = set()
    for topic in topics:
        for partition in topic["partitions"]:
            leader = int(partition["leader_id"])
            replicas, isr = set(partition["replica_nodes"]), set(partition["isr_nodes"])
            holders |= replicas
            led[leader] += 1
            # A partition without a leader counts for each broker that has a replica of it.
            for broker in {leader} if leader >= 0 else replicas:
                short[broker] += bool(replicas - isr) or leader < 0
            offline.update(partition.get("offline_replicas") or ())
    return {
        broker: Replicas(led[broker], short[broker], offline[broker]) for broker in sorted(holders)
    }


def changed_properties(admin: KafkaAdmin, broker_id: int) -> dict[str, str]:
    """A broker's properties that differ from Kafka's defaults, without secrets.

    The log directories are replaced by their number, as `log.dirs.count`.

    Raises:
        AdminError: this user may not read them, or the broker did not answer.
    """
    return configured_properties(admin.broker_properties(broker_id))


def configured_properties(properties: Mapping[str, Property]) -> dict[str, str]:
    """Name → value of the properties that are configured, without secrets.

    Properties whose source is unknown are left out, as most are defaults.
    """
    found = {
        name: str(each.value)
        for name, each in sorted(properties.items())
        if each.is_default is False
        and not each.is_sensitive
        and each.value is not None
        and name not in BROKER_SPECIFIC
    }
    if LOG_DIRS in found:
        found[f"{LOG_DIRS}.count"] = str(len(found.pop(LOG_DIRS).split(",")))
    return found


def features(admin: KafkaAdmin) -> dict[str, str]:
    """Feature, such as `metadata.version`, → its finalized level.

    Raises:
        AdminError: the cluster did not answer.
    """
    return {name: str(level) for name, level in sorted(admin.features().items())}

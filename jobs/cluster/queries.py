"""Looks at a cluster that change nothing: its replicas, its properties, its features."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from kafka.admin import ConfigResource, ConfigResourceType

from jobs.cluster.admin import KafkaAdmin
from metrics.sources.client_only import Replicas

OF_ONE_BROKER = frozenset(
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
"""Properties that say who and where a broker is, not how it works."""
LOG_DIRS = "log.dirs"
_DEFAULT = "DEFAULT_CONFIG"


def replicas_by_broker(admin: KafkaAdmin) -> dict[int, Replicas]:
    """Broker id → what it leads and holds, over all topics that this client may see.

    Raises:
        AdminError: the cluster did not answer.
    """
    return counted(admin.ask("look at the replicas", admin.client.describe_topics))


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


def changed_properties(admin: KafkaAdmin, broker_id: int) -> dict[str, str]:
    """A broker's properties that are not Kafka's defaults, without secrets.

    Of the log directories only their number is told, as `log.dirs.count`.

    Raises:
        AdminError: this client may not read them, or the broker did not answer.
    """
    resource = ConfigResource(ConfigResourceType.BROKER, str(broker_id))
    answer = admin.ask(
        f"read the configuration of broker {broker_id}",
        lambda: admin.client.describe_configs([resource], config_filter="all"),
    )
    return not_default(answer["broker"][str(broker_id)])


def not_default(properties: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Name → value of the properties that somebody has set, without secrets."""
    found = {
        name: str(told["value"])
        for name, told in sorted(properties.items())
        if told["config_source"] != _DEFAULT
        and not told["is_sensitive"]
        and told["value"] is not None
        and name not in OF_ONE_BROKER
    }
    if LOG_DIRS in found:
        found[f"{LOG_DIRS}.count"] = str(len(found.pop(LOG_DIRS).split(",")))
    return found


def features(admin: KafkaAdmin) -> dict[str, str]:
    """Feature, such as `metadata.version`, → the level that the cluster is at.

    Raises:
        AdminError: the cluster did not answer.
    """
    told = admin.ask("read the features", admin.client.describe_features)
    return {
        name: str(feature["finalized"][1])
        for name, feature in sorted(told.items())
        if "finalized" in feature
    }

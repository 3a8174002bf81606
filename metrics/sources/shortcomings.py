"""Readings that a source lacks, and what their lack means for an answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from metrics.sources.beans import (
    CONTROLLER_QUEUE_MS,
    GC_MS,
    HANDLER_IDLE_NS,
    NETWORK_WAIT_NS,
    PHASES,
    REQUESTS,
    UPTIME_MS,
    Role,
)
from metrics.sources.one_minute_rates import POLL_SHARE_MAX, rate_caveats, reads_rates
from metrics.sources.source import NodeInfo, named_brokers


def _times_of_requests(figure: str) -> tuple[str, ...]:
    return tuple(f"{request}_{phase}_ms_{figure}" for request in REQUESTS for phase in PHASES)


_MEANING: Mapping[str, tuple[str, ...]] = {
    "request times: the reason for busy request handlers is unknown, and so is throttling by a "
    "quota": _times_of_requests("mean"),
    "log flush times: the disk's part in the load is unknown": ("log_flush_ms_mean",),
    "network threads' idle time: they cannot be named as the limit": (NETWORK_WAIT_NS,),
    "the machine's CPU use: the CPU cannot be named as the limit": (
        "machine_cpu_share",
        "processors",
    ),
    "the uptime of the brokers' processes: cold brokers are not warmed up, and a restart shows "
    "only by counters that fall": (UPTIME_MS,),
    "the CPU time of the brokers' processes: their part of the machine's CPU use is unknown": (
        "process_cpu_ns",
    ),
    "the heap: a JVM that is short of memory does not show": ("heap_used_bytes", "heap_max_bytes"),
    "the numbers of requests: the cost of a request is unknown, so a warm-up ends after "
    "10 s": _times_of_requests("count"),
    "the queue of requests: requests that wait for a handler do not show": ("request_queue_size",),
    "the bytes of network connections: the network's part in the load is unknown": (
        "network_in_bytes",
        "network_out_bytes",
    ),
    "messages and bytes of producers: what other clients write is unknown": (
        "messages_in",
        "bytes_in",
    ),
    "bytes of consumers: what other clients read is unknown": ("bytes_out",),
    "bytes between brokers: the part of replication in the load is unknown": (
        "replication_bytes_in",
        "replication_bytes_out",
    ),
    "bytes of disks: the disk's part in the load is unknown, unless the hosts' metrics show it": (
        "disk_read_bytes",
        "disk_write_bytes",
    ),
    "changes of the ISR: followers that leave it and come back do not show": (
        "isr_shrinks",
        "isr_expands",
    ),
    "the followers' lag: followers that fall behind do not show": ("replica_max_lag_records",),
    "offline replicas: replicas on failed disks do not show": ("offline_replicas",),
    "produce requests that wait for followers: replication as the reason of latency does not "
    "show": ("produce_delayed",),
    "failed produce requests: those of other clients do not show": ("failed_produce_requests",),
    "the controller's queue: a controller that falls behind does not show": (
        f"{CONTROLLER_QUEUE_MS}_count",
        f"{CONTROLLER_QUEUE_MS}_mean",
    ),
    "under-replicated partitions: replicas that stay out of sync do not show": (
        "under_replicated_partitions",
    ),
    "led partitions: leaders that move do not show": ("leader_partitions",),
    "garbage collection: its share of the time is unknown": (GC_MS,),
    "fenced brokers: a broker that the controller excludes shows only by its leaders and "
    "replicas": ("fenced_brokers",),
}
"""What the metrics do not show, with its meaning → the readings of which one is missing."""
CLIENT_ONLY = (
    "judged without broker metrics: by acknowledgements, by latency if the goal has a latency "
    "objective, and by under-replicated partitions in the Admin API; the limiting resource of the "
    "brokers is unknown, and a broker close to its limit does not show"
)
"""The caveat of an answer without broker metrics."""


def is_blind(nodes: Mapping[int, NodeInfo]) -> bool:
    """Whether no broker shows the idle time of its request handlers."""
    brokers = [node for node in nodes.values() if Role.BROKER in node.roles]
    return bool(brokers) and all(HANDLER_IDLE_NS in node.lacks for node in brokers)


def shortcomings(nodes: Mapping[int, NodeInfo], interval_s: float) -> tuple[str, ...]:
    """A sentence for each shortcoming of the nodes' metrics, with its meaning.

    Args:
        interval_s: time between two samples [s].
    """
    if is_blind(nodes):
        return (CLIENT_ONLY,)
    missing = (
        *missing_metrics(nodes),
        *_refused_series(nodes.values()),
        *_zookeeper(nodes.values()),
        *_shared_handlers(nodes.values()),
        *rate_caveats(nodes, interval_s),
    )
    longest_s = max((node.poll_s for node in nodes.values()), default=0.0)
    if longest_s <= POLL_SHARE_MAX * interval_s or reads_rates(nodes):
        return missing
    expensive = (
        f"a sample takes up to {longest_s:.2f} s of a broker's CPU and is taken every "
        f"{interval_s:g} s, so that the load found is slightly too low; raise "
        f"workload.trial.sample_interval_s"
    )
    return (*missing, expensive)


def _refused_series(nodes: Iterable[NodeInfo]) -> Iterator[str]:
    """The readings for which the pages of exporters show series that cannot be recognized."""
    brokers: dict[str, list[int]] = {}
    for node in sorted(nodes, key=lambda each: each.node_id):
        for clause in node.refused:
            brokers.setdefault(clause, []).append(node.node_id)
    for clause, ids in brokers.items():
        yield (
            f"{clause} ({named_brokers(ids)}); name rules that fit in metrics.prometheus.rules to "
            f"read it"
        )


def _zookeeper(nodes: Iterable[NodeInfo]) -> Iterator[str]:
    """The meaning of ZooKeeper, where a broker keeps its metadata there."""
    if any(not node.has_quorum for node in nodes):
        yield (
            "the brokers' metrics do not show the epoch of a KRaft quorum, as with ZooKeeper: "
            "elections of a controller do not show"
        )


def _shared_handlers(nodes: Iterable[NodeInfo]) -> Iterator[str]:
    """The error of the idle time of brokers that share the meter of their handlers."""
    shared = [node for node in nodes if node.controller_share is not None]
    if not shared:
        return
    share = max(node.controller_share or 0.0 for node in shared)
    ids = ", ".join(str(node.node_id) for node in sorted(shared, key=lambda each: each.node_id))
    yield (
        f"the handlers' idle time of each broker that is a controller, too (node {ids}), is known "
        f"to ±{share / 2:.3f}, as before Kafka 4.2 both share one metric: the controller's part "
        f"was at most {share:.1%} of the time since its start; a trial in which this part decides "
        f"is INVALID"
    )


def missing_metrics(nodes: Mapping[int, NodeInfo]) -> dict[str, tuple[str, ...]]:
    """A sentence for each kind of reading that a node lacks → these readings."""
    lacks = {name for node in nodes.values() for name in node.lacks}
    found = {}
    for what, names in _MEANING.items():
        missing = tuple(name for name in names if name in lacks)
        if missing:
            found[f"the brokers' metrics do not show {what}"] = missing
    return found

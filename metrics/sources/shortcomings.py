"""Sentences for the readings that a source lacks, with the consequences for an answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from metrics.common.grouping import grouped
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
    "request times: the reason for busy request handlers, and throttling by a quota, are "
    "unknown": _times_of_requests("mean"),
    "log flush times: the disk's part in the load is unknown": ("log_flush_ms_mean",),
    "network threads' idle time: the network threads cannot be named as the limit": (
        NETWORK_WAIT_NS,
    ),
    "the machine's CPU use: the CPU cannot be named as the limit": (
        "machine_cpu_share",
        "processors",
    ),
    "the uptime of the brokers' processes: cold brokers are not warmed up, and only a fall of "
    "counters shows a restart": (UPTIME_MS,),
    "the CPU time of the brokers' processes: their part of the machine's CPU use is unknown": (
        "process_cpu_ns",
    ),
    "the heap: a lack of heap memory is not visible": ("heap_used_bytes", "heap_max_bytes"),
    "the numbers of requests: the cost of a request is unknown, so a warm-up ends after "
    "10 s": _times_of_requests("count"),
    "the queue of requests: requests that wait for a handler are not visible": (
        "request_queue_size",
    ),
    "the bytes of network connections: the network's part in the load is unknown": (
        "network_in_bytes",
        "network_out_bytes",
    ),
    "messages and bytes of producers: the bytes written by other clients are unknown": (
        "messages_in",
        "bytes_in",
    ),
    "bytes that consumers read: how much other clients read is unknown": ("bytes_out",),
    "bytes between brokers: how much replication adds to the load is unknown": (
        "replication_bytes_in",
        "replication_bytes_out",
    ),
    "bytes of disks: how much disks read and write is unknown, unless the hosts' metrics show it": (
        "disk_read_bytes",
        "disk_write_bytes",
    ),
    "changes of the ISR: followers that leave the ISR and return to it are not visible": (
        "isr_shrinks",
        "isr_expands",
    ),
    "the followers' lag: followers that fall behind are not visible": ("replica_max_lag_records",),
    "offline replicas: replicas on failed disks are not visible": ("offline_replicas",),
    "produce requests that wait for followers: latency that replication causes is not visible": (
        "produce_delayed",
    ),
    "failed produce requests: failed requests of other clients are not visible": (
        "failed_produce_requests",
    ),
    "the controller's queue: a controller that falls behind is not visible": (
        f"{CONTROLLER_QUEUE_MS}_count",
        f"{CONTROLLER_QUEUE_MS}_mean",
    ),
    "under-replicated partitions: replicas that stay out of sync are not visible": (
        "under_replicated_partitions",
    ),
    "led partitions: moves of leaders are not visible": ("leader_partitions",),
    "garbage collection: its share of the time is unknown": (GC_MS,),
    "fenced brokers: only lost leaders and replicas show that the controller excluded a broker": (
        "fenced_brokers",
    ),
}
"""Text with the consequence of a missing reading → the readings to which the text applies."""
CLIENT_ONLY = (
    "trials are judged without broker metrics: by acknowledgements, by under-replicated "
    "partitions in the Admin API, and by latency if the goal has a latency objective; the "
    "brokers' limiting resource is unknown, and a broker close to its limit is not visible"
)
"""The note for an answer that was found without broker metrics."""


def is_blind(nodes: Mapping[int, NodeInfo]) -> bool:
    """Whether the idle time of the request handlers is missing on all brokers."""
    brokers = [node for node in nodes.values() if Role.BROKER in node.roles]
    return bool(brokers) and all(HANDLER_IDLE_NS in node.lacks for node in brokers)


def shortcomings(nodes: Mapping[int, NodeInfo], interval_s: float) -> tuple[str, ...]:
    """One sentence for each shortcoming of the nodes' metrics, with its consequence.

    Args:
        nodes: node id → node.
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
        f"a sample takes up to {longest_s:.2f} s of a broker's CPU time every {interval_s:g} s, so "
        f"the measured limit is slightly too low; raise workload.trial.sample_interval_s"
    )
    return (*missing, expensive)


def _refused_series(nodes: Iterable[NodeInfo]) -> Iterator[str]:
    """One sentence for each reason to refuse a reading's series on an exporter's page."""
    ordered = sorted(nodes, key=lambda each: each.node_id)
    brokers = grouped((clause, node.node_id) for node in ordered for clause in node.refused)
    for clause, ids in brokers.items():
        yield (
            f"{clause} ({named_brokers(ids)}); to read it, set metrics.prometheus.rules to a rule "
            f"set for this exporter"
        )


def _zookeeper(nodes: Iterable[NodeInfo]) -> Iterator[str]:
    """A sentence about the elections of controllers if a broker shows no KRaft quorum."""
    if any(not node.has_quorum for node in nodes):
        yield (
            "the brokers' metrics do not show the epoch of a KRaft quorum, for example because "
            "the brokers use ZooKeeper: elections of a controller are not visible"
        )


def _shared_handlers(nodes: Iterable[NodeInfo]) -> Iterator[str]:
    """A sentence about the error of the idle time if brokers and controllers share one metric."""
    shared = [node for node in nodes if node.controller_share is not None]
    if not shared:
        return
    share = max(node.controller_share or 0.0 for node in shared)
    ids = ", ".join(str(node.node_id) for node in sorted(shared, key=lambda each: each.node_id))
    yield (
        f"the handlers' idle time of each broker that is also a controller (node {ids}) is known "
        f"to ±{share / 2:.3f}: before Kafka 4.2, broker and controller share one metric, in which "
        f"the controller was busy for at most {share:.1%} of the time since its start; a trial is "
        f"INVALID if its verdict depends on the error of ±{share / 2:.3f}"
    )


def missing_metrics(nodes: Mapping[int, NodeInfo]) -> dict[str, tuple[str, ...]]:
    """Sentence about a gap in the metrics, with the gap's consequence → the names of the missing
    readings that cause this gap.
    """
    lacks = {name for node in nodes.values() for name in node.lacks}
    found = {}
    for what, names in _MEANING.items():
        missing = tuple(name for name in names if name in lacks)
        if missing:
            found[f"the brokers' metrics do not show {what}"] = missing
    return found

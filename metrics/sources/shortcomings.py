"""What a source cannot read of the brokers, and what an answer then rests on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from metrics.sources.beans import GC_MS, HANDLER_IDLE_NS, NETWORK_WAIT_NS, PHASES, REQUESTS, Role
from metrics.sources.source import NodeInfo

_REQUEST_TIMES = tuple(f"{request}_{phase}_ms_mean" for request in REQUESTS for phase in PHASES)
_MEANING: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "request times",
        "what busy handlers wait for cannot be told, nor whether a quota throttled",
        _REQUEST_TIMES,
    ),
    ("log flush times", "the disk's part is not known", ("log_flush_ms_mean",)),
    (
        "network threads' idle time",
        "they cannot be named as the limit",
        (NETWORK_WAIT_NS,),
    ),
    ("the machine's CPU use", "the CPU cannot be named as the limit", ("machine_cpu_share",)),
    (
        "under-replicated partitions",
        "an ISR that stays short is not seen",
        ("under_replicated_partitions",),
    ),
    ("led partitions", "leaders that move are not seen", ("leader_partitions",)),
    ("garbage collection", "its share of the time is not known", (GC_MS,)),
)
POLL_SHARE_MAX = 0.1
"""Share of the time that a broker may spend on being sampled before that is told [ratio]."""
CLIENT_ONLY = (
    "judged without broker metrics: by what was acknowledged, by latency where the goal names "
    "one, and by under-replicated partitions as the Admin API shows them; which resource bound "
    "the brokers is not known, and a broker that is nearly full does not show"
)
"""What stands beside an answer that no broker metric supports."""


def is_blind(nodes: Mapping[int, NodeInfo]) -> bool:
    """True when no broker shows the idle time of its request handlers."""
    brokers = [node for node in nodes.values() if Role.BROKER in node.roles]
    return bool(brokers) and all(HANDLER_IDLE_NS in node.lacks for node in brokers)


def shortcomings(nodes: Mapping[int, NodeInfo], interval_s: float) -> tuple[str, ...]:
    """What is wrong with the nodes' metrics and what that means, a sentence each.

    Args:
        interval_s: between two samples [s].
    """
    if is_blind(nodes):
        return (CLIENT_ONLY,)
    told = _told({name for node in nodes.values() for name in node.lacks})
    longest_s = max((node.poll_s for node in nodes.values()), default=0.0)
    if longest_s <= POLL_SHARE_MAX * interval_s:
        return told
    dear = (
        f"a broker's exporter takes up to {longest_s:.2f} s for a sample, of the broker's own CPU, "
        f"and is asked every {interval_s:g} s, so that the load found is a little too low; raise "
        f"workload.trial.sample_interval_s"
    )
    return (*told, dear)


def _told(lacks: Iterable[str]) -> tuple[str, ...]:
    missing = set(lacks)
    return tuple(
        f"the brokers' metrics do not show {what}: {meaning}"
        for what, meaning, names in _MEANING
        if missing.intersection(names)
    )

"""What a source cannot read of the brokers, and what an answer then rests on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from metrics.beans import GC_MS, HANDLER_IDLE_NS, NETWORK_WAIT_NS, PHASES, REQUESTS, Role
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


def shortcomings(nodes: Mapping[int, NodeInfo]) -> tuple[str, ...]:
    """What is missing of the nodes' metrics and what that means, a sentence each."""
    if is_blind(nodes):
        return (CLIENT_ONLY,)
    return _told({name for node in nodes.values() for name in node.lacks})


def _told(lacks: Iterable[str]) -> tuple[str, ...]:
    missing = set(lacks)
    return tuple(
        f"the brokers' metrics do not show {what}: {meaning}"
        for what, meaning, names in _MEANING
        if missing.intersection(names)
    )

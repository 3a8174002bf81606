"""The environment of a run as flat names and texts, and what differs between two of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

ABSENT = "–"
"""Stands for what one of two environments does not tell."""
BY_RUN = (
    "cluster.id",
    "broker.config.advertised.listeners",
    "broker.config.listeners",
    "executors.clocks_within",
)
"""Names whose values differ between clusters, or runs, that are alike."""


@dataclass(frozen=True)
class Difference:
    """A name whose values differ; `ABSENT` where one environment does not tell."""

    name: str
    before: str
    after: str


def merged(kind: str, nodes: Mapping[int, Mapping[str, str]]) -> dict[str, str]:
    """Facts of several nodes as flat names.

    What all nodes agree on is `kind.name`; the rest is `kind.NODE.name`, one for each node
    that tells it.

    Args:
        kind: `broker` or `controller`.
        nodes: node id → name → value.
    """
    flat: dict[str, str] = {}
    for name in sorted({name for facts in nodes.values() for name in facts}):
        values = {node: facts[name] for node, facts in sorted(nodes.items()) if name in facts}
        if len(values) == len(nodes) and len(set(values.values())) == 1:
            flat[f"{kind}.{name}"] = next(iter(values.values()))
        else:
            flat.update({f"{kind}.{node}.{name}": value for node, value in values.items()})
    return flat


def of_node(environment: Mapping[str, str], kind: str, node: int, name: str) -> str | None:
    """A fact of one node, wherever `merged` put it; None where nobody told it."""
    own = environment.get(f"{kind}.{node}.{name}")
    return environment.get(f"{kind}.{name}") if own is None else own


def difference(
    before: Mapping[str, str], after: Mapping[str, str], but: Iterable[str] = BY_RUN
) -> tuple[Difference, ...]:
    """What differs between the environments of two runs, by name.

    Args:
        but: names to leave out.
    """
    names = sorted((before.keys() | after.keys()) - set(but))
    pairs = ((name, before.get(name, ABSENT), after.get(name, ABSENT)) for name in names)
    return tuple(Difference(name, old, new) for name, old, new in pairs if old != new)

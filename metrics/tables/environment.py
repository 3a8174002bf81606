"""The environment of a run as flat names and texts, and the differences of two environments."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

ABSENT = "–"
"""The value of a fact that an environment does not have."""
BY_RUN = (
    "cluster.id",
    "broker.config.advertised.listeners",
    "broker.config.listeners",
    "broker.config.zookeeper.connect",
    "executors.clocks_within",
)
"""Names of facts that differ even between equal clusters or runs."""
SERIES = "series"
"""Kind of the facts on the series of exporters: `series.handler_idle_ns` → the series."""
_NODE = re.compile(r"(?<=^broker\.)\d+\.")


@dataclass(frozen=True)
class Difference:
    """A fact whose values differ; `ABSENT` if an environment does not have it."""

    name: str
    before: str
    after: str


def merge_facts(kind: str, nodes: Mapping[int, Mapping[str, str]]) -> dict[str, str]:
    """Merge the facts of several nodes into flat names.

    A fact that is equal on all nodes becomes `kind.name`; any other becomes `kind.NODE.name` for
    each node that has it.

    Args:
        kind: `broker`, `controller` or `series`.
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


def fact_of_node(environment: Mapping[str, str], kind: str, node: int, name: str) -> str | None:
    """A fact of one node in an environment of `merge_facts`; None if it is not known."""
    own = environment.get(f"{kind}.{node}.{name}")
    return environment.get(f"{kind}.{name}") if own is None else own


def difference(
    before: Mapping[str, str], after: Mapping[str, str], but: Iterable[str] = BY_RUN
) -> tuple[Difference, ...]:
    """The differences between the environments of two runs, by name.

    Args:
        but: names to ignore, also where they are those of a single broker.
    """
    ignored = set(but)
    names = sorted(n for n in before.keys() | after.keys() if _NODE.sub("", n) not in ignored)
    pairs = ((name, before.get(name, ABSENT), after.get(name, ABSENT)) for name in names)
    return tuple(Difference(name, old, new) for name, old, new in pairs if old != new)

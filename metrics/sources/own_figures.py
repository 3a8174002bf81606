"""Whose figures some polls are: of the same process, or of several that share an address.

Behind a load balancer, a translated address or a service of Kubernetes, one process may answer for
several brokers, or another process at each connection. Then the figures themselves show it:

- Two nodes whose counters lie within each other's growth from poll to poll, and whose constant
  readings are equal, are one process. Two JVMs differ by nanoseconds of waiting and of CPU time.
- A counter that falls, and an uptime that grows by more than the time between two polls, are those
  of two processes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from metrics.sources.beans import (
    CONTROLLER_HANDLER_NS,
    HANDLER_IDLE_NS,
    POLL_MS,
    SHARED_HANDLER_IDLE_NS,
    SILENT_MS,
    UPTIME_MS,
    Kind,
    Role,
    beans_for,
)
from metrics.sources.sample import BrokerSample

Readings = Mapping[str, float]

CLOCK_ERROR_S = 10.0
"""Largest difference between the growth of an uptime and the time between its polls [s]."""
_COUNTERS_MIN = 3
"""Number of counters above 0 that have to agree before two nodes are taken for one process."""
_BEANS = (
    *beans_for("4.2", (Role.BROKER, Role.CONTROLLER)),
    *beans_for("4.1", (Role.BROKER, Role.CONTROLLER)),
)
_COUNTERS = frozenset(
    {UPTIME_MS}
    | {bean.name for bean in _BEANS if bean.kind is Kind.COUNTER}
    | {f"{bean.name}_count" for bean in _BEANS if bean.kind is Kind.HISTOGRAM}
)


def same_process(first: Sequence[Readings], second: Sequence[Readings]) -> bool:
    """Whether two nodes show the figures of one process.

    Args:
        first, second: the readings of each, of the same polls; no poll began before the one
            before it had ended for both nodes.
    """
    names = set(first[0]).intersection(*first[1:], *second)
    agreeing = 0
    for name in names:
        ones, others = [each[name] for each in first], [each[name] for each in second]
        if name.partition(":")[0] in _COUNTERS:
            if not (_within(ones, others) and _within(others, ones)):
                return False
            agreeing += min(*ones, *others) > 0
        elif len({*ones}) == len({*others}) == 1 and ones != others:
            return False
    return agreeing >= _COUNTERS_MIN


def _within(counts: Sequence[float], others: Sequence[float]) -> bool:
    """Whether no count is above the other one's next count."""
    return all(count <= other for count, other in zip(counts, others[1:], strict=False))


def nodes_of_one_process(rounds: Sequence[Sequence[BrokerSample]]) -> list[tuple[int, ...]]:
    """Groups of nodes whose figures are those of one process.

    Args:
        rounds: two polls of all nodes or more, one after the other.
    """
    readings = _readings_of_each(rounds)
    by_idle = sorted(readings, key=lambda node: (readings[node][0][_key(readings[node])], node))
    groups: dict[int, list[int]] = {}
    for place, node in enumerate(by_idle):
        group, own = groups.setdefault(node, [node]), readings[node]
        for other in by_idle[place + 1 :]:
            if readings[other][0][_key(readings[other])] > own[1][_key(own)]:
                break  # the others waited longer, too
            if other not in groups and same_process(own, readings[other]):
                groups[other] = group
                group.append(other)
    return sorted({tuple(sorted(group)) for group in groups.values() if len(group) > 1})


def _key(polls: Sequence[Readings]) -> str:
    """The name of the idle time of the request handlers, which hardly two brokers share."""
    return SHARED_HANDLER_IDLE_NS if SHARED_HANDLER_IDLE_NS in polls[0] else HANDLER_IDLE_NS


def _readings_of_each(rounds: Sequence[Sequence[BrokerSample]]) -> dict[int, list[Readings]]:
    """The readings of each broker that answered all polls."""
    found: dict[int, list[Readings]] = {}
    for samples in rounds:
        for each in samples:
            values = _read(each.values)
            if HANDLER_IDLE_NS in values or SHARED_HANDLER_IDLE_NS in values:
                found.setdefault(each.broker_id, []).append(values)
    return {node: polls for node, polls in found.items() if len(polls) == len(rounds) > 1}


def _read(values: Readings) -> Readings:
    """The readings without those that are derived from others, or measured here."""
    derived = {POLL_MS, SILENT_MS, CONTROLLER_HANDLER_NS}
    # A count that is computed here, from rates, has its error and its time under its own name.
    derived |= {name.partition(":")[2] for name in values}
    if CONTROLLER_HANDLER_NS in values:
        derived.add(HANDLER_IDLE_NS)
    return {name: value for name, value in values.items() if name not in derived}


def other_process(before: BrokerSample, after: BrokerSample) -> str | None:
    """The reason why two samples, the earlier one first, are of two processes; None otherwise."""
    old_ms, new_ms = before.values.get(UPTIME_MS), after.values.get(UPTIME_MS)
    passed_s = after.at_s - before.at_s
    if old_ms is not None and new_ms is not None:
        grown_s = (new_ms - old_ms) / 1e3
        if grown_s > passed_s + CLOCK_ERROR_S:
            return f"its uptime grew by {grown_s:.0f} s within {passed_s:.1f} s"
        if grown_s < 0 and new_ms / 1e3 > passed_s + CLOCK_ERROR_S:
            return f"its uptime fell from {old_ms / 1e3:.0f} s to {new_ms / 1e3:.0f} s"
    return None


def fallen_counter(before: BrokerSample, after: BrokerSample) -> str | None:
    """The first counter that fell between two samples, with both values; None otherwise."""
    new_values = _read(after.values)
    for name, old in _read(before.values).items():
        new = new_values.get(name)
        if new is not None and new < old and name in _COUNTERS:
            return f"{name} fell from {old:.0f} to {new:.0f}"
    return None


def changes_of_process(rounds: Sequence[Sequence[BrokerSample]]) -> Iterator[tuple[int, str]]:
    """Each node that several processes answered for, and the reason."""
    by_node: dict[int, list[BrokerSample]] = {}
    for samples in rounds:
        for each in samples:
            if each.error is None:
                by_node.setdefault(each.broker_id, []).append(each)
    for node, polls in by_node.items():
        for before, after in pairwise(polls):
            reason = other_process(before, after) or fallen_counter(before, after)
            if reason is not None:
                yield node, reason
                break

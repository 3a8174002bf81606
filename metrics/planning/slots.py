"""The share of Spark's slots that each part of a load gets, by the CPU time that it costs."""

from __future__ import annotations

from dataclasses import dataclass

from metrics.planning.executor_cpu import BYTES_PER_S, executor_cpu
from metrics.traffic.pattern import TrafficPattern


@dataclass(frozen=True)
class SlotShare:
    """The tasks of one part of a load.

    Attributes:
        tasks: tasks with producers.
        consumer_tasks: tasks with members of consumer groups.
    """

    tasks: int
    consumer_tasks: int


def slots_needed(pattern: TrafficPattern) -> int:
    """The lowest number of slots for a load: each part has its own tasks."""
    return sum(map(_least, pattern.loads))


def share_slots(pattern: TrafficPattern, slots: int, *, reads: bool = True) -> list[SlotShare]:
    """The tasks of each part, in the order of the parts; a single part gets all slots.

    Args:
        slots: number of tasks that can run at the same time, at least `slots_needed`.
        reads: whether the consumer groups run, too.
    """
    loads = pattern.loads
    given = [slots] if len(loads) == 1 else [_least(each) for each in loads]
    costs = [cores_of(each) for each in loads]
    for _ in range(slots - sum(given)):
        wanting = [
            (cost / own, -index)
            for index, (cost, own) in enumerate(zip(costs, given, strict=True))
            if own < loads[index].producers + loads[index].consumers.members_total
        ]
        if not wanting:
            break
        given[-max(wanting)[1]] += 1
    return [_share(each, own, reads) for each, own in zip(loads, given, strict=True)]


def cores_of(part: TrafficPattern) -> float:
    """The CPU time of the clients of a part per second [cores]; 1 where it is not known."""
    bytes_per_s = part.mb_per_s * 1e6
    needed = executor_cpu((part.producer,), bytes_per_s)
    if needed is None:
        return 1.0
    return needed.cores + part.consumers.groups * bytes_per_s / BYTES_PER_S


def _least(part: TrafficPattern) -> int:
    return 2 if part.consumers.groups else 1


def _share(part: TrafficPattern, slots: int, reads: bool) -> SlotShare:
    consumers = part.consumers.tasks(slots) if reads else 0
    return SlotShare(min(part.producers, slots - consumers), consumers)

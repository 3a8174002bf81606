"""What runs that died left on a cluster: topics and consumer groups, known by their names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from jobs.cluster.admin import AdminError, KafkaAdmin
from jobs.cluster.topic_plan import PREFIX

_TOPIC = re.compile(rf"{PREFIX}.+-\d+B-\d+p(?:-\d+)?")  # as topic_plan.topic_name and several say
_GROUP = re.compile(rf"{PREFIX}.+-group-\d+")  # as TrialPlan.group_id says
_BEGUN = re.compile(r"(?<![0-9])(\d{8}-\d{6})-[0-9a-f]{4}(?![0-9a-f])")  # as new_run_id says


@dataclass(frozen=True)
class Leftover:
    """Something that a run made.

    Attributes:
        kind: `topic` or `group`.
        name: of it.
        begun_s: when its run began, by its name [s since the epoch]; None where that tells none,
            as those of nights do not.
    """

    kind: str
    name: str
    begun_s: float | None

    def is_of(self, run_id: str) -> bool:
        """Whether a run of this id made it, or one of its sides or cases."""
        return self.name.startswith(f"{PREFIX}{run_id}-")


def leftovers(topics: Iterable[str], groups: Iterable[str]) -> list[Leftover]:
    """Those that have the form of a run's names, the oldest first; never another's.

    Args:
        topics, groups: names of all that the cluster has.
    """
    named = [("topic", name) for name in topics if _TOPIC.fullmatch(name)]
    named += [("group", name) for name in groups if _GROUP.fullmatch(name)]
    found = (Leftover(kind, name, begun_s(name)) for kind, name in named)
    return sorted(found, key=lambda each: (each.begun_s or 0.0, each.kind, each.name))


def delete_leftovers(admin: KafkaAdmin, chosen: Iterable[Leftover]) -> list[str]:
    """Delete them, one after the other; a sentence for each that could not be."""
    troubles = []
    for each in chosen:
        try:
            (admin.delete_topic if each.kind == "topic" else admin.delete_group)(each.name)
        except AdminError as error:
            troubles.append(str(error))
    return troubles


def begun_s(name: str) -> float | None:
    """When a run of this id, or what is named after it, began [s since the epoch], or None."""
    told = _BEGUN.search(name)
    if told is None:
        return None
    try:
        return datetime.strptime(f"{told[1]}+0000", "%Y%m%d-%H%M%S%z").timestamp()
    except ValueError:
        return None

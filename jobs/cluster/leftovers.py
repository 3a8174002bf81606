"""Topics and consumer groups that killed runs left on a cluster, recognized by their names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from jobs.cluster.admin import AdminError, KafkaAdmin
from jobs.cluster.topic_plan import PREFIX

# See topic_plan.topic_name and topic_names, and canaries.canary_topic.
_TOPIC = re.compile(rf"{PREFIX}.+-(?:\d+B-\d+p(?:-\d+)?|canary)")
_GROUP = re.compile(rf"{PREFIX}.+-group-\d+")  # see TrialPlan.group_id
_BEGUN = re.compile(r"(?<![0-9])(\d{8}-\d{6})-[0-9a-f]{4}(?![0-9a-f])")  # see new_run_id


@dataclass(frozen=True)
class Leftover:
    """A topic or consumer group that a run made.

    Attributes:
        kind: `topic` or `group`.
        name: name of the topic or id of the group.
        begun_s: time in its name at which the run began [s since the epoch]; None where the name
            has no time, such as that of a night.
    """

    kind: str
    name: str
    begun_s: float | None

    def is_of(self, run_id: str) -> bool:
        """Whether a run of this id made it, or one of its sides or cases."""
        return self.name.startswith(f"{PREFIX}{run_id}-")


def leftovers(topics: Iterable[str], groups: Iterable[str]) -> list[Leftover]:
    """The topics and groups whose names have the form of a run's, the oldest first.

    Args:
        topics, groups: names of all topics and groups of the cluster.
    """
    named = [("topic", name) for name in topics if _TOPIC.fullmatch(name)]
    named += [("group", name) for name in groups if _GROUP.fullmatch(name)]
    found = (Leftover(kind, name, begun_s(name)) for kind, name in named)
    return sorted(found, key=lambda each: (each.begun_s or 0.0, each.kind, each.name))


def delete_leftovers(admin: KafkaAdmin, chosen: Iterable[Leftover]) -> list[str]:
    """Delete leftovers; return a sentence for each that could not be deleted."""
    troubles = []
    for each in chosen:
        try:
            (admin.delete_topic if each.kind == "topic" else admin.delete_group)(each.name)
        except AdminError as error:
            troubles.append(str(error))
    return troubles


def begun_s(name: str) -> float | None:
    """The time in a run id, or in a name with one [s since the epoch]; None where it has none."""
    found = _BEGUN.search(name)
    if found is None:
        return None
    try:
        return datetime.strptime(f"{found[1]}+0000", "%Y%m%d-%H%M%S%z").timestamp()
    except ValueError:
        return None

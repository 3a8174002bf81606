"""Topics and consumer groups that killed runs left on a cluster, with the proof that they did."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from dataclasses import dataclass
from datetime import datetime

from jobs.cluster.admin import AdminError, KafkaAdmin
from jobs.cluster.topic_plan import MARK, maker_of

# See topic_plan.topic_name and topic_names, canaries.canary_topic, and TrialPlan.group_id.
_TOPIC = re.compile(r".+-(?:\d+B-\d+p(?:-\d+)?|canary)")
_GROUP = re.compile(r".+-group-\d+")
_BEGUN = re.compile(r"(?<![0-9])(\d{8}-\d{6})-[0-9a-f]{4}(?![0-9a-f])")  # see new_run_id


@dataclass(frozen=True)
class Leftover:
    """A topic or consumer group whose name has the form of a run's.

    Attributes:
        kind: `topic` or `group`.
        name: name of the topic or id of the group.
        run_id: id of the run that made it; empty where that is not proven.
        is_locked: whether that run held the cluster's lock, so that it has ended once another
            process holds it.
    """

    kind: str
    name: str
    run_id: str = ""
    is_locked: bool = False

    @property
    def begun_s(self) -> float | None:
        """When the run began [s since the epoch]; None without a time in its id, as of a night."""
        return begun_s(self.run_id)

    def command(self, server: str) -> str:
        """The command of Kafka's own tools that deletes it.

        Args:
            server: an address of the cluster.
        """
        tool = "topics" if self.kind == "topic" else "consumer-groups"
        option = "topic" if self.kind == "topic" else "group"
        name = self.name
        return f"kafka-{tool}.sh --bootstrap-server {server} --delete --{option} {name}"


def leftovers(admin: KafkaAdmin, prefix: str, given: Container[str] = ()) -> list[Leftover]:
    """The topics and groups whose names have the form of a run's: groups first, then by age.

    A run made a topic where the run's id is in its name and in its mark (`topic_plan.mark_of`). A
    run made a group where its id is in the group's name, and the group committed offsets of topics
    that the run made, and of no others.

    Args:
        prefix: `cluster.name_prefix`.
        given: `cluster.topics`, which are no run's own.

    Raises:
        AdminError: topics or groups cannot be listed.
    """
    topics = {}
    for name in admin.topic_names():
        if name.startswith(prefix) and _TOPIC.fullmatch(name) and name not in given:
            run_id, is_locked = maker_of(name, _mark(admin, name), prefix) or ("", False)
            topics[name] = Leftover("topic", name, run_id, is_locked)
    found = list(topics.values())
    for name in admin.empty_groups():
        if name.startswith(prefix) and _GROUP.fullmatch(name):
            makers = {topics.get(each) for each in _committed(admin, name)}
            runs = {(each.run_id, each.is_locked) if each else ("", False) for each in makers}
            run_id, is_locked = runs.pop() if len(runs) == 1 else ("", False)
            is_proven = run_id and name.startswith(f"{prefix}{run_id}-")
            maker = (run_id, is_locked) if is_proven else ("", False)
            found.append(Leftover("group", name, *maker))
    return sorted(found, key=lambda each: (each.kind, each.begun_s or 0.0, each.name))


def _mark(admin: KafkaAdmin, topic: str) -> str | None:
    try:
        return admin.topic_config(topic, (MARK,)).get(MARK)
    except AdminError:  # this user may not read it
        return None


def _committed(admin: KafkaAdmin, group: str) -> frozenset[str]:
    try:
        return frozenset(topic for topic, _ in admin.committed_offsets([group])[group])
    except AdminError:
        return frozenset()


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

"""The plan of one trial for its tasks, as plain frozen data that crosses to the executors.

A partition is known by its number alone: partition p of topic t has the number t · (partitions of a
topic) + p. With one topic, that is p itself. A task knows only its own part of a mix, whose
partitions, producers and groups count from 0; its report is placed among the numbers of all parts.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, TypeVar

from jobs.engine.network.options import NAME_PREFIX, client_id_of, join_address
from jobs.engine.network.pacing import PATIENCE
from jobs.engine.task.control_channel import ControlAddress
from metrics.traffic.pattern import TrafficPattern
from metrics.traffic.profile import Climb
from metrics.trial.client import Counts, ProducerAccounts, TaskReport
from metrics.trial.consumption import GroupShare


@dataclass(frozen=True)
class Partitions:
    """The topics of a trial, which all have the same number of partitions.

    Attributes:
        topics: their names, in the order in which producers take them.
        per_topic: number of partitions of each topic.
    """

    topics: tuple[str, ...]
    per_topic: int

    @cached_property
    def _firsts(self) -> dict[str, int]:
        return {topic: index * self.per_topic for index, topic in enumerate(self.topics)}

    def __len__(self) -> int:
        """Number of partitions of all topics together."""
        return len(self.topics) * self.per_topic

    def number(self, topic: str, partition: int) -> int | None:
        """The number of a partition; None if it does not belong to the trial."""
        first = self._firsts.get(topic)
        if first is None or not 0 <= partition < self.per_topic:
            return None
        return first + partition

    def of(self, number: int) -> tuple[str, int]:
        """The topic of a number, and the partition in that topic."""
        return self.topics[number // self.per_topic], number % self.per_topic

    def topic_of(self, producer: int) -> tuple[str, range]:
        """The topic that a producer writes to, and the numbers of its partitions.

        Producers take the topics in turns, so that they spread evenly, up to one.
        """
        index = producer % len(self.topics)
        first = index * self.per_topic
        return self.topics[index], range(first, first + self.per_topic)


SETTLING = 3
"""Rebalances until a group is stable; each may take as long as a connection to a broker."""


@dataclass(frozen=True)
class TrialPlan:
    """The plan that every task of one barrier stage gets.

    Attributes:
        trial_id: names the trial in client ids.
        name_prefix: begins the names of client ids, groups and transactional ids.
        topics: topics that producers write to; producer i writes to topic i modulo their number.
        pattern: the traffic to offer.
        tasks: number of tasks with producers; task i hosts producers i, i + tasks, i + 2·tasks, …
        leaders: broker id that leads partition 0, 1, 2, …, numbered through all topics
            (`jobs.engine.task.plan`), as partitions are everywhere here.
        brokers: broker id → (host, port).
        client_options: connection options of kafka-python, such as those for security.
        control: where the driver listens for control channels; None when it does not.
        consumer_tasks: number of tasks with consumers, which follow the producers' tasks; 0 without
            consumers.
        end_offsets: partition → end offset before the load, where there are consumers.
        network_namespace: file of the network namespace from which tasks connect to the brokers;
            empty for their own.
        interface_speeds: interface → its speed, where the system does not report it [B/s].
        windows: number of windows measured without a gap; the task reports each to the driver.
        climb: the steps of a load that grows; None where all producers begin at once.
        part: name of the part of a mix that these tasks offer; empty for other traffic. Then
            everything above is that of the part alone, counted from 0.
        first_partition, first_producer, first_group: numbers of the part's first partition,
            producer and group in the whole load.
        first_task, first_consumer_task: the part's first tasks in the stage; without the latter,
            consumers follow the producers.
        stage_consumer_tasks: tasks with consumers of all parts; None where there is one part.
        start_lead_s: from when the last task is ready to the first record [s]; all tasks must get
            the start signal within it.
    """

    trial_id: str
    topics: tuple[str, ...]
    pattern: TrafficPattern
    tasks: int
    leaders: tuple[int, ...]
    brokers: Mapping[int, tuple[str, int]]
    connect_timeout_s: float = 20.0
    start_lead_s: float = 0.5
    name_prefix: str = NAME_PREFIX
    client_options: Mapping[str, object] = field(default_factory=dict)
    control: ControlAddress | None = None
    consumer_tasks: int = 0
    windows: int = 1
    end_offsets: Mapping[int, int] = field(default_factory=dict)
    network_namespace: str = ""
    interface_speeds: Mapping[str, float] = field(default_factory=dict)
    climb: Climb | None = None
    part: str = ""
    first_partition: int = 0
    first_producer: int = 0
    first_group: int = 0
    first_task: int = 0
    first_consumer_task: int | None = None
    stage_consumer_tasks: int | None = None

    @property
    def open_timeout_s(self) -> float:
        """Longest time in which a task opens all it needs [s].

        It looks up hosts, opens connections, and then settles its groups or gets producer ids.
        """
        return (1 + PATIENCE + SETTLING) * self.connect_timeout_s

    def hosts(self, task: int) -> bool:
        """Whether a task of the stage belongs to this plan."""
        own = self.tasks + self.consumer_tasks
        return task in {self.stage_task(each) for each in range(own)}

    def stage_task(self, task: int) -> int:
        """The number in the stage of one of the plan's own tasks; consumers follow producers."""
        if task < self.tasks or self.first_consumer_task is None:
            return self.first_task + task
        return self.first_consumer_task + task - self.tasks

    def own_task(self, task: int) -> int:
        """The plan's own number of a task of the stage."""
        if self.first_consumer_task is None or task < self.first_consumer_task:
            return task - self.first_task
        return self.tasks + task - self.first_consumer_task

    @property
    def gathers_offsets(self) -> bool:
        """Whether any consumers of the stage read up to what all tasks had acknowledged."""
        found = self.stage_consumer_tasks
        return bool(self.consumer_tasks if found is None else found)

    @functools.cached_property
    def partitions(self) -> Partitions:
        """The partitions of all topics, with their numbers."""
        return Partitions(self.topics, len(self.leaders) // len(self.topics))

    @property
    def shares_topics(self) -> bool:
        """Whether the members of a group share the topics, as one topic has too few partitions."""
        return self.pattern.consumers.members > self.partitions.per_topic

    def producers_of(self, task: int) -> range:
        """The producers that this task hosts."""
        return range(task, self.pattern.producers, self.tasks)

    def start_offset(self, partition: int, first: int) -> int:
        """Offset at which a consumer group without a committed offset begins.

        Args:
            first: offset of the first record in the log; ignored for "latest".
        """
        options, end = self.pattern.consumers, self.end_offsets.get(partition, 0)
        if options.start == "latest":
            return end
        if options.start == "earliest":
            return first
        behind = -(-options.backlog_records // len(self.leaders))
        return max(first, end - behind)

    @property
    def servers(self) -> list[str]:
        """The brokers as bootstrap addresses."""
        return [join_address(*each) for each in self.brokers.values()]

    def client_id(self, name: str) -> str:
        """The client id of the producer or member with this name."""
        return client_id_of(name, self.client_options)

    def producer_name(self, producer: int) -> str:
        """The name of a producer, unique in the trial; its transactional id."""
        return f"{self._named}-{producer}"

    def group_id(self, group: int) -> str:
        """The id of a consumer group, unique in the trial."""
        return f"{self._named}-group-{group}"

    @property
    def _named(self) -> str:
        part = f"-{self.part}" if self.part else ""
        return f"{self.name_prefix}{self.trial_id}{part}"

    def member_name(self, group: int, member: int) -> str:
        """The name of a member of a group, unique in the trial."""
        return f"{self.group_id(group)}-{member}"


@dataclass(frozen=True)
class StagePlan:
    """The plan of a whole barrier stage: one plan for each part of its load.

    Attributes:
        plans: the plans of the parts; tasks with producers come before those with consumers.
    """

    plans: tuple[TrialPlan, ...]

    @property
    def trial_id(self) -> str:
        """The name of the trial."""
        return self.plans[0].trial_id

    @property
    def tasks(self) -> int:
        """Number of tasks."""
        return sum(each.tasks + each.consumer_tasks for each in self.plans)

    def plan_of(self, task: int) -> TrialPlan:
        """The plan of the part that a task belongs to."""
        return next(each for each in self.plans if each.hosts(task))


Numbered = TypeVar("Numbered", Counts, ProducerAccounts)


def placed(plan: TrialPlan, report: TaskReport) -> TaskReport:
    """The report with the numbers of the whole load; as it is where the load has one part."""
    if not plan.part:
        return report
    produced, consumed = report.produced, report.consumed
    if produced is not None:
        counts, worst = produced.counts, produced.shares.worst
        by_producer = _shifted(counts.by_producer, plan.first_producer)
        counts = _shifted(counts, plan.first_partition, "_by_partition")
        worst = None if worst is None else worst + plan.first_producer
        produced = replace(
            produced,
            counts=replace(counts, by_producer=by_producer),
            shares=replace(produced.shares, worst=worst),
        )
    if consumed is not None:
        groups = tuple(_group(plan, each) for each in consumed.groups)
        consumed = replace(consumed, groups=groups)
    task = plan.stage_task(report.task_id)
    return replace(report, task_id=task, part=plan.part, produced=produced, consumed=consumed)


def _shifted(counted: Numbered, first: int, ending: str = "") -> Numbered:
    """The counts with numbers from `first` on in all mappings whose names end like this."""
    shifted: dict[str, Any] = {
        each.name: {first + n: count for n, count in getattr(counted, each.name).items()}
        for each in fields(counted)
        if each.name.endswith(ending)
    }
    return replace(counted, **shifted)


def _group(plan: TrialPlan, share: GroupShare) -> GroupShare:
    ranges = (
        replace(each, partition=each.partition + plan.first_partition) for each in share.read_ranges
    )
    group = share.counts.group + plan.first_group
    return replace(share, counts=replace(share.counts, group=group), read_ranges=tuple(ranges))

"""The plan of one trial for its tasks: plain frozen data that is sent to the executors.

A partition is identified by a number alone. Partition p of topic t has the number t · (partitions
per topic) + p, which is p if there is only one topic. A task of a mix knows only its own part. In
the task, the partitions, producers and groups of the part are numbered from 0. In the task's
report, each partition, producer and group has a number that is unique over all parts of the mix
(see `placed`).
"""

from __future__ import annotations

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
    """The partitions of a trial's topics. All topics have the same number of partitions.

    Attributes:
        topics: names of the topics, in the order in which producers use them.
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
        """The number of a partition; None if the partition does not belong to the trial."""
        first = self._firsts.get(topic)
        if first is None or not 0 <= partition < self.per_topic:
            return None
        return first + partition

    def of(self, number: int) -> tuple[str, int]:
        """The topic of the partition with this number, and the partition's number in the topic."""
        return self.topics[number // self.per_topic], number % self.per_topic

    def topic_of(self, producer: int) -> tuple[str, range]:
        """The topic of a producer, and the numbers of this topic's partitions.

        Producers use the topics in turn, so the producers per topic differ by at most one.
        """
        index = producer % len(self.topics)
        first = index * self.per_topic
        return self.topics[index], range(first, first + self.per_topic)


SETTLING = 3
"""Number of rebalances until a consumer group is stable. For each rebalance, `open_timeout_s` is
longer by the time limit of a connection."""


@dataclass(frozen=True)
class TrialPlan:
    """The plan for all tasks of one part of a barrier stage.

    Attributes:
        trial_id: id of the trial, which is part of the client ids of the trial.
        topics: names of the topics. Producer i writes to the topic whose index is i modulo the
            number of topics.
        pattern: the traffic pattern.
        tasks: number of tasks with producers; task i has producers i, i + tasks, i + 2·tasks, …
        leaders: ids of the brokers that lead partitions 0, 1, 2, … of all topics together; see the
            module's docstring.
        brokers: broker id → (host, port).
        connect_timeout_s: time limit for opening a connection to a broker [s].
        start_lead_s: delay of the first record, counted from the time at which the last task is
            ready [s]. All tasks must get the start signal before the first record is due.
        name_prefix: prefix of client ids, group ids and transactional ids.
        client_options: connection options of kafka-python, such as security options.
        control: address for control channels to the driver; None without control channels.
        consumer_tasks: number of tasks with consumers, which follow the tasks with producers.
        windows: number of windows, which follow each other without a gap; the task reports each
            window to the driver.
        end_offsets: partition → end offset before the load; empty without consumers.
        network_namespace: file of the network namespace for connections to brokers; empty if tasks
            stay in their own namespace.
        interface_speeds: interface → speed [B/s], for interfaces whose speed the system does not
            report.
        climb: steps of a growing load; None if all producers begin together.
        part: name of the part of a mix; empty if the traffic is not a mix. In a mix, the attributes
            before `part` describe this part alone, with numbers from 0.
        first_partition: number of the part's first partition, if the partitions of all parts are
            counted from 0.
        first_producer: number of the part's first producer, if the producers of all parts are
            counted from 0.
        first_group: number of the part's first consumer group, if the consumer groups of all parts
            are counted from 0.
        first_task: index of the part's first task with producers, among all tasks of the barrier
            stage.
        first_consumer_task: index of the part's first task with consumers, among all tasks of the
            barrier stage; None if this task directly follows the part's tasks with producers.
        stage_consumer_tasks: number of tasks with consumers, over all parts of a mix; None if the
            traffic is not a mix.
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
        """Longest time in which a task must open all its connections [s].

        The time includes the look-up of hosts, the opening of connections, and then the settling of
        groups or the requests for producer ids.
        """
        return (1 + PATIENCE + SETTLING) * self.connect_timeout_s

    def hosts(self, task: int) -> bool:
        """Whether a task of the stage belongs to this plan."""
        own = self.tasks + self.consumer_tasks
        return task in {self.stage_task(each) for each in range(own)}

    def stage_task(self, task: int) -> int:
        """Number that a task of this plan has in the stage. Consumers follow producers."""
        if task < self.tasks or self.first_consumer_task is None:
            return self.first_task + task
        return self.first_consumer_task + task - self.tasks

    def own_task(self, task: int) -> int:
        """Number that a task of the stage has in this plan."""
        if self.first_consumer_task is None or task < self.first_consumer_task:
            return task - self.first_task
        return self.tasks + task - self.first_consumer_task

    @property
    def gathers_offsets(self) -> bool:
        """Whether any consumers of the stage need the acknowledged offsets of all tasks."""
        found = self.stage_consumer_tasks
        return bool(self.consumer_tasks if found is None else found)

    @cached_property
    def partitions(self) -> Partitions:
        """The partitions of all topics, with the numbers that identify them in the task."""
        return Partitions(self.topics, len(self.leaders) // len(self.topics))

    @property
    def shares_topics(self) -> bool:
        """Whether the members of a group share all topics, because one topic has too few partitions
        for them.
        """
        return self.pattern.consumers.members > self.partitions.per_topic

    def producers_of(self, task: int) -> range:
        """The producers of this task."""
        return range(task, self.pattern.producers, self.tasks)

    def start_offset(self, partition: int, first: int) -> int:
        """Start offset of a consumer group without a committed offset.

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
        """The addresses of the brokers, as bootstrap servers."""
        return [join_address(*each) for each in self.brokers.values()]

    def client_id(self, name: str) -> str:
        """The client id of the producer or group member with this name."""
        return client_id_of(name, self.client_options)

    def producer_name(self, producer: int) -> str:
        """The name of a producer, unique in the trial. The name is also the transactional id."""
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
    """The plan of a whole barrier stage: one `TrialPlan` for each part of the load.

    Attributes:
        plans: the plan of each part of a mix, or one plan. In the stage, all tasks with producers
            come before all tasks with consumers, whatever their part.
    """

    plans: tuple[TrialPlan, ...]

    @property
    def trial_id(self) -> str:
        """Id of the trial."""
        return self.plans[0].trial_id

    @property
    def tasks(self) -> int:
        """Number of tasks of the stage."""
        return sum(each.tasks + each.consumer_tasks for each in self.plans)

    def plan_of(self, task: int) -> TrialPlan:
        """The plan of the part to which a task belongs."""
        return next(each for each in self.plans if each.hosts(task))


Numbered = TypeVar("Numbered", Counts, ProducerAccounts)


def placed(plan: TrialPlan, report: TaskReport) -> TaskReport:
    """The report with new numbers: each partition, producer, group and task gets a number that is
    unique over all parts of a mix. If the traffic is not a mix, the report is unchanged.
    """
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
    """Add `first` to the keys of each mapping whose name ends with `ending`."""
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

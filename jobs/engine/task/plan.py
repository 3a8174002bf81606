"""What the tasks of one trial are told, as plain frozen data that crosses to the executors."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

from jobs.engine.task.control_channel import ControlAddress
from jobs.engine.task.partitions import Partitions
from metrics.traffic.pattern import TrafficPattern


@dataclass(frozen=True)
class TrialPlan:
    """What every task of one barrier stage is told.

    Attributes:
        trial_id: names the trial in client ids.
        topics: what is written to; producer i writes to topic i modulo their number.
        pattern: what is offered.
        tasks: tasks with producers; task i hosts the producers i, i + tasks, i + 2·tasks, …
        leaders: broker id that leads partition 0, 1, 2, …, numbered through all topics
            (`jobs.engine.task.partitions`), as partitions are everywhere here.
        brokers: broker id → (host, port).
        client_options: connection options of kafka-python (security and the like).
        control: where the driver listens to the tasks; None when it does not.
        consumer_tasks: tasks that host the consumer groups, after the producers' tasks; 0
            where nobody reads along.
        end_offsets: partition → end offset before the load, where there are consumers.
        network_namespace: file of the one from which tasks open their connections to the brokers;
            empty for their own.
        interface_speeds: interface → its speed, where the system does not tell [B/s].
        windows: measured without a gap, one after the other; the task tells the driver of each.
        start_lead_s: from when the last task was ready to the first record [s]: all tasks must
            have heard of it by then.
    """

    trial_id: str
    topics: tuple[str, ...]
    pattern: TrafficPattern
    tasks: int
    leaders: tuple[int, ...]
    brokers: Mapping[int, tuple[str, int]]
    connect_timeout_s: float = 20.0
    start_lead_s: float = 0.5
    client_options: Mapping[str, object] = field(default_factory=dict)
    control: ControlAddress | None = None
    consumer_tasks: int = 0
    windows: int = 1
    end_offsets: Mapping[int, int] = field(default_factory=dict)
    network_namespace: str = ""
    interface_speeds: Mapping[str, float] = field(default_factory=dict)

    @functools.cached_property
    def partitions(self) -> Partitions:
        """The topics' partitions and their numbers."""
        return Partitions(self.topics, len(self.leaders) // len(self.topics))

    def producers_of(self, task: int) -> range:
        """The producers that this task hosts."""
        return range(task, self.pattern.producers, self.tasks)

    def start_offset(self, partition: int, first: int) -> int:
        """Where a consumer group begins that has committed nothing.

        Args:
            first: offset of the first record that there is; of no account for "latest".
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
        return [
            f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            for host, port in self.brokers.values()
        ]

    def client_id(self, producer: int) -> str:
        """The client id of a producer, unique in the trial."""
        return f"redline-{self.trial_id}-{producer}"

    def group_id(self, group: int) -> str:
        """The id of a consumer group, unique in the trial."""
        return f"redline-{self.trial_id}-group-{group}"

    def member_id(self, group: int, member: int) -> str:
        """The client id of a member, unique in the trial."""
        return f"{self.group_id(group)}-{member}"

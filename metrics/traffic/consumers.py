"""The consumer groups that read the topic while it is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from metrics.common.bounds import OURS, Whole
from metrics.traffic.clients import ClientName

GROUPS_MAX = 100


@dataclass(frozen=True)
class ConsumerOptions:
    """Options of consumer groups that each read the whole topic; named like Kafka's.

    Attributes:
        groups: number of groups; 0 for none.
        members: members of each group, spread over the tasks; with more of them than partitions
            of a topic, each reads partitions of some of the topics.
        client: "wire" reads batch headers; "kafka-python" and "librdkafka" decode records.
        start: the position where groups begin: "latest", the end offsets before the load;
            "earliest"; or "backlog", `backlog_records` before the end.
        backlog_records: records of a backlog in all partitions together.
        fetch_min_bytes: size of the data that a broker waits for …
        fetch_max_wait_ms: … and the longest time for which it waits.
        fetch_max_bytes: upper bound of a response, one batch excepted.
        max_partition_fetch_bytes: upper bound of one partition's part in a response.
        send_buffer_bytes, receive_buffer_bytes: buffers of the sockets; -1 for the kernel's tuning.
        check_crcs: whether the CRC of each batch is verified.
        auto_commit_interval_ms: time between two commits of a member's offsets.
    """

    groups: Annotated[int, Whole(0, GROUPS_MAX, "groups"), OURS] = 0
    members: Annotated[int, Whole(1, 1_000_000, "members"), OURS] = 1
    client: Annotated[ClientName, OURS] = "wire"
    start: Annotated[Literal["latest", "earliest", "backlog"], OURS] = "latest"
    backlog_records: Annotated[int, Whole(0, 1_000_000_000_000, "messages"), OURS] = 0
    fetch_min_bytes: Annotated[int, Whole(0, 1_000_000_000, "bytes")] = 1
    fetch_max_wait_ms: Annotated[int, Whole(0, 60_000, "milliseconds")] = 500
    fetch_max_bytes: Annotated[int, Whole(1_024, 1_000_000_000, "bytes")] = 52_428_800
    max_partition_fetch_bytes: Annotated[int, Whole(1_024, 1_000_000_000, "bytes")] = 1_048_576
    send_buffer_bytes: Annotated[int, Whole(-1, 1_000_000_000, "bytes")] = -1
    receive_buffer_bytes: Annotated[int, Whole(-1, 1_000_000_000, "bytes")] = -1
    check_crcs: bool = False
    auto_commit_interval_ms: Annotated[int, Whole(100, 3_600_000, "milliseconds")] = 5_000

    @property
    def members_total(self) -> int:
        """Members of all groups together."""
        return self.groups * self.members

    def members_of(self, task: int, tasks: int) -> list[tuple[int, int]]:
        """The members that a consumer task hosts, as (group, member).

        The members of a group are spread over the tasks.

        Args:
            task: index among the consumer tasks, from 0.
            tasks: number of consumer tasks.
        """
        hosted = range(task, self.members_total, tasks)
        return [(index // self.members, index % self.members) for index in hosted]

    def commits_per_s(self, partitions: int) -> float:
        """Highest rate of commits of all groups, which brokers count as messages [1/s]."""
        return self.groups * partitions * 1000.0 / self.auto_commit_interval_ms

    def tasks(self, slots: int) -> int:
        """The number of tasks that host the members; the producers get the other slots.

        Every group reads as many bytes as all producers send, so the slots are divided by bytes,
        with at least one for each side. 0 without groups, and with fewer than two slots.
        """
        if self.groups == 0 or slots < 2:
            return 0
        fair = round(slots * self.groups / (self.groups + 1))
        return max(1, min(fair, slots - 1, self.members_total))

    def require_consistent(self) -> None:
        """Refuse options that contradict each other.

        Raises:
            ValueError: the message names them, the expected values and the remedy.
        """
        if (self.start == "backlog") != (self.backlog_records > 0):
            raise ValueError(
                f"start is {self.start} and backlog_records {self.backlog_records}; expected "
                "backlog_records above 0 with start: backlog, and 0 otherwise; change one of them"
            )

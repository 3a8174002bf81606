"""The consumer groups that read the topic while it is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from metrics.common.bounds import OURS, Whole
from metrics.traffic.clients import ClientName

GROUPS_MAX = 100


@dataclass(frozen=True)
class ConsumerOptions:
    """Groups that each read everything; options are named like Kafka's.

    Attributes:
        groups: number of groups; 0 for none.
        members: members of each group, spread over the tasks.
        client: "wire" reads batch headers; "kafka-python" and "librdkafka" decode records.
        start: where groups begin: "latest", the end offsets before the load; "earliest"; or
            "backlog", `backlog_records` before the end.
        backlog_records: records of a backlog, all partitions together.
        fetch_min_bytes: a broker waits for so much …
        fetch_max_wait_ms: … and no longer than this.
        fetch_max_bytes: upper bound of a response, one batch excepted.
        max_partition_fetch_bytes: upper bound of one partition's part in it.
        send_buffer_bytes, receive_buffer_bytes: of the sockets, -1 for the kernel's tuning.
        check_crcs: whether the CRC of each batch is verified.
        auto_commit_interval_ms: between two commits of a member's offsets.
    """

    groups: Annotated[int, Whole(0, GROUPS_MAX, "groups"), OURS] = 0
    members: Annotated[int, Whole(1, 1_000, "members"), OURS] = 1
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
        """(group, member) of those that this consumer task hosts; a group's are spread.

        Args:
            task: index among the consumer tasks, from 0.
            tasks: number of consumer tasks.
        """
        hosted = range(task, self.members_total, tasks)
        return [(index // self.members, index % self.members) for index in hosted]

    def commits_per_s(self, partitions: int) -> float:
        """Offsets that all groups commit at most, which brokers count as messages too [1/s]."""
        return self.groups * partitions * 1000.0 / self.auto_commit_interval_ms

    def tasks(self, slots: int) -> int:
        """Tasks that host the members, out of so many slots; the producers get the rest.

        Every group takes as many bytes as all producers send, so slots are shared out by the
        bytes, with one for each side at least. 0 without groups, and where there is no room.
        """
        if self.groups == 0 or slots < 2:
            return 0
        fair = round(slots * self.groups / (self.groups + 1))
        return max(1, min(fair, slots - 1, self.members_total))

    def require_consistent(self) -> None:
        """Refuse options that contradict each other.

        Raises:
            ValueError: says which, what was expected and what to do.
        """
        if (self.start == "backlog") != (self.backlog_records > 0):
            raise ValueError(
                f"start is {self.start} and backlog_records {self.backlog_records}; expected "
                "backlog_records above 0 with start: backlog, and 0 otherwise; change one of them"
            )

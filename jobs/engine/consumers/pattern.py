"""What the consumer groups of a trial do, as plain frozen data that crosses to the executors."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ConsumerPattern:
    """The consumer groups of one trial; names follow Kafka's consumer options.

    Attributes:
        groups: each of them reads everything.
        members: members of each group.
        start: where groups begin: `latest` (the end offsets before the load), `earliest`,
            or `backlog`, so many records before the end.
        backlog_records: records of a backlog, all partitions together.
        client: `wire`, `kafka-python` or `librdkafka`.
        fetch_min_bytes: a broker waits for so much [B] …
        fetch_max_wait_ms: … but no longer than this [ms].
        fetch_max_bytes: upper bound of a response, one batch excepted [B].
        max_partition_fetch_bytes: upper bound of a partition's part in it [B].
        receive_buffer_bytes: the socket's receive buffer [B]; -1 leaves it to the kernel.
        check_crcs: whether the CRC of each batch is verified.
        auto_commit_interval_ms: between two commits of a member's offsets [ms].
    """

    groups: int
    members: int = 1
    start: str = "latest"
    backlog_records: int = 0
    client: str = "wire"
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 52_428_800
    max_partition_fetch_bytes: int = 1_048_576
    receive_buffer_bytes: int = -1
    check_crcs: bool = False
    auto_commit_interval_ms: int = 5_000

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


def consumer_tasks(pattern: ConsumerPattern, slots: int) -> int:
    """Tasks that host the members, out of so many slots; the producers get the rest.

    Every group takes as many bytes as all producers send, so slots are shared out by the
    bytes, with one for each side at least. 0 without groups, and where there is no room.
    """
    if pattern.groups == 0 or slots < 2:
        return 0
    fair = round(slots * pattern.groups / (pattern.groups + 1))
    return max(1, min(fair, slots - 1, pattern.members_total))

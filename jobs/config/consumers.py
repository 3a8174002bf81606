"""The consumer groups that read the topic while it is written."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import model_validator

from jobs.config.base import ConfigModel, Whole

GROUPS_MAX = 100


class Consumers(ConfigModel):
    """Groups that each read everything; keys are named like Kafka's consumer options.

    Attributes:
        groups: number of groups; 0 for none.
        members: members of each group, spread over the tasks.
        client: "wire" reads batch headers; "kafka-python" and "librdkafka" decode records.
        start: "latest", "earliest", or "backlog" to begin `backlog_records` before the end.
        backlog_records: records of a backlog, all partitions together.
        fetch_min_bytes: a broker waits for so much [B] …
        fetch_max_wait_ms: … and no longer than this [ms].
        fetch_max_bytes: upper bound of a response, one batch excepted [B].
        max_partition_fetch_bytes: upper bound of one partition's part in it [B].
        receive_buffer_bytes: the socket's receive buffer [B]; -1 leaves it to the kernel.
        check_crcs: whether the CRC of each batch is verified.
        auto_commit_interval_ms: between two commits of a member's offsets [ms].
    """

    groups: Annotated[int, Whole(0, GROUPS_MAX, "groups")] = 0
    members: Annotated[int, Whole(1, 1_000, "members")] = 1
    client: Literal["wire", "kafka-python", "librdkafka"] = "wire"
    start: Literal["latest", "earliest", "backlog"] = "latest"
    backlog_records: Annotated[int, Whole(0, 1_000_000_000_000, "messages")] = 0
    fetch_min_bytes: Annotated[int, Whole(0, 1_000_000_000, "bytes")] = 1
    fetch_max_wait_ms: Annotated[int, Whole(0, 60_000, "milliseconds")] = 500
    fetch_max_bytes: Annotated[int, Whole(1_024, 1_000_000_000, "bytes")] = 52_428_800
    max_partition_fetch_bytes: Annotated[int, Whole(1_024, 1_000_000_000, "bytes")] = 1_048_576
    receive_buffer_bytes: Annotated[int, Whole(-1, 1_000_000_000, "bytes")] = -1
    check_crcs: bool = False
    auto_commit_interval_ms: Annotated[int, Whole(100, 3_600_000, "milliseconds")] = 5_000

    @model_validator(mode="after")
    def _backlog_has_a_size(self) -> Consumers:
        if (self.start == "backlog") != (self.backlog_records > 0):
            raise ValueError(
                f"start is {self.start} and backlog_records {self.backlog_records}; expected "
                "backlog_records above 0 with start: backlog, and 0 otherwise; change one of them"
            )
        return self

    @property
    def members_total(self) -> int:
        """Members of all groups together."""
        return self.groups * self.members

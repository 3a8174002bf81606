"""Distribution of a workload's groups over tasks, and groups without room."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.config import load_workload
from jobs.trials.load import require_room
from metrics.common.errors import ConfigError
from metrics.traffic.clients import ConsumerOptions
from tests.support.patterns import plan


def test_slots_are_shared_out_by_bytes_and_members_over_the_tasks() -> None:
    for groups, members, slots, tasks in (
        (0, 1, 8, 0), (1, 1, 1, 0), (1, 1, 2, 1), (5, 2, 2, 1), (1, 4, 8, 4), (3, 9, 16, 12)
    ):  # fmt: skip
        options = ConsumerOptions(groups=groups, members=members)
        assert options.tasks(slots) == tasks
        spread = [member for task in range(tasks) for member in options.members_of(task, tasks)]
        assert len(set(spread)) == len(spread) == (groups * members if tasks else 0)


def test_groups_without_room_are_refused() -> None:
    pattern = load_workload("demo", ["workload.consumers.groups=2"]).pattern(1_000, brokers=3)
    require_room(pattern, 2)
    with pytest.raises(ConfigError, match="Spark has 1 slot; expected 2 slots"):
        require_room(pattern, 1)
    crowded = ["workload.consumers.groups=2", "workload.consumers.members=31"]
    with pytest.raises(ConfigError, match="31 and the topics have 30 partitions"):
        require_room(load_workload("demo", crowded).pattern(1_000, brokers=3), 2)
    several = load_workload("demo", [*crowded, "workload.topic.count=2"])
    require_room(several.pattern(1_000, brokers=3), 2)
    require_room(load_workload("demo").pattern(1_000, brokers=3), 1)


@pytest.mark.parametrize("override", ["start=backlog", "backlog_records=5"])
def test_a_backlog_needs_both_of_its_keys(override: str) -> None:
    with pytest.raises(ConfigError, match="expected backlog_records above 0 with start: backlog"):
        load_workload("demo", [f"workload.consumers.{override}"])


@pytest.mark.parametrize(
    ("options", "offsets"),
    [
        ({"start": "latest"}, [100, 7, 0, 0]),
        ({"start": "earliest"}, [5, 5, 5, 5]),
        ({"start": "backlog", "backlog_records": 10}, [97, 5, 5, 5]),
    ],
)
def test_a_group_begins_at_the_first_record_at_the_end_or_its_backlog_before_it(
    options: dict[str, Any], offsets: list[int]
) -> None:
    """A backlog of ten records on four partitions is three records of each that has as many."""
    trial = plan(consumers=ConsumerOptions(groups=1, **options), end_offsets={0: 100, 1: 7})
    assert [trial.start_offset(partition, first=5) for partition in range(4)] == offsets

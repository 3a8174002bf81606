"""Topics that a benchmark makes for one measurement."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from jobs.brokers.admin import KafkaAdmin, Partition
from jobs.brokers.topic_plan import Assignment
from search.errors import RedlineError

DEADLINE_S = 20.0


class NotLedError(RedlineError):
    """A broker does not know the new topic in time."""


@contextmanager
def fresh_topic(
    admin: KafkaAdmin, name: str, assigned: Assignment, config: Mapping[str, str]
) -> Iterator[str]:
    """A topic that every broker knows, deleted afterwards.

    Raises:
        AdminError: the cluster refuses or does not answer.
        NotLedError: a broker does not know leaders of all partitions within `DEADLINE_S`.
    """
    admin.create_topic(name, assigned, config)
    try:
        ends_s = time.monotonic() + DEADLINE_S
        for broker in admin.describe_cluster().broker_ids:
            while not is_led(admin.partitions_seen_by(broker, [name])[name], len(assigned)):
                if time.monotonic() > ends_s:
                    raise NotLedError(
                        f"broker {broker} does not know the topic {name} after {DEADLINE_S:g} s"
                    )
                time.sleep(0.05)
        yield name
    finally:
        admin.delete_topic(name)


def is_led(seen: Mapping[int, Partition] | None, partitions: int) -> bool:
    """True when so many partitions are there and have a leader."""
    found = seen or {}
    return len(found) == partitions and all(each.leader >= 0 for each in found.values())

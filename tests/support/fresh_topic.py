"""Topics of single measurements of a benchmark."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from jobs.cluster.admin import KafkaAdmin
from jobs.cluster.topic_plan import Assignment, state_of
from metrics.common.errors import RedlineError

DEADLINE_S = 20.0
POLL_S = 0.05


class NotReadyError(RedlineError):
    """A broker does not have the assigned metadata of a new topic in time."""


@contextmanager
def fresh_topic(
    admin: KafkaAdmin, name: str, assigned: Assignment, config: Mapping[str, str]
) -> Iterator[str]:
    """A topic that every broker knows with its assignment; it is deleted at the end.

    Raises:
        AdminError: the cluster refuses the topic or does not answer.
        NotReadyError: a broker has other metadata after `DEADLINE_S`.
    """
    admin.create_topic(name, assigned, config)
    try:
        ends_s = time.monotonic() + DEADLINE_S
        for broker in admin.describe_cluster().broker_ids:
            while not state_of(
                assigned, admin.partitions_seen_by(broker, [name])[name] or {}
            ).healthy:
                if time.monotonic() > ends_s:
                    raise NotReadyError(
                        f"broker {broker} does not know the topic {name} as assigned after "
                        f"{DEADLINE_S:g} s; look at the brokers' logs"
                    )
                time.sleep(POLL_S)
        yield name
    finally:
        admin.delete_topic(name)

"""The interface of every client: what it does for one task of a trial. Its connections.

The offsets up to which consumers read. Consumers read while the producers' tasks wait for their
last acknowledgements. Then all tasks gather once more, and consumers know up to which offsets
everything was acknowledged.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from jobs.engine.network.connections import Api, Connector
from jobs.engine.task.control_channel import DriverChannel
from jobs.engine.task.plan import TrialPlan
from metrics.traffic.clients import ConsumerOptions, ProducerOptions
from metrics.trial.client import TaskReport

Targets = Callable[[], Mapping[int, int] | None]
"""Partition → offset to read to; None while more records may be acknowledged."""


class TaskClient(Protocol):
    """Producers, or members of consumer groups, of one task, with the same account for every
    library.
    """

    def open(self) -> None:
        """Prepare everything that must not take time under load; nothing is sent or read yet.

        Members join their groups, until every member has its share of the partitions.

        Raises:
            RedlineError: the library is missing or cannot do what the plan requires, a broker
                cannot be reached, or a group does not settle in time.
        """
        ...

    def run(
        self,
        start_s: float,
        wall_offset_s: float,
        driver: DriverChannel | None,
        acknowledged: AcknowledgedOffsets,
    ) -> TaskReport:
        """Offer or read the load from `start_s` on, through warm-up and windows, then drain.

        Each window but the last is reported to the driver when it is over.

        Args:
            start_s: when the load begins, on the monotonic clock [s].
            wall_offset_s: what to add to that clock for seconds since the epoch.
            driver: channel to the driver, which may end the window early; None without a driver.
            acknowledged: takes the offsets of producers, and has those that consumers read to
                once the window is over.

        Raises:
            RedlineError: the load had to end; the row states why.
        """
        ...

    def close(self) -> None:
        """Leave the groups and close all connections; does nothing when none is open."""
        ...


Gather = Callable[[str], list[str]]
"""Spark's `allGather`: the messages of all tasks, when all have called."""


class AcknowledgedOffsets:
    """The acknowledged offsets of all tasks; every task must call `finish` once.

    Args:
        gather: blocks until all tasks have called.

    Attributes:
        own_offsets: partition → number of offsets of its log that this task's producers occupy for
            certain.
    """

    def __init__(self, plan: TrialPlan, gather: Gather) -> None:
        self._plan = plan
        self._gather = gather
        self._targets: dict[int, int] | None = None
        self._thread: threading.Thread | None = None
        self.own_offsets: Mapping[int, int] = {}

    def __call__(self) -> Mapping[int, int] | None:
        """Partition → offset to read to; None while a task has not finished yet.

        Does not block. The first call states that this task adds nothing more.
        """
        if self._thread is None:
            self._thread = threading.Thread(target=self._gather_offsets, daemon=True)
            self._thread.start()
        return self._targets

    def finish(self) -> None:
        """Take part in the gathering, so that no other task waits for this one."""
        if self._thread is None:
            self._gather_offsets()
        else:
            self._thread.join()

    def _gather_offsets(self) -> None:
        total: Counter[int] = Counter()
        first = self._plan.first_partition  # tasks of other parts count from 0, too
        own = {first + partition: records for partition, records in self.own_offsets.items()}
        for message in self._gather(json.dumps(own)):
            total.update({int(p): records for p, records in json.loads(message).items()})
        self._targets = {
            partition: end + total[first + partition]
            for partition, end in self._plan.end_offsets.items()
        }


def connector_of(
    plan: TrialPlan, options: ProducerOptions | ConsumerOptions, apis: Collection[Api]
) -> Connector:
    """The connector to the plan's brokers for clients with these options.

    Args:
        apis: the requests that will be sent.
    """
    buffers = options.send_buffer_bytes, options.receive_buffer_bytes
    return Connector(plan.brokers, plan.client_options, plan.connect_timeout_s, buffers, apis)

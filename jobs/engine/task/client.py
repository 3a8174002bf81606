"""The interface of all clients for one task of a trial, and the offsets that consumers must reach.

Consumers continue to read while producers wait for their last acknowledgements. After the last
acknowledgements, all tasks exchange their offsets once, so that consumers know up to which offsets
all records are acknowledged.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from jobs.engine.network.apis import Api
from jobs.engine.network.connections import Connector
from jobs.engine.task.control_channel import DriverChannel
from jobs.engine.task.plan import TrialPlan
from metrics.traffic.clients import ConsumerOptions, ProducerOptions
from metrics.trial.client import TaskReport

Targets = Callable[[], Mapping[int, int] | None]
"""Partition → offset to reach; None while more records can be acknowledged."""


class TaskClient(Protocol):
    """A client of one task: producers or consumer group members, of any library."""

    def open(self) -> None:
        """Prepare everything that would take time under load. No record is sent or read.

        Group members join their groups, and wait until every member has its share of the
        partitions.

        Raises:
            RedlineError: the library is missing or does not support the plan, a broker cannot be
                reached, or a group does not settle in time.
        """

    def run(
        self,
        start_s: float,
        wall_offset_s: float,
        driver: DriverChannel | None,
        acknowledged: AcknowledgedOffsets,
    ) -> TaskReport:
        """Send or read the load from `start_s` on, through warm-up and windows, and then drain.

        At the end of each window except the last, the task reports the window to the driver.

        Args:
            start_s: start of the load, on the monotonic clock [s].
            wall_offset_s: time since the epoch minus the time of the monotonic clock [s].
            driver: channel to the driver, which can end the window early; None without a driver.
            acknowledged: gets the offsets of producers, and returns the offsets that consumers must
                reach.

        Raises:
            RedlineError: the load had to end early, for the reason in the error's text.
        """

    def close(self) -> None:
        """Leave the groups and close all connections; does nothing if none is open."""


Gather = Callable[[str], list[str]]
"""Spark's `allGather`: returns the messages of all tasks after all tasks have called."""


class AcknowledgedOffsets:
    """The acknowledged offsets of all tasks. Every task must call `finish` once.

    Args:
        gather: exchanges messages; a call of `gather` blocks until all tasks have called it.

    Attributes:
        own_offsets: partition → lower bound of the number of offsets that this task's producers
            have used in the partition's log.
    """

    def __init__(self, plan: TrialPlan, gather: Gather) -> None:
        self._plan = plan
        self._gather = gather
        self._targets: dict[int, int] | None = None
        self._thread: threading.Thread | None = None
        self.own_offsets: Mapping[int, int] = {}

    def __call__(self) -> Mapping[int, int] | None:
        """Partition → offset to reach; None until all tasks have finished.

        The call does not block. The first call tells the other tasks that this task has finished.
        """
        if self._thread is None:
            self._thread = threading.Thread(target=self._gather_offsets, daemon=True)
            self._thread.start()
        return self._targets

    def finish(self) -> None:
        """Exchange the offsets with the other tasks if no earlier call has begun the exchange, and
        wait for its end. If a task did not call `finish`, all other tasks would wait for the task.
        """
        if self._thread is None:
            self._gather_offsets()
        else:
            self._thread.join()

    def _gather_offsets(self) -> None:
        total: Counter[int] = Counter()
        first = self._plan.first_partition  # the tasks of every part count from 0
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
        apis: the kinds of requests that the connections will carry.
    """
    buffers = options.send_buffer_bytes, options.receive_buffer_bytes
    return Connector(plan.brokers, plan.client_options, plan.connect_timeout_s, buffers, apis)

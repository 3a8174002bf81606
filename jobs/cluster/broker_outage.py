"""Planned broker outages: the run or the cluster's operator stops brokers and starts them again."""

from __future__ import annotations

import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from jobs.cluster.admin import AdminError, KafkaAdmin
from jobs.console.events import PhaseProgress, PhaseStarted, Reporter
from jobs.testbed.facade import StartedBrokers
from metrics.common.errors import NoConclusionError

POLL_S = 0.5
PATIENCE_S = 3600.0
"""Longest time that an operator may take to stop or start a broker [s]."""


class BrokerOutage(ABC):
    """Stops brokers and starts them again.

    Args:
        broker_ids: ids of all brokers.
        pause: function that waits for a number of seconds; replaced in tests.
    """

    def __init__(
        self,
        admin: KafkaAdmin,
        broker_ids: Sequence[int],
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._admin = admin
        self._ids = frozenset(broker_ids)
        self._pause = pause

    @abstractmethod
    def begin(self, count: int) -> frozenset[int]:
        """Wait until `count` brokers are offline; return their ids.

        Raises:
            NoConclusionError: the brokers were not stopped in time.
        """

    @abstractmethod
    def end(self) -> None:
        """Wait until all brokers serve again.

        Raises:
            NoConclusionError: the brokers were not started in time.
        """

    def _serving(self) -> frozenset[int]:
        """Ids of the brokers that serve clients; empty if the cluster does not answer."""
        try:
            return frozenset(self._admin.describe_cluster().broker_ids)
        except AdminError:  # the query went to the broker that stopped
            return frozenset()

    def _await_offline(self, count: int, reporter: Reporter | None = None) -> frozenset[int]:
        """Wait until exactly `count` brokers are offline; return their ids."""
        waited_s = 0.0
        while True:
            serving = self._serving()
            offline = self._ids - serving
            if serving and len(offline) == count:
                return offline
            if waited_s >= PATIENCE_S:
                raise NoConclusionError(
                    f"{len(offline)} of {len(self._ids)} brokers are offline after "
                    f"{waited_s:.0f} s; expected {count}; start or stop brokers, and run again"
                )
            if reporter is not None and serving:
                reporter.report(PhaseProgress(f"{len(offline)} offline"))
            self._pause(POLL_S)
            waited_s += POLL_S


class ControlledOutage(BrokerOutage):
    """Stops the brokers with the highest ids by SIGTERM, and starts them again."""

    def __init__(self, control: StartedBrokers, admin: KafkaAdmin) -> None:
        super().__init__(admin, control.broker_ids)
        self._control = control
        self._offline: frozenset[int] = frozenset()

    def begin(self, count: int) -> frozenset[int]:
        """Stop `count` brokers by SIGTERM, and return their ids. On SIGTERM a broker hands over the
        leadership of its partitions before it stops.
        """
        for broker_id in sorted(self._ids)[-count:]:
            self._offline |= {broker_id}
            self._control.kill_broker(broker_id, signal.SIGTERM)
        return self._await_offline(count)

    def end(self) -> None:
        """Start the stopped brokers."""
        for broker_id in sorted(self._offline):
            self._control.restart_broker(broker_id)
            self._offline -= {broker_id}


class AnnouncedOutage(BrokerOutage):
    """Asks the operator to stop and start brokers, and waits for the operator."""

    def __init__(
        self,
        admin: KafkaAdmin,
        broker_ids: Sequence[int],
        reporter: Reporter,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(admin, broker_ids, pause)
        self._reporter = reporter
        self._is_announced = False

    def begin(self, count: int) -> frozenset[int]:
        """Ask the operator to stop `count` brokers; return the ids of the stopped brokers."""
        what = "a broker" if count == 1 else f"{count} brokers"
        self._reporter.report(
            PhaseStarted(f"stop {what} of the cluster now; waiting until {what} is offline")
        )
        self._is_announced = True
        return self._await_offline(count, self._reporter)

    def end(self) -> None:
        """Ask the operator to start the offline brokers, and wait until they serve clients."""
        if not self._is_announced:
            return
        serving = self._serving()
        if serving and (offline := sorted(self._ids - serving)):
            named = ", ".join(map(str, offline))
            self._reporter.report(
                PhaseStarted(
                    f"start broker {named} again now; waiting until all brokers serve clients"
                )
            )
        self._await_offline(0, self._reporter)
        self._is_announced = False

"""Planned broker outages: brokers that the run or the cluster's operator stops and starts again.

Control over the processes of brokers, which exists only where the run starts them.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from jobs.cluster.admin import AdminError, KafkaAdmin
from jobs.console.events import PhaseProgress, PhaseStarted, Reporter
from metrics.common.errors import NoConclusionError


class BrokerControl(Protocol):
    """Stops, restarts and observes the processes of brokers on this machine."""

    @property
    def broker_ids(self) -> tuple[int, ...]:
        """Ids of all brokers, ascending, whether they run or not."""
        ...

    @property
    def pids(self) -> Mapping[int, int]:
        """Node id → process id of the nodes that run now, controllers included."""
        ...

    def kill_broker(self, broker_id: int, signum: int = signal.SIGKILL) -> None:
        """Send a signal to a broker; return after its end where the signal ends it."""
        ...

    def restart_broker(self, broker_id: int) -> None:
        """Start a broker again with its data; return when all brokers serve."""
        ...

    def forget_page_cache(self) -> int:
        """Drop the brokers' log segments from the page cache; their size [B].

        Raises:
            ConfigError: the operating system does not support this.
        """
        ...


POLL_S = 0.5
PATIENCE_S = 3600.0
"""Longest time that an operator may take to stop or start a broker [s]."""


class BrokerOutage(Protocol):
    """Stops brokers and starts them again."""

    def begin(self, count: int) -> frozenset[int]:
        """Wait until `count` brokers are offline; return their ids.

        Raises:
            NoConclusionError: the brokers were not stopped in time.
        """
        ...

    def end(self) -> None:
        """Wait until all brokers serve again.

        Raises:
            NoConclusionError: the brokers were not started in time.
        """
        ...


class ControlledOutage:
    """Stops the brokers with the highest ids by SIGTERM, and starts them again."""

    def __init__(self, control: BrokerControl, admin: KafkaAdmin) -> None:
        self._control = control
        self._admin = admin
        self._offline: frozenset[int] = frozenset()

    def begin(self, count: int) -> frozenset[int]:
        """Stop `count` brokers in order, so that their leaders move first; return their ids."""
        ids = frozenset(sorted(self._control.broker_ids)[-count:])
        for broker_id in sorted(ids):
            self._offline |= {broker_id}
            self._control.kill_broker(broker_id, signal.SIGTERM)
        _await_offline(self._admin, self._control.broker_ids, count, time.sleep)
        return ids

    def end(self) -> None:
        """Start the stopped brokers."""
        for broker_id in sorted(self._offline):
            self._control.restart_broker(broker_id)
            self._offline -= {broker_id}


class AnnouncedOutage:
    """Asks the operator to stop and start brokers, and waits until it is done.

    Args:
        broker_ids: ids of all brokers.
        pause: waits for a time [s]; replaced in tests.
    """

    def __init__(
        self,
        admin: KafkaAdmin,
        broker_ids: Sequence[int],
        reporter: Reporter,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._admin = admin
        self._ids = tuple(broker_ids)
        self._reporter = reporter
        self._pause = pause
        self._is_announced = False

    def begin(self, count: int) -> frozenset[int]:
        """Ask the operator to stop `count` brokers; return the ids of those that stopped."""
        what = "a broker" if count == 1 else f"{count} brokers"
        self._reporter.report(
            PhaseStarted(f"stop {what} of the cluster now; waiting until offline")
        )
        self._is_announced = True
        return _await_offline(self._admin, self._ids, count, self._pause, self._reporter)

    def end(self) -> None:
        """Ask the operator to start the brokers that are offline, and wait until they serve."""
        if not self._is_announced:
            return
        offline = sorted(frozenset(self._ids) - _serving(self._admin))
        if offline:
            named = ", ".join(map(str, offline))
            self._reporter.report(
                PhaseStarted(f"start broker {named} again now; waiting until it serves")
            )
        _await_offline(self._admin, self._ids, 0, self._pause, self._reporter)
        self._is_announced = False


def _serving(admin: KafkaAdmin) -> frozenset[int]:
    """Ids of the brokers that serve; none while the cluster does not answer."""
    try:
        return frozenset(admin.describe_cluster().broker_ids)
    except AdminError:  # the query went to the broker that stopped
        return frozenset()


def _await_offline(
    admin: KafkaAdmin,
    broker_ids: Sequence[int],
    count: int,
    pause: Callable[[float], None],
    reporter: Reporter | None = None,
) -> frozenset[int]:
    """Wait until exactly `count` brokers are offline; return their ids."""
    waited_s = 0.0
    while True:
        serving = _serving(admin)
        offline = frozenset(broker_ids) - serving
        if len(offline) == count:
            return offline
        if waited_s >= PATIENCE_S:
            raise NoConclusionError(
                f"{len(offline)} of {len(broker_ids)} brokers are offline after {waited_s:.0f} s; "
                f"expected {count}; see to the brokers and run again"
            )
        if reporter is not None and serving:
            reporter.report(PhaseProgress(f"{len(offline)} offline"))
        pause(POLL_S)
        waited_s += POLL_S

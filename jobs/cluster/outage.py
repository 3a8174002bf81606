"""Brokers that go away on purpose and come back: stopped by us, or by whoever runs the cluster."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from jobs.cluster.admin import AdminError, KafkaAdmin
from jobs.cluster.broker_control import BrokerControl
from jobs.console.events import PhaseProgress, PhaseStarted, Reporter
from metrics.common.errors import NoConclusionError

POLL_S = 0.5
PATIENCE_S = 3600.0
"""How long somebody may take to stop or to start a broker [s]."""


class Outage(Protocol):
    """Takes brokers away and brings them back."""

    def begin(self, count: int) -> frozenset[int]:
        """Return once so many brokers are away; their ids.

        Raises:
            NoConclusionError: nobody took them away in time.
        """
        ...

    def end(self) -> None:
        """Return once all brokers serve again; at once where none is away.

        Raises:
            NoConclusionError: nobody brought them back in time.
        """
        ...


class ControlledOutage:
    """Stops the brokers with the highest ids in order, and starts them again."""

    def __init__(self, control: BrokerControl, admin: KafkaAdmin) -> None:
        self._control = control
        self._admin = admin
        self._away: frozenset[int] = frozenset()

    def begin(self, count: int) -> frozenset[int]:
        """Stop them, as an operator would: their leaders move first."""
        ids = frozenset(sorted(self._control.broker_ids)[-count:])
        for broker_id in sorted(ids):
            self._away |= {broker_id}
            self._control.kill_broker(broker_id, signal.SIGTERM)
        _await_away(self._admin, self._control.broker_ids, count, time.sleep)
        return ids

    def end(self) -> None:
        """Start those that are away."""
        for broker_id in sorted(self._away):
            self._control.restart_broker(broker_id)
            self._away -= {broker_id}


class AnnouncedOutage:
    """Says what to do with the brokers of a running cluster, and waits until it is done.

    Args:
        broker_ids: all of them.
        pause: handed in for tests [s].
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
        self._is_away = False

    def begin(self, count: int) -> frozenset[int]:
        """Ask for it, and see which ones go."""
        what = "a broker" if count == 1 else f"{count} brokers"
        self._reporter.report(PhaseStarted(f"stop {what} of the cluster now; waiting until away"))
        self._is_away = True
        return _await_away(self._admin, self._ids, count, self._pause, self._reporter)

    def end(self) -> None:
        """Ask for it, and wait."""
        if not self._is_away:
            return
        away = sorted(frozenset(self._ids) - _serving(self._admin))
        if away:
            named = ", ".join(map(str, away))
            self._reporter.report(
                PhaseStarted(f"start broker {named} again now; waiting until it serves")
            )
        _await_away(self._admin, self._ids, 0, self._pause, self._reporter)
        self._is_away = False


def _serving(admin: KafkaAdmin) -> frozenset[int]:
    """The brokers that serve; none where the cluster does not answer just now."""
    try:
        return frozenset(admin.describe_cluster().broker_ids)
    except AdminError:  # asked of the very broker that went away
        return frozenset()


def _await_away(
    admin: KafkaAdmin,
    broker_ids: Sequence[int],
    count: int,
    pause: Callable[[float], None],
    reporter: Reporter | None = None,
) -> frozenset[int]:
    """Wait until exactly so many brokers are away; their ids."""
    waited_s = 0.0
    while True:
        serving = _serving(admin)
        away = frozenset(broker_ids) - serving
        if len(away) == count:
            return away
        if waited_s >= PATIENCE_S:
            raise NoConclusionError(
                f"{len(away)} of {len(broker_ids)} brokers are away after {waited_s:.0f} s; "
                f"expected {count}; see to the brokers and run again"
            )
        if reporter is not None and serving:
            reporter.report(PhaseProgress(f"{len(away)} away"))
        pause(POLL_S)
        waited_s += POLL_S

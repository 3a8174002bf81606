"""Brokers that leave a shared cluster during a run, as in a planned restart: the run pauses.

A broker that leaves makes partitions under-replicated, whatever the load. So the load ends at once,
and the run goes on when the cluster is whole again. Partitions that become under-replicated while
all brokers stay are harm by the load.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from metrics.units import format_duration

GRACE_S = 10.0
"""Time in which a broker that stops may still be listed, although partitions lack its replica
already [s]."""
LOOK_S = 2.0
"""Interval between two looks while the run pauses [s]."""


class BrokerAbsence:
    """The absence of brokers, with the time that the run may still wait for them.

    Args:
        serving: returns the ids of the brokers that serve.
        pause_max_s: longest time of all pauses together [s].

    Attributes:
        why: why no load may run now, or None.
    """

    def __init__(self, serving: Callable[[], Iterable[int]], pause_max_s: float) -> None:
        self._serving = serving
        self._expected = frozenset(serving())
        self._left_s = pause_max_s
        self._began_s: float | None = None
        self._seen: frozenset[int] = frozenset()
        self.why: str | None = None

    def missing(self) -> frozenset[int]:
        """The brokers that served before the run and do not now.

        Raises:
            AdminError: the cluster does not answer.
        """
        return self._expected - frozenset(self._serving())

    def note(self, missing: frozenset[int], lacking: str | None, now_s: float) -> None:
        """Note a look at the cluster.

        Args:
            lacking: a sentence on partitions of others that became under-replicated, or None.
            now_s: monotonic time [s].
        """
        if not missing and lacking is None:
            if self._began_s is not None:
                self._left_s -= now_s - self._began_s
            self.why, self._began_s, self._seen = None, None, frozenset()
            return
        if self._began_s is None:
            self._began_s = now_s
        self._seen |= missing
        named = " and ".join(f"broker {each}" for each in sorted(missing))
        self.why = f"{named} left the cluster" if missing else lacking

    def stop_reason(self, now_s: float) -> str | None:
        """Why the run has to end in place of waiting, or None."""
        if self.why is None or self._began_s is None:
            return None
        waited_s = now_s - self._began_s
        if not self._seen:
            return self.why if waited_s >= GRACE_S else None
        if waited_s < self._left_s:
            return None
        return f"{self.why}, and the cluster was not whole after {format_duration(waited_s)}"

"""Kills a broker under load, and measures the time until all partitions have live leaders."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from jobs.cluster.admin import AdminError, KafkaAdmin
from jobs.cluster.connect import connect
from jobs.cluster.opening import OpenCluster
from jobs.cluster.topic_set import TopicSet
from jobs.testbed.facade import StartedBrokers
from jobs.trials.running_load import RunningLoad

AFTER_SHARE = 0.2
"""Share of the window after which the broker is killed; the rest of the window shows the effect of
the kill.
"""

POLL_S = 0.05


@dataclass
class UncleanStop:
    """Kills the broker with the highest id once. As in a power failure, the broker does not hand
    over its leaders to other brokers before it ends.

    Attributes:
        cluster: the cluster under load.
        control: starts and kills the brokers of the testbed.
        leaders_back_s: time [s] from the kill until all other brokers knew a live leader for every
            partition; None if a partition had no live leader when the load ended.
    """

    cluster: OpenCluster
    control: StartedBrokers
    leaders_back_s: float | None = None
    _killed_s: float | None = None

    @property
    def victim(self) -> int:
        """The id of the broker that is killed."""
        return self.control.broker_ids[-1]

    @property
    def has_killed(self) -> bool:
        """Whether the load lasted long enough for the kill."""
        return self._killed_s is not None

    @contextmanager
    def watch(self, load: RunningLoad) -> Iterator[None]:
        """Kill the broker in the window of a running load, and wait for new leaders."""
        after_s = AFTER_SHARE * load.pattern.phases.measure_s
        servers = [f"{each.host}:{each.port}" for each in self.cluster.info.brokers]
        with connect(servers, self.cluster.client_kwargs()) as admin:

            def look(now_s: float) -> float | None:
                if self._killed_s is None:
                    if load.begun_s is not None and now_s >= load.begun_s + after_s:
                        self._killed_s = time.monotonic()
                        self.control.kill_broker(self.victim)
                elif self._all_lead(admin, load.load.topics):
                    self.leaders_back_s = time.monotonic() - self._killed_s
                    return None
                return POLL_S

            with load.looked_at("unclean-stop", look, POLL_S):
                yield

    def _all_lead(self, admin: KafkaAdmin, topics: TopicSet) -> bool:
        """Whether each live broker knows a live leader for every partition."""
        others = frozenset(self.control.broker_ids) - {self.victim}
        try:
            for broker in sorted(others):
                known = admin.partitions_seen_by(broker, topics.names)
                for partitions in known.values():
                    if not partitions or not all(p.leader in others for p in partitions.values()):
                        return False
        except AdminError:  # a broker may be too busy to answer at this moment
            return False
        return True

    def undo(self) -> None:
        """Restart the killed broker, and return when the broker is in service; without a kill,
        return at once.
        """
        if self._killed_s is not None:
            self.control.restart_broker(self.victim)

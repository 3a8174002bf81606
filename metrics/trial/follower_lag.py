"""The records of a trial's topics that their followers did not copy in a window.

Kafka's own readings of a follower's lag, `MaxLag` and the `offsetLag` of a log directory, compare
the follower with the high watermark, which waits for the slowest follower of the ISR. So they show
nothing until the follower has left the ISR, after `replica.lag.time.max.ms`. Bytes that brokers
receive and copy include other clients' topics, and differ where a broker compresses again. The end
offset of each replica's own log has none of these faults.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class ReplicaEnds:
    """The end offsets of all replicas of a trial's topics, read from all brokers at once.

    Attributes:
        at_s: time at which the brokers were queried [s since the epoch].
        took_s: time until the last broker answered [s].
        written: broker → sum of the leaders' end offsets over the partitions that the broker
            follows [records].
        copied: broker → sum of its own end offsets of these partitions [records].
    """

    at_s: float
    took_s: float
    written: Mapping[int, int]
    copied: Mapping[int, int]


@dataclass(frozen=True)
class FollowerLag:
    """The growth of all leaders' logs beside that of their followers in a window.

    Attributes:
        wanted_records_per_s: records that followers have to copy, once for each follower [1/s].
        copied_records_per_s: records that they copied [1/s].
        duration_s: time between the first and the last reading in the window [s].
        uncertain_s: time that both readings took, as brokers do not answer at one moment [s].
        broker_id: the broker that lacks most.
        followers: number of brokers that follow.
    """

    wanted_records_per_s: float
    copied_records_per_s: float
    duration_s: float
    uncertain_s: float
    broker_id: int
    followers: int

    @classmethod
    def between(cls, first: ReplicaEnds, last: ReplicaEnds) -> FollowerLag | None:
        """The lag that followers gained between two readings; None without time or load."""
        wanted = {each: last.written[each] - first.written[each] for each in sorted(last.written)}
        copied = {each: last.copied[each] - first.copied[each] for each in wanted}
        lasted_s = last.at_s - first.at_s
        if lasted_s <= 0 or sum(wanted.values()) <= 0:
            return None
        return cls(
            sum(wanted.values()) / lasted_s,
            sum(copied.values()) / lasted_s,
            lasted_s,
            first.took_s + last.took_s,
            max(wanted, key=lambda each: wanted[each] - copied[each]),
            len(wanted),
        )

    @property
    def share(self) -> float:
        """Growth of the lag over the load; below 0 where followers caught up [ratio]."""
        return 1.0 - self.copied_records_per_s / self.wanted_records_per_s

    @property
    def behind_s(self) -> float:
        """Least growth of the lag, as the time in which the load has that size [s]."""
        return max(0.0, self.share * self.duration_s - self.uncertain_s)


def follower_lags(
    readings: Iterable[ReplicaEnds], start_s: float, end_s: float
) -> Sequence[FollowerLag]:
    """The lag that followers gained from the first reading in a window to each further one.

    The last of them is the lag of the window. Empty where the lag is not known.
    """
    inside = [each for each in readings if start_s <= each.at_s <= end_s]
    found = (FollowerLag.between(inside[0], each) for each in inside[1:])
    return [each for each in found if each is not None]

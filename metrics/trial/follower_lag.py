"""What followers did not copy of the records that producers wrote in a window.

Kafka's own reading of a follower's lag, `MaxLag`, compares the follower with the high watermark,
and that waits for the slowest follower of the ISR. So it shows nothing until the follower has left
the ISR, after `replica.lag.time.max.ms`. The bytes that brokers take from producers, and those that
they copy as followers, show it at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from metrics.windows.broker import BrokerWindow


@dataclass(frozen=True)
class FollowerLag:
    """The input of all followers beside that of all leaders in a window.

    Attributes:
        wanted_bytes_per_s: what followers have to copy, the producers' input once for each follower
            [B/s].
        copied_bytes_per_s: what they copied [B/s].
        duration_s: length of the window [s].
        broker_id: the broker that copied least of what the others lead.
    """

    wanted_bytes_per_s: float
    copied_bytes_per_s: float
    duration_s: float
    broker_id: int

    @property
    def share(self) -> float:
        """Growth of the lag over the load; below 0 where followers caught up [ratio]."""
        return 1.0 - self.copied_bytes_per_s / self.wanted_bytes_per_s

    @property
    def behind_s(self) -> float:
        """Growth of the lag in the window, as the time in which the load has that size [s]."""
        return max(0.0, self.share) * self.duration_s


def follower_lag(
    brokers: Sequence[BrokerWindow], followers: float, duration_s: float, others_bytes_per_s: float
) -> FollowerLag | None:
    """The lag that followers gained; None without followers, or where a broker lacks the readings.

    Args:
        brokers: the windows of all brokers.
        followers: number of followers of each byte that producers write.
        duration_s: length of the window [s].
        others_bytes_per_s: what other producers write, which may have no followers [B/s].
    """
    written = [each.bytes_in_per_s for each in brokers]
    copied = {each.broker_id: each.replication_bytes_in_per_s for each in brokers}
    if not followers or not brokers or None in written or None in copied.values():
        return None
    known = {broker: rate for broker, rate in copied.items() if rate is not None}
    wanted = followers * (sum(filter(None, written)) - others_bytes_per_s)
    if wanted <= 0:
        return None
    led = {each.broker_id: each.bytes_in_per_s or 0.0 for each in brokers}

    def lacking(broker: int) -> float:
        """What a broker did not copy, with replicas that are spread evenly [B/s]."""
        to_copy = followers * (sum(led.values()) - led[broker]) / max(1, len(led) - 1)
        return to_copy - known[broker]

    most = max(sorted(known), key=lacking)
    return FollowerLag(wanted, sum(known.values()), duration_s, most)

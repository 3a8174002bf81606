"""Two polls of a broker, for readings outside of a trial."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from metrics.sources.beans import UPTIME_MS
from metrics.sources.one_minute_rates import TICK_S
from metrics.sources.sample import BrokerSample
from metrics.windows.spans import Span


@dataclass(frozen=True)
class Polls:
    """Two polls of one broker, and the difference of their readings."""

    first: BrokerSample
    last: BrokerSample

    @property
    def seconds(self) -> float:
        """Time between the polls [s]."""
        return self.last.at_s - self.first.at_s

    @property
    def is_whole(self) -> bool:
        """Whether both polls succeeded, in order, and the broker did not restart between them."""
        errors = self.first.error or self.last.error
        up_ms = self.first.values.get(UPTIME_MS, 0.0), self.last.values.get(UPTIME_MS, 0.0)
        return errors is None and self.seconds > 0 and up_ms[0] <= up_ms[1]

    def grown(self, reading: str) -> float | None:
        """Growth of a reading."""
        return Span((self.first, self.last)).delta(reading)

    def per_s(self, reading: str) -> float | None:
        """Growth of a reading per second [1/s]; over whole ticks, where it follows from rates."""
        return Span((self.first, self.last)).per_s(reading)

    def counted_s(self, reading: str) -> float:
        """Time that `per_s` is about [s]: that of the whole ticks, where it follows from rates."""
        return Span((self.first, self.last)).ticked_s(reading) or self.seconds

    def beside_share(self, reading: str) -> float:
        """Largest part of that time before the first poll [ratio]; 0 where counts are read.

        The ticks of one-minute rates may begin a tick before it.
        """
        ticked_s = Span((self.first, self.last)).ticked_s(reading)
        return TICK_S / ticked_s if ticked_s else 0.0

    def grown_sum(self, histogram: str) -> float | None:
        """Growth of the sum of a histogram's numbers; None where its mean is not shown."""
        sums = []
        for poll in (self.first, self.last):
            count = poll.values.get(f"{histogram}_count")
            mean = poll.values.get(f"{histogram}_mean")
            if count is None or mean is None:
                return None
            sums.append(count * mean)
        return sums[1] - sums[0]


def polls_of(earlier: Iterable[BrokerSample], later: Iterable[BrokerSample]) -> dict[int, Polls]:
    """Broker id → its two polls, of the brokers that both have."""
    before = {each.broker_id: each for each in earlier}
    return {
        each.broker_id: Polls(before[each.broker_id], each)
        for each in later
        if each.broker_id in before
    }

"""Rules by which a load harms other clients: what they meet now, beside their level without it.

Brokers that leave a shared cluster during a run, as in a planned restart: the run pauses.

A broker that leaves makes partitions under-replicated, whatever the load. So the load ends at once,
and the run goes on when the cluster is whole again. Partitions that become under-replicated while
all brokers stay are harm by the load.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from jobs.cluster.health import GroupLag
from jobs.config.goal import GuardLimits as Limits
from metrics.sources.beans import CONTROLLER_QUEUE_MS
from metrics.sources.sample import BrokerSample
from metrics.trial.canary import CanaryReading
from metrics.trial.others import Level, Rate
from metrics.units import format_duration
from metrics.windows.broker import Span, good_samples

DEVIATIONS = 3.0
"""A rate has changed where it is further from its level than so many standard deviations."""
QUEUE_RISE_MAX = 2.0
"""Largest wait for the controller over that before the run, up to which it is no harm [ratio]."""


@dataclass(frozen=True)
class OthersSeen:
    """What other clients meet while a load runs; None where it is not known.

    Attributes:
        level: their load without ours.
        messages_per_s: messages that they write [1/s].
        errors_per_s: errors that their produce requests get, one for each partition [1/s].
        controller_queue_ms: mean time for which an event waits for the controller [ms].
        canary: the broker whose clients wait longest.
        lags: how far their groups fell behind under the loads of the run.
    """

    level: Level | None = None
    messages_per_s: float | None = None
    errors_per_s: float | None = None
    controller_queue_ms: float | None = None
    canary: CanaryReading | None = None
    lags: Sequence[GroupLag] = ()


def _waits(seen: OthersSeen, most_ms: float, limits: Limits) -> str | None:
    """Clients fail, or wait too long for their acknowledgements."""
    canary = seen.canary
    return canary.words if canary and canary.is_beyond(most_ms, limits.canary_rise_max) else None


def _falls(seen: OthersSeen, most: float, _: Limits) -> str | None:
    """Clients write much less than without the load."""
    level, now = seen.level, seen.messages_per_s
    if level is None or now is None or not level.is_guarded:
        return None
    usual = level.messages
    if usual.mean - now <= max(most * usual.mean, DEVIATIONS * usual.deviation):
        return None
    return (
        f"other clients write {now:,.0f} messages/s under the load, and {usual.mean:,.0f} "
        "without it"
    )


def _errors(seen: OthersSeen, most_per_s: float, _: Limits) -> str | None:
    """Produce requests of clients get more errors than without the load."""
    usual, now = (seen.level.errors if seen.level else None) or Rate(), seen.errors_per_s
    if now is None or now - usual.mean <= max(most_per_s, DEVIATIONS * usual.deviation):
        return None
    return (
        f"produce requests of other clients get {now:,.0f} errors/s under the load, and "
        f"{usual.mean:,.0f} without it"
    )


def _queue(seen: OthersSeen, most_ms: float, _: Limits) -> str | None:
    """Events wait long for the controller."""
    now = seen.controller_queue_ms
    usual = (seen.level.controller_queue_ms if seen.level else None) or 0.0
    if now is None or now <= max(most_ms, QUEUE_RISE_MAX * usual):
        return None
    return (
        f"events wait {now:,.0f} ms for the controller under the load, and {usual:,.0f} ms before "
        "the run"
    )


def _lags(seen: OthersSeen, most_s: float, _: Limits) -> str | None:
    """A consumer group falls behind by more of its topics' growth than some seconds."""
    lag = max(seen.lags, key=lambda each: each.behind_s, default=None)
    if lag is None or lag.behind_s <= most_s:
        return None
    return (
        f"the consumer group {lag.group} of others fell {lag.grown:,} records behind under the "
        f"load, which its topics gain in {lag.behind_s:.0f} s, and its lag does not shrink"
    )


Rule = Callable[[OthersSeen, float, Limits], str | None]
RULES: Mapping[str, Rule] = {
    "canary_p99_ms_max": _waits,
    "others_fall_max": _falls,
    "others_errors_per_s_max": _errors,
    "controller_queue_ms_max": _queue,
    "others_lag_s_max": _lags,
}
"""Key of the limit → its rule; it returns a sentence on the harm, or None."""


def harm(key: str, seen: OthersSeen, limits: Limits) -> str | None:
    """A sentence on the harm by the rule of a key; None without harm, and while it is off."""
    most = getattr(limits, key)
    return None if most is None else RULES[key](seen, most, limits)


def controller_queue_ms(samples: Iterable[BrokerSample]) -> float | None:
    """The mean time for which an event waited for the controller; None where none shows it [ms]."""
    spans = (Span(each) for each in good_samples(samples).values() if len(each) > 1)
    waits_ms = (each.mean(CONTROLLER_QUEUE_MS) for each in spans)
    return max((each for each in waits_ms if each is not None), default=None)


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

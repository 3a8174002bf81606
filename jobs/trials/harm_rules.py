"""Rules that detect whether a load harms other clients. The module also limits the pause of a run
while brokers are absent.

A rule compares the present readings of other clients with their readings without the load.

If a broker leaves a shared cluster, as in a planned restart, the load is not the cause of
under-replicated partitions. The load ends at once, and the run continues when all brokers are in
service again and the partitions are in sync. If partitions become under-replicated while all
brokers are in service, the load caused the harm.
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
"""Smallest difference from the usual level that counts as a change of a rate, in standard
deviations.
"""
QUEUE_RISE_MAX = 2.0
"""Largest accepted wait for the controller, as a multiple of the wait before the run [ratio]."""


@dataclass(frozen=True)
class OthersSeen:
    """The readings of other clients while a load runs; unknown readings are None.

    Attributes:
        level: the usual load of other clients, without the run's load.
        messages_per_s: messages that other clients write [1/s].
        errors_per_s: errors [1/s] in the answers to produce requests of other clients; an answer
            can have one error for each partition.
        controller_queue_ms: mean time for which an event waits for the controller [ms].
        canary: the canary's reading at the broker whose clients wait longest.
        lags: for each consumer group of other clients, how much its lag grew under the loads of the
            run.
    """

    level: Level | None = None
    messages_per_s: float | None = None
    errors_per_s: float | None = None
    controller_queue_ms: float | None = None
    canary: CanaryReading | None = None
    lags: Sequence[GroupLag] = ()


def _waits(seen: OthersSeen, most_ms: float, limits: Limits) -> str | None:
    canary = seen.canary
    return canary.words if canary and canary.is_beyond(most_ms, limits.canary_rise_max) else None


def _falls(seen: OthersSeen, most: float, _: Limits) -> str | None:
    level, now = seen.level, seen.messages_per_s
    if level is None or now is None or not level.is_guarded:
        return None
    usual = level.messages
    if usual.mean - now <= max(most * usual.mean, DEVIATIONS * usual.deviation):
        return None
    return (
        f"other clients write {now:,.0f} messages/s under the load, compared with "
        f"{usual.mean:,.0f} without it"
    )


def _errors(seen: OthersSeen, most_per_s: float, _: Limits) -> str | None:
    usual, now = (seen.level.errors if seen.level else None) or Rate(), seen.errors_per_s
    if now is None or now - usual.mean <= max(most_per_s, DEVIATIONS * usual.deviation):
        return None
    return (
        f"produce requests of other clients get {now:,.0f} errors/s under the load, compared with "
        f"{usual.mean:,.0f} without it"
    )


def _queue(seen: OthersSeen, most_ms: float, _: Limits) -> str | None:
    now = seen.controller_queue_ms
    usual = (seen.level.controller_queue_ms if seen.level else None) or 0.0
    if now is None or now <= max(most_ms, QUEUE_RISE_MAX * usual):
        return None
    return (
        f"events wait {now:,.0f} ms for the controller under the load, compared with "
        f"{usual:,.0f} ms before the run"
    )


def _lags(seen: OthersSeen, most_s: float, _: Limits) -> str | None:
    lag = max(seen.lags, key=lambda each: each.behind_s, default=None)
    if lag is None or lag.behind_s <= most_s:
        return None
    return (
        f"the lag of the consumer group {lag.group} of other clients grew by {lag.grown:,} records "
        f"under the load, as many as its topics gain in {lag.behind_s:.0f} s, and is not shrinking"
    )


RULES: Mapping[str, Callable[[OthersSeen, float, Limits], str | None]] = {
    "canary_p99_ms_max": _waits,
    "others_fall_max": _falls,
    "others_errors_per_s_max": _errors,
    "controller_queue_ms_max": _queue,
    "others_lag_s_max": _lags,
}
"""Key of the limit → its rule; a rule returns a sentence about the harm, or None."""


def harm(key: str, seen: OthersSeen, limits: Limits) -> str | None:
    """A sentence about the harm that a limit's rule detects; None without harm, or if the limit is
    off.
    """
    most = getattr(limits, key)
    return None if most is None else RULES[key](seen, most, limits)


def controller_queue_ms(samples: Iterable[BrokerSample]) -> float | None:
    """The mean time for which an event waited for the controller [ms]; None if no controller shows
    it.
    """
    spans = (Span(each) for each in good_samples(samples).values() if len(each) > 1)
    waits_ms = (each.mean(CONTROLLER_QUEUE_MS) for each in spans)
    return max((each for each in waits_ms if each is not None), default=None)


GRACE_S = 10.0
"""Time for which a stopping broker may still be listed although its replicas are missing already
[s].
"""
LOOK_S = 2.0
"""Interval between two checks of the cluster while the run pauses [s]."""


class BrokerAbsence:
    """The absence of brokers, and the time for which the run may still wait for them.

    Args:
        serving: returns the ids of the brokers that are in service.
        pause_max_s: longest total time of all pauses [s].

    Attributes:
        why: the reason why no load may run now; None if a load may run.
    """

    def __init__(self, serving: Callable[[], Iterable[int]], pause_max_s: float) -> None:
        self._serving = serving
        self._expected = frozenset(serving())
        self._left_s = pause_max_s
        self._began_s: float | None = None
        self._seen: frozenset[int] = frozenset()
        self.why: str | None = None

    def missing(self) -> frozenset[int]:
        """The brokers that were in service before the run and are not in service now.

        Raises:
            AdminError: the cluster does not answer.
        """
        return self._expected - frozenset(self._serving())

    def note(self, missing: frozenset[int], lacking: str | None, now_s: float) -> None:
        """Register the result of a check of the cluster.

        Args:
            missing: ids of the brokers that left the cluster.
            lacking: a sentence about other clients' partitions that became under-replicated; None
                without such partitions.
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
        """The reason why the run has to end instead of waiting for brokers; None if it may wait."""
        if self.why is None or self._began_s is None:
            return None
        waited_s = now_s - self._began_s
        if not self._seen:
            return self.why if waited_s >= GRACE_S else None
        if waited_s < self._left_s:
            return None
        waited = format_duration(waited_s)
        return f"{self.why}, and the cluster was not complete again after {waited}"

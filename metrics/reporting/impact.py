"""The effect of a run on other clients of the cluster, computed from the run's trials."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from metrics.trial.canary import CanaryWindow
from metrics.trial.trial import Trial
from metrics.units import format_count, format_mb_per_s, format_volume
from search.model import Verdict


@dataclass(frozen=True)
class Impact:
    """The effect of a run on other clients. A value is None if it is not known.

    Attributes:
        p99_before_ms: 99th percentile of the canaries' acknowledgement latency at the slowest
            broker, before the run [ms].
        p99_sustained_ms, p99_overloaded_ms: highest 99th percentile of the canaries'
            acknowledgement latency [ms]. `p99_sustained_ms` is about the sustained trials, and
            `p99_overloaded_ms` is about the overloaded trials.
        p99_after_ms: highest 99th percentile of the canaries' acknowledgement latency in the last
            seconds of the run, after the last load [ms].
        canary_records: number of records that the canaries sent in all windows.
        canary_failures: number of the canaries' records that the brokers refused or lost.
        heaviest_mb_per_s: highest payload rate of a load [MB/s].
        longest_overload_s: duration of the longest overload [s].
        written_bytes: payload that all trials wrote, summed over replicas, without warm-ups [B].
        partitions: largest number of partitions to which any load was sent.
        connections: largest number of connections that any load had open.
        guards: the reasons for which guards ended loads, one clause for each reason.
    """

    p99_before_ms: float | None = None
    p99_sustained_ms: float | None = None
    p99_overloaded_ms: float | None = None
    canary_records: int = 0
    canary_failures: int = 0
    heaviest_mb_per_s: float | None = None
    longest_overload_s: float | None = None
    written_bytes: float = 0.0
    partitions: int = 0
    connections: int | None = None
    guards: tuple[str, ...] = ()
    p99_after_ms: float | None = None

    @property
    def waits(self) -> tuple[str, ...]:
        """Sentences about the waiting times and failures of other clients; empty if the run had no
        canaries.
        """
        parts = [
            f"up to {found:,.0f} ms {words}"
            for found, words in (
                (self.p99_before_ms, "before the run"),
                (self.p99_sustained_ms, "in sustained trials"),
                (self.p99_overloaded_ms, "in overloaded trials"),
                (self.p99_after_ms, "after the last load"),
            )
            if found is not None
        ]
        fails = (
            f"{format_count(self.canary_failures)} of {format_count(self.canary_records)} records "
            "of the canaries failed during the loads"
        )
        waits = f"other clients waited (p99 of the canaries) {', '.join(parts)}"
        seen = self.p99_sustained_ms is not None or self.p99_overloaded_ms is not None
        return (*([waits] if seen else []), *([fails] if self.canary_failures else []))

    @property
    def load(self) -> tuple[str, ...]:
        """A sentence about the heaviest load and the longest overload; empty if no load was
        measured.
        """
        if self.heaviest_mb_per_s is None:
            return ()
        over_s = self.longest_overload_s
        longest = "" if over_s is None else f", the longest overload lasted {over_s:.0f} s"
        return (f"the heaviest load was {format_mb_per_s(self.heaviest_mb_per_s)} MB/s{longest}",)

    @property
    def sentences(self) -> tuple[str, ...]:
        """All effects, one sentence for each effect; empty if there were no other clients."""
        if not self.canary_records:
            return ()
        opened = (
            f", and had up to {format_count(self.connections)} connections open"
            if self.connections
            else ""
        )
        stops = [f"a load was {each}" for each in self.guards]
        volume = format_volume(self.written_bytes)
        wrote = (
            f"the trials wrote {volume} of payload in all replicas to topics of the run with up to "
            f"{format_count(self.partitions)} partitions{opened}"
        )
        return (*self.waits, *self.load, wrote, *(stops or ["no guard ended a load"]))


def impact_of(trials: Sequence[Trial], after: Sequence[CanaryWindow] = ()) -> Impact:
    """Compute the effect of trials on other clients of the cluster.

    Args:
        trials: all trials of a run.
        after: windows of the canaries at each broker after the last load.
    """
    beside = [each for each in trials if each.evidence.canaries]
    windows = [*after, *(each for trial in beside for each in trial.evidence.canaries)]
    # A trial that a guard ended has no readings of canaries, but its load counts.
    rated = [each for each in trials if windows and not each.evidence.closed_loop]

    def p99_ms(verdict: Verdict) -> float | None:
        of_verdict = (each for each in beside if each.judgement.verdict is verdict)
        seen = (each for trial in of_verdict for each in trial.evidence.canaries if each.records)
        return _most(each.p99_ms for each in seen)

    return Impact(
        p99_before_ms=_most(each.at_rest_p99_ms for each in windows),
        p99_sustained_ms=p99_ms(Verdict.SUSTAINED),
        p99_overloaded_ms=p99_ms(Verdict.OVERLOADED),
        canary_records=sum(each.records for each in windows),
        canary_failures=sum(each.failed for each in windows),
        heaviest_mb_per_s=_most(each.pattern.peak_mb_per_s for each in rated),
        longest_overload_s=_most(
            each.evidence.load_s
            for each in rated
            if each.judgement.verdict is Verdict.OVERLOADED and each.evidence.load_s is not None
        ),
        written_bytes=sum(map(_written_bytes, trials)),
        partitions=max((each.pattern.partitions for each in trials), default=0),
        connections=max(map(_connections, trials), default=0) or None,
        guards=tuple(
            each.text
            for trial in trials
            for each in trial.judgement.reasons
            if each.indicator == "guard"
        ),
        p99_after_ms=_most(each.p99_ms for each in after if each.records),
    )


def _written_bytes(trial: Trial) -> float:
    counts = trial.evidence.client.counts
    return trial.pattern.written_bytes(counts.acked_total + counts.failed_total)


def _connections(trial: Trial) -> int:
    client = trial.evidence.client
    ends = (*client.producer_sockets.values(), *client.consumer_sockets.values())
    return sum(each.connections for each in ends)


def _most(values: Iterable[float]) -> float | None:
    return max((each for each in values if math.isfinite(each)), default=None)

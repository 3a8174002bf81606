"""Trials of fixed loads as summary.json and tables for people have them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from metrics.units import iso_utc
from metrics.windows.broker import BrokerWindow
from search.model import Verdict

if TYPE_CHECKING:
    from metrics.tables.schema import Trial  # which has the summary's words, as this has


@dataclass(frozen=True)
class HeldTrial:
    """One trial of a fixed load, as far as a reader of the answer needs it; None is not known.

    Attributes:
        trial: its number within the run, from 1.
        started_at: ISO 8601, UTC.
        bpm: bytes per message [B].
        np: producers.
        axis, load: what was held, and at what.
        duration_s: the measured window [s].
        offered_mb_per_s, achieved_mb_per_s: payload, whole cluster [MB/s].
        verdict: `SUSTAINED`, `OVERLOADED` or `INVALID`.
        reasons: why, `indicator: sentence`.
        limited_by: the resource that bound the brokers, of an overload.
        evidence: what `limited_by` rests on.
        handler_idle_min: lowest idle fraction of any broker's request handlers [ratio].
        handler_s_per_mb: see `handler_s_per_mb` [s/MB].
        latency_p50_ms, latency_p99_ms, latency_p999_ms, latency_max_ms: from the intended
            send time to the acknowledgement [ms].
    """

    trial: int
    started_at: str
    bpm: int
    np: int
    axis: str
    load: int
    duration_s: float
    offered_mb_per_s: float | None
    achieved_mb_per_s: float | None
    verdict: str
    reasons: tuple[str, ...] = ()
    limited_by: str | None = None
    evidence: str = ""
    handler_idle_min: float | None = None
    handler_s_per_mb: float | None = None
    latency_p50_ms: float | None = None
    latency_p99_ms: float | None = None
    latency_p999_ms: float | None = None
    latency_max_ms: float | None = None

    @property
    def is_valid(self) -> bool:
        """True when the trial is an answer."""
        return self.verdict != Verdict.INVALID.value

    @property
    def achieved_share(self) -> float | None:
        """Achieved over offered [ratio]."""
        if not self.offered_mb_per_s or self.achieved_mb_per_s is None:
            return None
        return self.achieved_mb_per_s / self.offered_mb_per_s


def held_trial(trial: Trial) -> HeldTrial:
    """What a trial says, for its reader."""
    client, judgement, pattern = trial.client, trial.judgement, trial.pattern
    window_s = client.duration_s
    offered = client.offered_bytes / window_s / 1e6 if client.offered_records else None
    achieved = client.acked_bytes / window_s / 1e6 if client.offered_records else None
    idle = [each.handler_idle for each in trial.brokers if each.handler_idle is not None]
    return HeldTrial(
        trial=trial.trial,
        started_at=iso_utc(trial.started_at_s),
        bpm=pattern.bpm,
        np=pattern.np,
        axis=pattern.axis,
        load=pattern.load or pattern.np,
        duration_s=window_s,
        offered_mb_per_s=offered,
        achieved_mb_per_s=achieved,
        verdict=judgement.verdict.value,
        reasons=tuple(f"{each.indicator}: {each.text}" for each in judgement.reasons),
        limited_by=None if judgement.limited_by is None else judgement.limited_by.value,
        evidence=judgement.attribution,
        handler_idle_min=min(idle, default=None),
        handler_s_per_mb=handler_s_per_mb(trial.brokers, achieved),
        latency_p50_ms=_finite(client.latency_p50_ms),
        latency_p99_ms=_finite(client.latency_p99_ms),
        latency_p999_ms=_finite(client.latency_p999_ms),
        latency_max_ms=_finite(client.latency_max_ms),
    )


def handler_s_per_mb(
    brokers: Sequence[BrokerWindow], achieved_mb_per_s: float | None
) -> float | None:
    """For how long a broker's handlers, all of them, are busy with each MB of its payload [s/MB].

    The busy share of the handlers over the payload that each broker took, [MB/s]. Its inverse
    is the payload that would fill them if the cost of a MB did not change with the load.
    """
    idle = [each.handler_idle for each in brokers if each.handler_idle is not None]
    if not idle or len(idle) < len(brokers) or not achieved_mb_per_s:
        return None
    busy = fmean(max(0.0, 1.0 - each) for each in idle)
    return busy / (achieved_mb_per_s / len(brokers)) if busy > 0.0 else None


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None

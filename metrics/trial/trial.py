"""One trial as one record; rows, events, summaries and pages are projections of it.

The state of the cluster in which trials are made, in words.

The duration of a fixed volume.

The reading of the warm-up of cold brokers, which determines only where the search begins.

The readings of a run's trials over time, from the samples of their brokers and hosts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated

from metrics.columns import Column, Flat, Moment, column
from metrics.sources.hosts.source import HostSample
from metrics.sources.sample import BrokerSample
from metrics.traffic.pattern import TrafficPattern
from metrics.trial.client import ClientWindow
from metrics.trial.evidence import Evidence, Judgement, Reason
from metrics.windows.series import SeriesPoint, host_series_points, series_points
from metrics.windows.use import Resource
from search.model import Observation, Verdict
from search.signals import AT_REST, HANDLER_IDLE

ALL_BROKERS = "all brokers"
CATCHING_UP = "catching up"


def offline_state(count: int) -> str:
    """The state with a number of brokers offline: `1 broker offline`."""
    return f"{count} broker{'' if count == 1 else 's'} offline"


def place_of(state: str) -> int:
    """The position of a state in an answer: all brokers first, catching up last."""
    return {ALL_BROKERS: 0, CATCHING_UP: 2}.get(state, 1)


def moved_s(pattern: TrafficPattern, client: ClientWindow) -> float | None:
    """The time at which the last record of a fixed volume was acknowledged, or was read where no
    record was offered [s].

    It counts from the start of the load. It is None without a fixed volume, and where a part of
    the volume was not moved by the end of the drain.
    """
    each = pattern.records_each
    if each is None:
        return None
    if each:
        is_whole = client.counts.acked_total == each * pattern.producers
        return client.counts.last_acked_s if is_whole else None
    ends = [group.counts.last_read_s for group in client.groups]
    is_whole = not any(group.counts.unread_records for group in client.groups)
    known = [end for end in ends if end is not None]
    return max(known) if is_whole and known and len(known) == len(ends) else None


@dataclass(frozen=True)
class WarmUp:
    """The last load of a warm-up; all values are None where brokers were warm.

    Attributes:
        load: the offered load on the searched axis.
        handler_idle: lowest idle fraction of the request handlers of any broker [ratio].
        is_short: whether the brokers took less than they were offered, so that the limit is lower
            whatever their handlers show; None in rows of older versions.
        idle_at_rest: lowest idle fraction of the request handlers of any broker before the run,
            which others may load [ratio]; None in rows of older versions.
        generator_load: highest load that the generator can offer, by the busy share of its busiest
            task; None where that is too small to tell, and in rows of older versions [load].
    """

    load: int | None = None
    handler_idle: float | None = None
    is_short: bool | None = None
    idle_at_rest: float | None = None
    generator_load: int | None = None

    def hint(self, idle_min: float) -> Observation | None:
        """The reading as an observation for the search; None without a reading.

        Args:
            idle_min: the idle threshold of the goal [ratio].
        """
        if self.load is None or (self.handler_idle is None and not self.is_short):
            return None
        used = 1.0 if self.is_short else 1.0 - (self.handler_idle or 0.0)
        used /= 1.0 - idle_min
        verdict = Verdict.OVERLOADED if used > 1.0 else Verdict.SUSTAINED
        readings = {HANDLER_IDLE: used}
        if self.idle_at_rest is not None:
            readings[AT_REST] = (1.0 - self.idle_at_rest) / (1.0 - idle_min)
        return Observation(self.load, verdict, readings)


_CPU_FULL = 0.9
"""Busy share of a generator's host from which its cores are named as the generator's limit."""


@dataclass(frozen=True)
class Trial:
    """One trial: the offered pattern, the evidence of clients and brokers, and the judgements.

    Attributes:
        run_id: the run that the trial belongs to.
        number: its number within the run, from 1.
        started_at_s, finished_at_s: start and end of all phases.
        topic: the topic of the records; the first of several.
        pattern: the offered traffic pattern.
        evidence: the measurements of clients and brokers.
        judgements: goal → its judgement, for all goals of the run.
        held: True for a window of a limit that is held (`search.confirm_s`).
        steady: True for a trial that holds a limit to prove it on disk (`search.steady_s`).
        checks: True for a trial that looks for a change of the limit while it was measured
            (`search.check_for_change`).
        state: state of the cluster: `all brokers`, `1 broker offline` or `catching up`.
        warm_up: the reading of the run's warm-up before its first trial.
        leaders_back_s: time from the kill of a broker in the window until all other brokers knew a
            live leader of every partition [s]; None without a kill, or if it was not observed.
        recovery_s: time from the end of an overload until the brokers were at rest [s]; None
            without an overload, or if they did not come to rest.
    """

    run_id: str
    number: Annotated[int, Column("trial")]
    started_at_s: Annotated[float, Moment(), Column("started_at")]
    finished_at_s: Annotated[float, Moment(), Column("finished_at")]
    topic: str
    pattern: Annotated[TrafficPattern, Flat()]
    evidence: Annotated[Evidence, Flat()]
    judgements: Annotated[Mapping[str, Judgement], Column("verdicts")]
    recovery_s: float | None = None
    leaders_back_s: float | None = None
    held: bool = False
    state: str = ALL_BROKERS
    warm_up: Annotated[WarmUp, Flat("warm_up_", adds_meaning=True)] = field(default_factory=WarmUp)
    steady: bool = False
    checks: bool = False

    @property
    def judgement(self) -> Judgement:
        """The judgement of the first goal, which orders the search."""
        return next(iter(self.judgements.values()))

    @column
    def verdict(self) -> Verdict:
        """The verdict of the first goal: `SUSTAINED`, `OVERLOADED` or `INVALID`."""
        return self.judgement.verdict

    @column
    def reasons(self) -> tuple[Reason, ...]:
        """The reasons of the verdict, the most important first."""
        return self.judgement.reasons

    @column
    def limited_by(self) -> Resource | None:
        """The limiting resource of an overload or a closed loop."""
        return self.judgement.limited_by

    @column
    def attribution(self) -> str:
        """The evidence for the limiting resource in a sentence."""
        return self.judgement.attribution

    @column
    def utilization(self) -> Mapping[str, float]:
        """Indicator → its nearness to the threshold; 1 at it, above 1 beyond."""
        return self.judgement.utilization

    @property
    def is_valid(self) -> bool:
        """True when the trial is not INVALID."""
        return self.verdict is not Verdict.INVALID

    @property
    def load(self) -> int:
        """The load of the trial on the searched axis."""
        return self.pattern.on_axis

    @property
    def point_message_bytes(self) -> int:
        """Message size of the boundary point that the trial belongs to [B]."""
        return self.pattern.point_message_bytes or self.pattern.message_bytes

    @property
    def duration_s(self) -> float:
        """Duration of all phases [s]."""
        return self.finished_at_s - self.started_at_s

    def observation(self, goal: str) -> Observation:
        """The trial as an observation for the search of a goal."""
        judged = self.judgements[goal]
        by_generator, readings = judged.is_by_generator, dict(judged.utilization)
        at_rest = self._handlers_at_rest(readings.get(HANDLER_IDLE))
        if at_rest > 0.0:
            readings[AT_REST] = at_rest
        return Observation(
            self.load,
            judged.verdict,
            readings,
            self.duration_s,
            self.held,
            _cause(judged, self.evidence),
            self.evidence.client.achieved_share if by_generator else None,
            self.checks,
        )

    def _handlers_at_rest(self, used: float | None) -> float:
        """Utilization of the handlers by others alone; 0 where it is not known.

        It is that of the last time that their load was measured; in rows of older versions, that
        before the run.

        Args:
            used: their utilization in the trial, 1 at the threshold [ratio].
        """
        idle, others = self.evidence.handler_idle_min, self.evidence.others
        at_rest = others.at_rest_handler_idle if others else None
        at_rest = self.warm_up.idle_at_rest if at_rest is None else at_rest
        if used is None or idle is None or idle >= 1.0 or at_rest is None:
            return 0.0
        return used * (1.0 - at_rest) / (1.0 - idle)


def _cause(judged: Judgement, evidence: Evidence) -> str:
    """What made a trial INVALID, such as `the generator was the limit: 2 cores of 2 busy`."""
    if judged.verdict is not Verdict.INVALID or not judged.reasons:
        return ""
    first = judged.reasons[0].text.partition("; ")[0]
    hosts = [
        (each.cpu_busy, each.cores)
        for each in evidence.hosts
        if each.generates and each.cpu_busy is not None and each.cores
    ]
    busy, cores = max(hosts, default=(0.0, 0.0))
    if not judged.is_by_generator or busy < _CPU_FULL:
        return first
    used = f"{busy * cores:.1f}".removesuffix(".0")
    return f"the generator was the limit: {used} cores of {cores:g} busy"


POINTS_MAX = 60_000
"""Readings that a run keeps at most. A run with more has its drawings in the notebook `trial`
alone, which reads the samples from the tables."""


@dataclass
class RunSeries:
    """The readings of a run's trials over time, up to `POINTS_MAX`.

    Attributes:
        points: trial number → what its brokers showed, in the order of the drawings.
    """

    points: dict[int, list[SeriesPoint]] = field(default_factory=dict)
    _count: int = 0

    def add(
        self, trial: Trial, samples: Iterable[BrokerSample], hosts: Iterable[HostSample] = ()
    ) -> None:
        """Add what the brokers and their hosts showed in a trial; without effect once there are too
        many.
        """
        if not self.is_complete:
            return
        brokers = {each.broker_id for each in trial.evidence.brokers}
        client = trial.evidence.client
        own_hosts = {each.host for each in trial.evidence.hosts if each.brokers}
        points = [
            *series_points(samples, brokers, client.start_s),
            *host_series_points(hosts, own_hosts, client.start_s),
        ]
        self.points[trial.number] = points
        self._count += len(points) + len(client.latency_over_time)

    @property
    def is_complete(self) -> bool:
        """Whether the readings of all trials are here; false once there were too many."""
        return self._count <= POINTS_MAX

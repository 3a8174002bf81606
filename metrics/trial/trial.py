"""One trial as one record (`Trial`), from which table rows, events, summaries and pages are made.

`offline_state` names the state of a cluster with offline brokers. `moved_s` returns the time in
which a fixed volume was written or read. `WarmUp` describes the last load of the warm-up of cold
brokers. `RunSeries` contains the time series of all trials of a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated

from metrics.columns import Column, Flat, Moment, column
from metrics.sources.hosts.host_sample import HostSample
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
    """The name of the state with this number of offline brokers, such as `1 broker offline`."""
    return f"{count} broker{'' if count == 1 else 's'} offline"


def place_of(state: str) -> int:
    """The position of a cluster state in an answer; `all brokers` is the first."""
    return {ALL_BROKERS: 0, CATCHING_UP: 2}.get(state, 1)


def moved_s(pattern: TrafficPattern, client: ClientWindow) -> float | None:
    """The time from the start of the load until the whole fixed volume was written or read [s].

    If the trial writes the volume, the time ends when the brokers acknowledge the last record. If
    the trial only reads the volume, the time ends when all consumer groups have read the last
    record. The result is None if the pattern has no fixed volume. The result is also None if, at
    the end of the trial, some records of the volume were not acknowledged or not read.
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
    """The last load of a warm-up; all values are None if the brokers were warm already.

    Attributes:
        load: the offered load on the searched axis.
        handler_idle: lowest idle fraction of the request handlers of any broker [ratio].
        is_short: whether the brokers acknowledged less than the offered load, so that the limit is
            lower than this load; None in rows of older versions.
        idle_at_rest: lowest idle fraction of any broker's request handlers before the run [ratio],
            when only other clients used the brokers; None in rows of older versions.
        generator_load: highest load that the generator can offer [load]; None in rows of older
            versions. This load is computed from the busy share of the generator's busiest task. The
            highest load is also None if this busy share is too small.
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
"""Minimum busy share of a generator's host at which a message names the host's cores as the limit
[ratio].
"""


@dataclass(frozen=True)
class Trial:
    """One trial: the offered pattern, the evidence of clients and brokers, and the judgements.

    Attributes:
        run_id: the id of the trial's run.
        number: number of the trial within the run, from 1.
        started_at_s: start of the trial's first phase.
        finished_at_s: end of the trial's last phase.
        topic: the topic of the records; with several topics, the first topic.
        pattern: the offered traffic pattern.
        evidence: the measurements of clients and brokers.
        judgements: goal → the judgement by this goal, for all goals of the run.
        held: True for a window of a held load, which confirms a limit (`search.confirm_s`).
        steady: True for a long trial that proves a limit on disk (`search.steady_s`).
        checks: True for a trial that checks whether the limit changed during the search
            (`search.check_for_change`).
        state: state of the cluster: `all brokers`, `1 broker offline` or `catching up`.
        warm_up: the reading of the run's warm-up before its first trial.
        leaders_back_s: time [s] from the kill of a broker until all other brokers knew a live
            leader of every partition; None if no broker was killed in the window, or if some
            partition had no live leader until the end of the load.
        recovery_s: time [s] from the end of an overload until the brokers were at rest; None
            without an overload, or if the brokers were not at rest before the deadline.
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
        """The judgement by the first goal, which determines the order of the search."""
        return next(iter(self.judgements.values()))

    @column
    def verdict(self) -> Verdict:
        """The verdict by the first goal: `SUSTAINED`, `OVERLOADED` or `INVALID`."""
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
        """The evidence for the limiting resource, as one sentence."""
        return self.judgement.attribution

    @column
    def utilization(self) -> Mapping[str, float]:
        """Indicator → measured value relative to the threshold: 1 at the threshold, above 1 beyond
        it.
        """
        return self.judgement.utilization

    @property
    def is_valid(self) -> bool:
        """True if the trial is not INVALID."""
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
        """Convert the trial to an observation for the search of one goal's limit."""
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
        """Utilization of the request handlers by other clients alone; 0 if it is unknown.

        The utilization comes from the last measurement of other clients' load; rows of older
        versions contain only the measurement before the run.

        Args:
            used: utilization [ratio] of the request handlers in the trial; 1 is the threshold.
        """
        idle, others = self.evidence.handler_idle_min, self.evidence.others
        at_rest = others.at_rest_handler_idle if others else None
        at_rest = self.warm_up.idle_at_rest if at_rest is None else at_rest
        if used is None or idle is None or idle >= 1.0 or at_rest is None:
            return 0.0
        return used * (1.0 - at_rest) / (1.0 - idle)


def _cause(judged: Judgement, evidence: Evidence) -> str:
    """The reason of an INVALID trial, such as `the generator was the limit: 2 cores of 2 busy`."""
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
"""Largest number of readings that a run keeps for its report. If a run has more readings than this
number, the report has no charts over time. The notebook `trial` draws these charts from the tables.
"""


@dataclass
class RunSeries:
    """The readings of a run's trials over time; a run keeps at most about `POINTS_MAX` readings.

    Attributes:
        points: trial number → the readings of its brokers and hosts, in the order of the charts.
    """

    points: dict[int, list[SeriesPoint]] = field(default_factory=dict)
    _count: int = 0

    def add(
        self, trial: Trial, samples: Iterable[BrokerSample], hosts: Iterable[HostSample] = ()
    ) -> None:
        """Add the readings of the brokers and their hosts in a trial, unless the run has too many
        readings.
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
        """True if the readings of all trials are kept; False if the run had too many readings."""
        return self._count <= POINTS_MAX

"""One trial as one record; rows, events, summaries and pages are projections of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from metrics.columns import Column, Flat, Moment, column
from metrics.traffic.pattern import TrafficPattern
from metrics.trial.evidence import Evidence
from metrics.trial.judgement import Judgement, Reason
from metrics.trial.state import ALL_BROKERS
from metrics.trial.warm_up import WarmUp
from metrics.windows.resource import Resource
from search.model import Observation, Verdict


@dataclass(frozen=True)
class Trial:
    """One trial: what was offered, what the generator and the brokers did, what it means.

    Attributes:
        run_id: the run that it belongs to.
        number: its number within the run, from 1.
        started_at_s, finished_at_s: all phases.
        topic: that was written to; the first of several.
        pattern: what was offered.
        evidence: what clients and brokers did.
        judgements: goal → its judgement, of all goals that the run judges by.
        held: it is a window of a limit that was held (`search.confirm_s`).
        state: of the cluster: `all brokers`, `1 broker offline` or `catching up`.
        warm_up: what the run's warm-up read before its first trial.
        leaders_back_s: from the kill of a broker in the window until all others knew a leader that
            lives of every partition [s]; None where none was killed, or that was not seen.
        recovery_s: from the end of an overload until the brokers were at rest [s]; None when
            it was no overload, or when they did not come to rest.
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
    warm_up: Annotated[WarmUp, Flat("warm_up_", is_told=True)] = field(default_factory=WarmUp)

    @property
    def judgement(self) -> Judgement:
        """Of the first goal, which orders the search."""
        return next(iter(self.judgements.values()))

    @property
    @column
    def verdict(self) -> Verdict:
        """`SUSTAINED`, `OVERLOADED` or `INVALID`."""
        return self.judgement.verdict

    @property
    @column
    def reasons(self) -> tuple[Reason, ...]:
        """Why, the most telling first."""
        return self.judgement.reasons

    @property
    @column
    def limited_by(self) -> Resource | None:
        """The resource that bound the brokers, of an overload or a closed loop."""
        return self.judgement.limited_by

    @property
    @column
    def attribution(self) -> str:
        """The evidence for it in a sentence."""
        return self.judgement.attribution

    @property
    @column
    def utilization(self) -> Mapping[str, float]:
        """Indicator → how near it was to its threshold; 1 at it, above 1 beyond."""
        return self.judgement.utilization

    @property
    def is_valid(self) -> bool:
        """True when the trial is an answer."""
        return self.verdict is not Verdict.INVALID

    @property
    def load(self) -> int:
        """Where on the searched axis it lies."""
        return self.pattern.on_axis

    @property
    def point_message_bytes(self) -> int:
        """Message size of the boundary point that it was offered for [B]."""
        return self.pattern.point_message_bytes or self.pattern.message_bytes

    @property
    def duration_s(self) -> float:
        """All phases [s]."""
        return self.finished_at_s - self.started_at_s

    def observation(self, goal: str) -> Observation:
        """The trial as the search of a goal sees it."""
        judged = self.judgements[goal]
        return Observation(
            self.load, judged.verdict, dict(judged.utilization), self.duration_s, self.held
        )

"""The row of the table `cases`: a night's measurement of a case, and its judgment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated

from metrics.columns import Column, Moment


class Outcome(str, Enum):
    """The outcome of a case of a night."""

    REGRESSION = "regression"
    IMPROVEMENT = "improvement"
    NO_CHANGE = "no change"
    NO_HISTORY = "no history"
    INVALID = "invalid"
    NOT_MEASURED = "not measured"

    @property
    def stands_out(self) -> bool:
        """True if the night differs from the earlier nights."""
        return self in (Outcome.REGRESSION, Outcome.IMPROVEMENT)


@dataclass(frozen=True)
class CaseRow:
    """A case of a night: one row for its measurement, and one for its judgment.

    Attributes:
        run_id: id of the run.
        event: `measured` or `judged`; a judged row repeats the measurement.
        at_s: time of the measurement.
        suite: name of the suite.
        night: name of the night.
        case: name of the case.
        cluster, workload, goal: name of the configuration file.
        kind: `limit` or `load`.
        message_bytes: bytes per message [B].
        producers: number of producers at the limit or at the fixed load; of a mix, of all parts.
        trials: numbers of its trials within the run.
        measure: name of the column that is compared, or `achieved_share`.
        value: the compared figure, the median of `values` [unit of `measure`].
        values: the figure of each valid trial; one figure for a limit [unit of `measure`].
        mb_per_s_per_broker: the limit, or the achieved rate at the fixed load [MB/s].
        handler_s_per_mb: time for which all request handlers of a broker together are busy per MB
            of its payload, at a fixed load [s/MB].
        latency_p99_ms: latency from the intended send time to the acknowledgement, at a fixed
            load [ms].
        achieved_share: achieved rate divided by the offered rate, at a fixed load [ratio].
        verdicts: verdicts of the trials at a fixed load, in chronological order.
        limited_by: the limiting resource, or null.
        evidence: evidence of `limited_by`.
        environment: facts that a comparison of runs needs, as in the table `runs`.
        settings: keys of workload and goal, the load, and the source of metrics; nights with
            different settings are not compared.
        outcome: outcome of the comparison in a judged row: `regression`, `improvement`,
            `no change` or `no history`.
        change: change against the earlier nights; -0.1 is worse by 10 % [ratio].
        change_low: lower end of the change's prediction interval [ratio].
        change_high: upper end of the change's prediction interval [ratio].
        p_value: p-value of no change, before the correction for several cases [ratio].
        smallest_visible: smallest loss that is detected with a probability of 80 % [ratio].
        nights: the nights of the comparison, newest last.
        text: the outcome in a sentence.
        duration_s: duration of the measurement.
        scale: how many times a mix was sustained at the limit or offered at the fixed load; null
            for other traffic [ratio].
    """

    run_id: str
    event: str
    at_s: Annotated[float, Moment(), Column("at")]
    suite: str
    night: str
    case: str
    cluster: str
    workload: str
    goal: str
    kind: str
    message_bytes: Annotated[int, Column("bpm")]
    producers: Annotated[int, Column("np")]
    trials: tuple[int, ...]
    measure: str
    value: float
    values: tuple[float, ...]
    mb_per_s_per_broker: float | None = None
    handler_s_per_mb: float | None = None
    latency_p99_ms: float | None = None
    achieved_share: float | None = None
    verdicts: tuple[str, ...] = ()
    limited_by: str | None = None
    evidence: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    outcome: str | None = None
    change: float | None = None
    change_low: float | None = None
    change_high: float | None = None
    p_value: float | None = None
    smallest_visible: float | None = None
    nights: tuple[str, ...] = ()
    text: str = ""
    duration_s: float = 0.0
    scale: float | None = None

    @property
    def merit(self) -> float:
        """The value, inverted if less is better."""
        return 1.0 / self.value if MEASURES[self.measure].less_is_better else self.value


@dataclass(frozen=True)
class CaseFigure:
    """A figure that nights compare: its name for people, its unit, and its direction."""

    name: str
    unit: str
    less_is_better: bool = False


MEASURES: Mapping[str, CaseFigure] = {
    "mb_per_s_per_broker": CaseFigure("limit per broker", "MB/s"),
    "handler_s_per_mb": CaseFigure("handlers' time per MB", "s/MB", less_is_better=True),
    "latency_p99_ms": CaseFigure("latency p99", "ms", less_is_better=True),
    "achieved_share": CaseFigure("achieved over offered", ""),
}
"""Column that can be compared → its figure."""

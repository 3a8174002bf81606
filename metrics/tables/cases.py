"""The row of the table `cases`: what a night measured of one case, and how it was judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated

from metrics.columns import Column, Moment


class Outcome(str, Enum):
    """What a night says of a case."""

    REGRESSION = "regression"
    IMPROVEMENT = "improvement"
    NO_CHANGE = "no change"
    NO_HISTORY = "no history"
    INVALID = "invalid"
    NOT_MEASURED = "not measured"

    @property
    def stands_out(self) -> bool:
        """True when the night is unlike those before it."""
        return self in (Outcome.REGRESSION, Outcome.IMPROVEMENT)


@dataclass(frozen=True)
class CaseRow:
    """A case of a night: one row when it was measured, and one when the night was judged.

    Attributes:
        run_id: the run whose trials it was measured by.
        event: `measured` or `judged`; a judged row repeats what was measured.
        at_s: when it was measured.
        suite, night, case: what the figure is of, and which night it is.
        cluster, workload, goal: names of the configuration.
        kind: `limit` or `load`.
        message_bytes: bytes per message [B].
        producers: producers: of the limit, or of the fixed load.
        trials: numbers of its trials within the run.
        measure: the column that is compared, or `achieved_share`.
        value: the figure that is compared, median of `values` [as `measure` says].
        values: of each valid trial; of a limit the one figure [as `measure` says].
        mb_per_s_per_broker: the limit, or what was achieved at the fixed load [MB/s].
        handler_s_per_mb: at a fixed load, for how long a broker's handlers, all of them, are
            busy with each MB of its payload [s/MB].
        latency_p99_ms: at a fixed load, from the intended send time to the acknowledgement [ms].
        achieved_share: at a fixed load, achieved over offered [ratio].
        verdicts: of its trials at a fixed load, in order.
        limited_by: the resource that bound the brokers, or null.
        evidence: what `limited_by` rests on.
        environment: as the run's, what one needs to compare runs.
        settings: what the trials were made with: the keys of workload and goal, the load, the
            source of metrics; nights whose settings differ are not compared.
        outcome: of the comparison, once judged: `regression`, `improvement`, `no change`,
            `no history`.
        change: against the nights before; -0.1 is worse by 10 % [ratio].
        change_low, change_high: its prediction interval [ratio].
        p_value: of no change, before the correction for several cases [ratio].
        smallest_visible: the loss that would have been seen four times out of five [ratio].
        nights: that were compared with, newest last.
        text: the outcome in a sentence.
        duration_s: that measuring it took.
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

    @property
    def merit(self) -> float:
        """The value, turned so that more is better."""
        return self.value if self.measure in MORE_IS_BETTER else 1.0 / self.value


MORE_IS_BETTER = frozenset({"mb_per_s_per_broker", "achieved_share"})
MEASURES: Mapping[str, tuple[str, str]] = {
    "mb_per_s_per_broker": ("limit per broker", "MB/s"),
    "handler_s_per_mb": ("handlers' time per MB", "s/MB"),
    "latency_p99_ms": ("latency p99", "ms"),
    "achieved_share": ("achieved over offered", ""),
}
"""Column that can be compared → (what people call it, its unit)."""

"""Rows of the tables `cases` and `headroom`, and flat facts about the environment of a run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Annotated, Any

from metrics.columns import Column, Flat, Moment, restored
from metrics.trial.evidence import Judgement
from metrics.trial.trial import Trial


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
        """True if the outcome is a regression or an improvement."""
        return self in (Outcome.REGRESSION, Outcome.IMPROVEMENT)


@dataclass(frozen=True)
class CaseRow:
    """A case of a night. One row has the case's measurement, and one row has the case's judgment.

    Attributes:
        run_id: id of the run.
        event: `measured`, `judged` or `accepted` (`redline nightly --accept`); rows with `judged`
            or `accepted` repeat the measurement.
        at_s: time of the measurement, or of the acceptance.
        suite: name of the suite.
        night: name of the night.
        case: name of the case.
        cluster, workload, goal: name of the configuration file.
        kind: `limit` or `load`.
        message_bytes: bytes per message [B].
        producers: number of producers at the limit or at the fixed load; in a mix, the total number
            of producers of all parts.
        trials: the trials of the case, each as its number within the run (`trial`).
        measure: name of the column that is compared, or `achieved_share`.
        value: the compared figure, the median of `values` [unit of `measure`].
        values: for a fixed load, the figure of each valid trial; for a limit, only the figure of
            the limit [unit of `measure`].
        mb_per_s_per_broker: the limit, or the achieved rate at the fixed load [MB/s].
        handler_s_per_mb: busy time of a broker's request handlers for one MB of the broker's
            payload, at a fixed load [s/MB]. The busy times of all handlers are added.
        latency_p99_ms: latency from the intended send time to the acknowledgement, at a fixed
            load [ms].
        achieved_share: achieved rate divided by the offered rate, at a fixed load [ratio].
        verdicts: verdicts of the trials at a fixed load, in chronological order.
        limited_by: the limiting resource, or null.
        evidence: evidence of `limited_by`.
        environment: facts that a comparison of runs needs, as in the table `runs`.
        settings: the keys of the workload, the keys of the goal, the load, and the source of the
            metrics. Nights with different settings are not compared.
        outcome: outcome of the comparison in a judged row: `regression`, `improvement`,
            `no change` or `no history`.
        change: change against the earlier nights [ratio]; -0.1 is worse by 10 %.
        change_low: lower end of the change's prediction interval [ratio].
        change_high: upper end of the change's prediction interval [ratio].
        p_value: p-value of no change, before the correction for several cases [ratio].
        smallest_visible: smallest loss that is detected with a probability of 80 % [ratio].
        nights: the nights of the comparison, newest last.
        text: the outcome, in one sentence.
        duration_s: duration of the measurement.
        scale: for a limit of a mix, the sustained scale [ratio]; for a fixed load of a mix, the
            offered scale [ratio]; null for other traffic.
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


@dataclass(frozen=True)
class SweepCase:
    """The case of a sweep that a run measures. All columns are null if the run is not part of a
    sweep.

    Attributes:
        sweep_id: name of the sweep and of its folder.
        experiment: name of the experiment.
        case: name of the case, such as `acks=all`.
        repeat: number of the measurement of this case, from 1.
        settings: full path of each key that varies → its value in this case.
    """

    sweep_id: str | None = None
    experiment: str | None = None
    case: str | None = None
    repeat: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)


ABSENT = "–"
"""The text in place of a fact's value if an environment does not have the fact."""
BY_RUN = (
    "cluster.id",
    "broker.config.advertised.listeners",
    "broker.config.listeners",
    "broker.config.zookeeper.connect",
    "executors.clocks_within",
)
"""Names of facts that can differ between two runs even if the clusters are equal."""
SERIES = "series"
"""First word of the name of a fact whose value is the name of an exporter's series. For example,
the value of the fact `series.handler_idle_ns` is the name of the series for the reading
`handler_idle_ns`."""
_NODE = re.compile(r"(?<=^broker\.)\d+\.")


@dataclass(frozen=True)
class Difference:
    """A fact whose values in two environments differ.

    The value is `ABSENT` if an environment does not have the fact.
    """

    name: str
    before: str
    after: str


def merge_facts(kind: str, nodes: Mapping[int, Mapping[str, str]]) -> dict[str, str]:
    """Merge the facts of several nodes into flat names.

    A fact with equal values on all nodes becomes `kind.name`. A fact with different values, or a
    fact that a node lacks, becomes `kind.NODE.name` for each node that has the fact.

    Args:
        kind: first word of the flat names: `broker`, `controller` or `series`.
        nodes: node id → name of the fact → value.
    """
    flat: dict[str, str] = {}
    for name in sorted({name for facts in nodes.values() for name in facts}):
        values = {node: facts[name] for node, facts in sorted(nodes.items()) if name in facts}
        if len(values) == len(nodes) and len(set(values.values())) == 1:
            flat[f"{kind}.{name}"] = next(iter(values.values()))
        else:
            flat.update({f"{kind}.{node}.{name}": value for node, value in values.items()})
    return flat


def fact_of_node(environment: Mapping[str, str], kind: str, node: int, name: str) -> str | None:
    """A fact of one node in an environment that `merge_facts` returned; None if it is not known."""
    return environment.get(f"{kind}.{node}.{name}", environment.get(f"{kind}.{name}"))


def difference(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[Difference, ...]:
    """The differences between the environments of two runs, sorted by name.

    Facts in `BY_RUN` are excluded.
    """
    names = sorted(n for n in before.keys() | after.keys() if _NODE.sub("", n) not in BY_RUN)
    pairs = ((name, before.get(name, ABSENT), after.get(name, ABSENT)) for name in names)
    return tuple(Difference(name, old, new) for name, old, new in pairs if old != new)


@dataclass(frozen=True)
class ResourceHeadroom:
    """The headroom of one resource of one broker: how much today's traffic can grow.

    Attributes:
        broker_id: node id.
        resource: name of the resource. In a row that compares today's traffic with the measured
            limit, the name is `measured traffic`.
        unit: unit of `used`, `at_rest` and `limit`: `ratio` or `B/s`.
        used: use in the window [unit].
        at_rest: use without traffic [unit].
        limit: use at which the resource is full [unit].
        times: highest possible multiple of today's traffic [ratio]; null if the use cannot be
            distinguished from zero.
        times_low: lower end of the 90 % interval of `times` [ratio].
        times_high: upper end of the 90 % interval of `times` [ratio].
        counts: true if the row can decide the answer; false if it is only for comparison.
    """

    broker_id: int
    resource: str
    unit: str
    used: float
    at_rest: float
    limit: float
    times: float | None = None
    times_low: float | None = None
    times_high: float | None = None
    counts: bool = True


@dataclass(frozen=True)
class HeadroomRow:
    """The use of a broker's resource by production traffic, and the headroom of this resource.

    Attributes:
        run_id: id of the run that measured the limit for the comparison; null for an estimate
            without a run.
        headroom_id: id of the call of `redline headroom`; all rows of the call have this id.
        at_s: end of the window.
        cluster: name of the configuration file.
        cluster_id: the id that Kafka gave the cluster.
        goal: goal of the limit.
        source: source of the metrics.
        window_s: length of the window [s].
        headroom: the resource with its use and headroom.
        is_first: true for the resource that is full first.
        is_estimate: true if no run measured the limit.
        messages_in_per_s: messages that the broker received from producers [1/s].
        bytes_in_per_s: bytes of record batches that the broker received from producers [B/s].
        assumption: the assumptions of the answer, in one sentence.
        growth_per_day: growth of the traffic per day, according to the traffic's history [ratio];
            null without a history, and in all rows of a call except the first row.
        full_at_s: time at which the cluster is full if the traffic grows by `growth_per_day`; null
            if the time is not known, or not within a year.
        full_low_at_s: earliest time in the 90 % interval of `full_at`.
        full_high_at_s: latest time in the 90 % interval of `full_at`; null if the interval has no
            latest time.
    """

    run_id: str | None
    headroom_id: str
    at_s: Annotated[float, Moment(), Column("at")]
    cluster: str
    cluster_id: str
    goal: str
    source: str
    window_s: float
    headroom: Annotated[ResourceHeadroom, Flat()]
    is_first: bool = False
    is_estimate: bool = False
    messages_in_per_s: float | None = None
    bytes_in_per_s: float | None = None
    assumption: str = ""
    growth_per_day: float | None = None
    full_at_s: Annotated[float | None, Moment(), Column("full_at")] = None
    full_low_at_s: Annotated[float | None, Moment(), Column("full_low_at")] = None
    full_high_at_s: Annotated[float | None, Moment(), Column("full_high_at")] = None


def trial_from(row: Mapping[str, Any]) -> Trial:
    """Restore a trial from its row. The row is a result of `Row.asDict(recursive=True)`.

    Rows of the first versions have one verdict and no name of a goal. The restored goal's name is
    empty.
    """
    if row.get("verdicts"):
        return restored(Trial, row)
    judgements = {"": restored(Judgement, row)}
    return replace(restored(Trial, {**row, "verdicts": {}}), judgements=judgements)

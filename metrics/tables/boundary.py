"""Boundary points: rows of the table `boundaries` with the limits that searches found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Annotated

from metrics.columns import Column, Flat, Moment, column, row_of
from metrics.traffic.axes import MESSAGE_BYTES, NP, Axis, ScaleAxis, axis_named
from metrics.traffic.pattern import TrafficPattern
from metrics.trial.evidence import Reason
from metrics.trial.trial import ALL_BROKERS
from metrics.windows.use import Resource
from search.model import Bracket, Interval

_OF_THE_POINT = ("load", "point_bpm", "bpm")


def variant_of(pattern: TrafficPattern) -> dict[str, str]:
    """Option of the traffic pattern → value of the option. The key is the option's column in the
    table `trials`.

    Two limits are comparable if this function returns equal results for their traffic patterns. The
    result contains no load, no message size and no phases of a trial. The result has the value 1
    for the option that the search varies, because this value differs between the trials of one
    search.
    """
    neutral = axis_named(pattern.axis).apply(pattern, 1)
    left_out = {*_OF_THE_POINT, *row_of(pattern.phases)}
    if not pattern.mix:  # rows of versions without mixes have the same variant
        left_out.add("mix")
    row = row_of(neutral)
    return {name: _text(row[name]) for name in sorted(row) if name not in left_out}


def _text(value: object) -> str:
    if isinstance(value, list | tuple):  # a map is a list of its pairs
        return ", ".join(map(_text, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


class AnswerKind(str, Enum):
    """The kind of a search's answer."""

    LIMIT = "limit"
    LOWER_BOUND = "lower bound"
    UPPER_BOUND = "upper bound"
    NONE = "none"


CONFIDENCE_LEAST = 0.5
"""A limit without an interval is doubtful if the probability of its bracket is below this value
[ratio]."""


@dataclass(frozen=True)
class BoundaryPart:
    """One part of a mix at the sustained load.

    Attributes:
        part: name of the part.
        np: number of producers of the part.
        mps: messages per second of the part [1/s].
        mb_per_s: payload rate of the part [MB/s].
        bpm: mean size of the part's messages [B].
        replication_factor: replicas of each partition of the part's topics; 0 if not known.
        consumer_groups: number of groups that read the part's topics.
    """

    part: str
    np: int
    mps: float
    mb_per_s: float
    bpm: int
    replication_factor: int = 0
    consumer_groups: int = 0


@dataclass(frozen=True)
class Boundary:
    """The limit at one message size: the bracket, the rates at its sides, and the limiting
    resource.

    Columns with rates contain what producers offered at the sustained load. Of the offered records,
    the brokers acknowledged at least the share that the goal requires (99 % by default). MB is 10⁶
    bytes of payload.

    Attributes:
        message_bytes: bytes per message [B].
        np_sustained: highest sustained number of producers; 0 if there is none.
        np_overloaded: lowest overloaded number of producers above `np_sustained`; None if there is
            none.
        mps: messages per second at `np_sustained` [1/s].
        mb_per_s: payload rate at `np_sustained`, whole cluster [MB/s].
        mb_per_s_per_broker: `mb_per_s` divided by the number of brokers [MB/s].
        overload_reasons: reasons of the overload at `np_overloaded`. Each reason has the form
            `indicator: sentence`.
        limited_by: the limiting resource, according to most of the overloads near the limit; None
            without an overload.
        trials: number of trials at this message size, including INVALID trials.
        mps_overloaded: messages per second at `np_overloaded` [1/s]; None if no load was
            overloaded.
        gave_up: reason why the search ended before the bracket was closed; None if it was closed.
        evidence: evidence of `limited_by`, with the use of the other resources.
        confidence: probability that the limit is inside the bracket [ratio]; None if the search
            does not estimate this probability.
        notes: remarks for readers of the answer, for example about outvoted trials.
        goal: name of the goal, which defines when a load is sustained.
        axis: the axis of the search; on other axes than `np`, the number of producers is fixed.
        load_sustained: highest sustained load on the axis of the search. On the axis `np`, which is
            the number of producers, `load_sustained` equals `np_sustained`.
        load_overloaded: lowest overloaded load on the axis of the search. On the axis `np`, which
            is the number of producers, `load_overloaded` equals `np_overloaded`.
        np_planted: the planted limit of a testbed [producers]; None if the brokers have no planted
            limit. `metrics.planning.planted` computes the planted limit.
        load_low: lower end of the limit's 90 % interval on the axis [load]; None if there is no
            interval.
        load_high: upper end of the limit's 90 % interval on the axis [load]; None if there is no
            interval.
        interval_max: widest interval that the goal accepts, as 1 - low/high [ratio]; None if the
            goal accepts every interval.
        latency_p50_ms: median latency in the last trial that sustained the sustained load; None
            without such a trial. The latency is the time from the intended send time to the
            acknowledgement.
        latency_p99_ms: 99th percentile of the latency in the last trial that sustained the
            sustained load; None without such a trial.
        latency_p999_ms: 99.9th percentile of the latency in the last trial that sustained the
            sustained load; None without such a trial.
        broker_resident_bytes: resident memory of the largest broker process in the last trial that
            sustained the sustained load [B]; None if hosts do not report the resident memory. The
            resident memory includes the heap and mapped files.
        page_cache_bytes: largest page cache of a broker's host in the last trial that sustained the
            sustained load [B]; None if hosts do not report the page cache.
        confirmed_s: duration of the load in a successful hold at the limit [s]; None without a
            successful hold. The key `search.confirm_s` sets this duration.
        state: state of the cluster: `all brokers`, `1 broker offline` or `catching up`.
        pattern: option of the traffic pattern → value of the option. The key is the option's column
            in the table `trials`. The load and the message size are left out. Empty in rows of
            older versions.
        load_estimate: best estimate of the limit on the axis [load]; None if there is no interval,
            and in rows of older versions. The best estimate is the median of the limit's
            probability distribution.
        proven_s: length of the longest window at the sustained load in which the brokers sustained
            this load [s]; None without such a window. A window that proves the load on disk is
            preferred to longer windows.
        proven_bytes: bytes that the brokers received in the window of `proven_s` [B]; None if not
            known. The bytes include the replicas.
        proven_on_disk: True if the brokers' disks wrote the bytes of `proven_bytes`; None if the
            brokers' hosts do not show whether the disks wrote these bytes.
            `metrics.judging.disk_proof` decides this.
        memory_bytes: bytes of `proven_bytes` that stayed in memory, because no disk wrote them [B].
        memory_full_s: time until the memory of a host is full at the sustained load [s], counted
            from the start of the window of `proven_s`; None if memory does not fill, or if the time
            is not known.
        proof_note: remarks about the proof on disk; empty without remarks. One remark is the reason
            why the load is not proven on disk. Another remark has the names of the counted disks,
            if the disks of the log dirs are not known.
        steady_load: highest load on the axis that is proven on disk [load]; None if no load is
            proven on disk. The proof is a window with this message size, or a window with another
            message size. In a window with another message size, the brokers received at least as
            many bytes as at `steady_load`.
        steady_mb_per_s: payload rate of `steady_load`, whole cluster [MB/s]; None if no load is
            proven on disk.
        steady_s: length of the window that proves `steady_load` [s].
        steady_bytes: bytes that the brokers received in the window that proves `steady_load` [B].
            The bytes include the replicas.
        steady_note: the basis of the steady limit, or the reason why there is no steady limit.
        changed: changes of the limit during the measurement, one sentence each, oldest first; the
            limit is valid after the last change.
        failed_after_s: time from the start of a hold at the sustained load until the acknowledged
            rate fell and stayed low [s]; None without such a fall. The rate falls when the memory
            of the brokers' hosts is full. Only the option `--to-failure` on testbeds measures this
            time.
        parts: the parts of a mix at the sustained load; empty for other traffic.
        scale_planted: the planted limit of a testbed as a scale [ratio]; None if the brokers have
            no planted limit, or if the search does not vary a scale.
        lasted: True if the sustained load lasted in a hold; None if there was no hold, or if the
            hold does not show whether the load lasts.
    """

    message_bytes: Annotated[int, Column("bpm")]
    np_sustained: int
    np_overloaded: int | None
    mps: float
    mb_per_s: float
    mb_per_s_per_broker: float
    overload_reasons: tuple[str, ...]
    limited_by: str | None
    trials: int
    mps_overloaded: float | None = None
    gave_up: str | None = None
    evidence: str = ""
    confidence: float | None = None
    notes: tuple[str, ...] = ()
    goal: str = ""
    axis: str = NP.name
    load_sustained: int | None = None
    load_overloaded: int | None = None
    np_planted: float | None = None
    load_low: float | None = None
    load_high: float | None = None
    interval_max: float | None = None
    latency_p50_ms: float | None = None
    latency_p99_ms: float | None = None
    latency_p999_ms: float | None = None
    broker_resident_bytes: float | None = None
    page_cache_bytes: float | None = None
    confirmed_s: float | None = None
    state: str = ALL_BROKERS
    pattern: Mapping[str, str] = field(default_factory=dict)
    load_estimate: float | None = None
    proven_s: float | None = None
    proven_bytes: float | None = None
    proven_on_disk: bool | None = None
    memory_bytes: float | None = None
    memory_full_s: float | None = None
    proof_note: str = ""
    steady_load: float | None = None
    steady_mb_per_s: float | None = None
    steady_s: float | None = None
    steady_bytes: float | None = None
    steady_note: str = ""
    failed_after_s: float | None = None
    changed: tuple[str, ...] = ()
    parts: tuple[BoundaryPart, ...] = ()
    scale_planted: float | None = None
    lasted: bool | None = None

    @column
    def answer_kind(self) -> str:
        """What the answer states about the limit: `limit`, `lower bound`, `upper bound` or `none`.
        If the sustained load did not last in a hold, the answer is about the steady load.
        """
        low, over = self.lasting.loads
        if not low:
            kind = AnswerKind.NONE if over is None else AnswerKind.UPPER_BOUND
        elif over is None or self.gave_up is not None:
            kind = AnswerKind.LOWER_BOUND
        else:
            kind = AnswerKind.LIMIT
        return kind.value

    @column
    def answer_load(self) -> float:
        """The main result: the highest sustained load on the axis [load]. If the sustained load did
        not last in a hold, the result is `steady_load`, the highest load that is proven on disk. If
        no load was sustained, the result is 0.
        """
        return float(self.lasting.loads[0])

    @column
    def answer_mb_per_s(self) -> float:
        """Payload rate of `answer_load`, whole cluster [MB/s]."""
        return self.lasting.mb_per_s

    @property
    def lasting(self) -> Boundary:
        """This boundary point, changed so that its sustained load lasts. Reports and charts show
        the changed point.

        If the sustained load did not last in a hold, the sustained load becomes the overloaded side
        of the result, and the steady load becomes the sustained side of the result. If the
        sustained load lasted, or if there was no hold, the result is this boundary point.
        """
        if self.lasted is not False:
            return self
        low, load, is_np = self.loads[0], int(self.steady_load or 0), self.along is NP
        share = load / low if low and self.along.grows_payload else float(load > 0)
        parts = (
            replace(
                each,
                np=round(each.np * share),
                mps=each.mps * share,
                mb_per_s=each.mb_per_s * share,
            )
            for each in self.parts
        )
        return replace(
            self,
            load_sustained=load,
            load_overloaded=low,
            np_sustained=load if is_np else self.np_sustained,
            np_overloaded=low if is_np else self.np_sustained,
            mps=self.mps * share,
            mb_per_s=self.mb_per_s * share,
            mb_per_s_per_broker=self.mb_per_s_per_broker * share,
            mps_overloaded=self.mps,
            overload_reasons=(self.steady_note,) if self.steady_note else self.overload_reasons,
            load_low=None,
            load_high=None,
            load_estimate=None,
            confidence=None,
            latency_p50_ms=None,
            latency_p99_ms=None,
            latency_p999_ms=None,
            proven_s=None,
            parts=tuple(parts),
            lasted=None,
        )

    @column
    def scale_sustained(self) -> float | None:
        """Sustained scale of the mix, or of one part of the mix on an axis `scale.PART` [ratio];
        None if the search does not vary a scale.
        """
        return self._scale(self.loads[0])

    @column
    def scale_overloaded(self) -> float | None:
        """Lowest overloaded scale above `scale_sustained` [ratio]; None if no load was overloaded,
        or if the search does not vary a scale.
        """
        return self._scale(self.loads[1])

    @column
    def scale_low(self) -> float | None:
        """`load_low` as a scale [ratio]; None without an interval, or if the search does not vary a
        scale.
        """
        return self._scale(self.load_low)

    @column
    def scale_high(self) -> float | None:
        """`load_high` as a scale [ratio]; None without an interval, or if the search does not vary
        a scale.
        """
        return self._scale(self.load_high)

    @column
    def scale_estimate(self) -> float | None:
        """`load_estimate` as a scale [ratio]; None without an interval, or if the search does not
        vary a scale.
        """
        return self._scale(self.load_estimate)

    def _scale(self, load: float | None) -> float | None:
        axis = self.along
        return None if load is None or not isinstance(axis, ScaleAxis) else axis.shown(load)

    @property
    def latencies_ms(self) -> tuple[float | None, float | None, float | None]:
        """The latencies p50, p99 and p99.9 at the sustained load [ms]."""
        return self.latency_p50_ms, self.latency_p99_ms, self.latency_p999_ms

    @column
    def np_low(self) -> float | None:
        """`load_low` as a number of producers [producers]; None without an interval, or if the
        search does not vary the number of producers.
        """
        return self.load_low if self.along is NP else None

    @column
    def np_high(self) -> float | None:
        """`load_high` as a number of producers [producers]; None without an interval, or if the
        search does not vary the number of producers.
        """
        return self.load_high if self.along is NP else None

    @column
    def np_estimate(self) -> float | None:
        """`load_estimate` as a number of producers [producers]; None without an interval, or if the
        search does not vary the number of producers.
        """
        return self.load_estimate if self.along is NP else None

    @column
    def mb_per_s_low(self) -> float | None:
        """Payload rate at `load_low`, whole cluster [MB/s]; None without an interval, or along an
        axis with a fixed payload rate.
        """
        return self._mb_per_s_at(self.load_low)

    @column
    def mb_per_s_high(self) -> float | None:
        """Payload rate at `load_high`, whole cluster [MB/s]; None without an interval, or along an
        axis with a fixed payload rate.
        """
        return self._mb_per_s_at(self.load_high)

    @column
    def mb_per_s_estimate(self) -> float | None:
        """Payload rate at `load_estimate`, whole cluster [MB/s]; None without an interval, or along
        an axis with a fixed payload rate.
        """
        return self._mb_per_s_at(self.load_estimate)

    @column
    def doubtful(self) -> bool:
        """True if the interval of the limit is wider than `interval_max`. For a limit without an
        interval, true if `confidence` is below 0.5.
        """
        interval = self.interval
        if interval is None:
            return self.confidence is not None and self.confidence < CONFIDENCE_LEAST
        return self.interval_max is not None and interval.relative_width > self.interval_max

    @property
    def interval(self) -> Interval | None:
        """The limit's 90 % interval on the axis of the search; None if there is no interval."""
        if self.load_low is None or self.load_high is None:
            return None
        return Interval(self.load_low, self.load_high, self.load_estimate)

    def _mb_per_s_at(self, load: float | None) -> float | None:
        """Payload rate at a load on the axis, whole cluster [MB/s]; None if it is not known."""
        if load is None or not self.along.grows_payload:
            return None
        low, over = self.loads
        if low:
            return self.mb_per_s * load / low
        above = self.mb_per_s_overloaded
        return above * load / over if above and over else None

    @property
    def mb_per_s_per_broker_low(self) -> float | None:
        """Payload rate per broker at `load_low` [MB/s]; None if it is not known."""
        return self._per_broker(self.mb_per_s_low)

    @property
    def mb_per_s_per_broker_high(self) -> float | None:
        """Payload rate per broker at `load_high` [MB/s]; None if it is not known."""
        return self._per_broker(self.mb_per_s_high)

    @property
    def mb_per_s_overloaded(self) -> float | None:
        """Payload rate at the overloaded side, whole cluster [MB/s]; None if it is not known."""
        if self.mps_overloaded is None:
            return None
        axis, (low, over) = self.along, self.loads
        if isinstance(axis, ScaleAxis) and axis.part and low and over:
            part = next((each for each in self.parts if each.part == axis.part), None)
            return self.mb_per_s + (0.0 if part is None else part.mb_per_s * (over / low - 1))
        grown = self.load_overloaded if self.along is MESSAGE_BYTES else None
        return self.mps_overloaded * (grown or self.message_bytes) / 1e6

    @property
    def mb_per_s_per_broker_overloaded(self) -> float | None:
        """Payload rate per broker at the overloaded side [MB/s]; None if it is not known."""
        return self._per_broker(self.mb_per_s_overloaded)

    def _per_broker(self, mb_per_s: float | None) -> float | None:
        if mb_per_s is None or self.mb_per_s <= 0:
            return None
        return mb_per_s * self.mb_per_s_per_broker / self.mb_per_s

    @property
    def relative_width(self) -> float | None:
        """The bracket's width, as 1 - `load_sustained` / `load_overloaded` [ratio]; None if no load
        was overloaded.
        """
        low, high = self.loads
        return None if high is None else Bracket(low, high).relative_width

    @property
    def loads(self) -> tuple[int, int | None]:
        """The bracket on the axis of the search: the sustained and the overloaded load."""
        if self.load_sustained is None:  # a row of the first versions, which had only the axis np
            return self.np_sustained, self.np_overloaded
        return self.load_sustained, self.load_overloaded

    @property
    def along(self) -> Axis:
        """The axis of the search."""
        return axis_named(self.axis)


def make_boundary(
    bracket: Bracket,
    axis: Axis,
    pattern: TrafficPattern,
    *,
    trials: int,
    reasons: Sequence[Reason] = (),
    limited_by: Resource | None = None,
    gave_up: str | None = None,
    interval: Interval | None = None,
) -> Boundary:
    """Make the boundary point of a bracket.

    Args:
        bracket: the sustained and the overloaded load.
        axis: axis of the bracket.
        pattern: traffic pattern of the point, with any load.
        trials: number of trials at this point.
        reasons: reasons of the overload at the overloaded side, the most important first.
        limited_by: the limiting resource; None if it is not known.
        gave_up: reason why the search ended before the bracket was closed; None if it was closed.
        interval: the limit's 90 % interval; None if there is no interval.
    """
    low, over = bracket.sustained, bracket.overloaded
    sustained = axis.apply(pattern, low) if low else None
    overloaded = None if over is None else axis.apply(pattern, over)
    mb_per_s = sustained.mb_per_s if sustained else 0.0
    return Boundary(
        message_bytes=(
            sustained.message_bytes if sustained and not pattern.parts else pattern.message_bytes
        ),
        np_sustained=sustained.producers if sustained else 0,
        np_overloaded=None if overloaded is None else overloaded.producers,
        mps=sustained.records_per_s if sustained else 0.0,
        mb_per_s=mb_per_s,
        mb_per_s_per_broker=mb_per_s / pattern.brokers,
        overload_reasons=tuple(f"{reason.indicator}: {reason.text}" for reason in reasons),
        limited_by=None if limited_by is None else limited_by.value,
        trials=trials,
        mps_overloaded=None if overloaded is None else overloaded.records_per_s,
        gave_up=gave_up,
        axis=axis.name,
        load_sustained=low,
        load_overloaded=over,
        # The interval includes the sustained load, because this load is the answer.
        load_low=None if interval is None else min(interval.low, low or interval.low),
        load_high=None if interval is None else max(interval.high, low),
        pattern=variant_of(axis.apply(pattern, 1)),
        load_estimate=None if interval is None else interval.median,
        parts=tuple(
            BoundaryPart(
                each.part,
                each.producers,
                each.records_per_s,
                each.mb_per_s,
                each.message_bytes,
                each.topic.replication_factor,
                each.consumers.groups,
            )
            for each in (sustained.parts if sustained else ())
        ),
    )


@dataclass(frozen=True)
class BoundaryRow:
    """The result of the search at one message size.

    Attributes:
        run_id: id of the run.
        at_s: end of the search.
        cluster, workload: name of the configuration file.
        boundary: the boundary point.
        experiment: experiment of the run; null outside of sweeps.
        case: case of the experiment that the run measures; null outside of sweeps.
    """

    run_id: str
    at_s: Annotated[float, Moment(), Column("at")]
    cluster: str
    workload: str
    boundary: Annotated[Boundary, Flat()]
    experiment: str | None = None
    case: str | None = None

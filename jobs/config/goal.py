"""Goals: thresholds for trials, guards of the cluster, and bounds of the search.

The bounds that the owner of a cluster keeps in it, and the strictest of all limits.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import ValidationError, model_validator

from jobs.config.base import ConfigModel, FileSection, Name
from jobs.config.cluster import Hours
from jobs.config.problems import config_error
from jobs.config.source import parse_map
from metrics.common.bounds import Choice, Number, Whole
from metrics.common.errors import ConfigError
from metrics.judging.thresholds import Indicators, Thresholds, Validity
from metrics.traffic.axes import AXES, NP, scale_of_part
from metrics.traffic.pattern import TrafficPattern
from search.budget import Budget

LOAD_CAP_MAX = 100_000_000
WIDEST_INTERVAL = 4.0
"""Largest width of an interval as a multiple of the resolution, unless the goal states it."""


class GuardLimits(ConfigModel):
    """Limits that stop a run with exit code 5; all topics of the run are deleted.

    Attributes:
        stop_topic: stop while a topic of this name exists, so that operators who can create topics
            can end the load without access to the driver; in `redline-stop`, the cluster's
            `name_prefix` replaces `redline-`.
        other_topics: stop when a topic that the run did not create becomes under-replicated.
        disk_free_bytes_min: space that must stay free in every log directory [B]; 0 for no limit.
        disk_used_share_max: largest used share of every log directory's volume [ratio]; when left
            out, 0.9 on a cluster that may have other users.
        load_bytes_per_s_max: largest payload rate of all producers together [B/s].
        pause_max_s: longest time of all pauses together in which the run waits for brokers that
            left a cluster of others, as in a planned restart [s].
        canary_p99_ms_max: longest time that other clients may wait for an acknowledgement, as the
            canaries see it (p99), on a cluster that may have other users [ms].
        canary_rise_max: lowest ratio of this time to the time before the run at which the time
            counts [ratio].
        others_fall_max: largest share of their throughput that other clients may lose while the run
            loads the brokers [ratio]; off if they write at most 50 messages/s.
        others_errors_per_s_max: errors of other clients' produce requests, by which they may
            exceed those without the load [1/s].
        others_lag_s_max: time of its topics' growth by which a consumer group of others may fall
            behind under the loads [s].
        controller_queue_ms_max: longest time for which events may wait for the controller, on
            average [ms].
        np_max: largest number of producers in a trial.
        write_bytes_max: largest payload that a run writes, in all replicas and with the
            warm-up [B].
        connections_per_broker_max: largest number of connections of a trial's producers and group
            members to each broker.
        fail_closed: whether a load is refused, instead of a warning, if canaries, the topic that
            stops runs, the list of all topics, the signs of harm to others or the lock of the
            cluster are missing; on a cluster that may have other users.

    Null turns a guard off, whether it has a default or not. Those without a default are off unless
    given. The disk limits require Kafka 3.3 or later.
    """

    stop_topic: Name | None = "redline-stop"
    other_topics: bool | None = True
    disk_free_bytes_min: Annotated[int, Whole(0, 10**18, "bytes")] | None = 1_000_000_000
    disk_used_share_max: Annotated[float, Number(0, 1, above=True)] | None = None
    load_bytes_per_s_max: (
        Annotated[float, Number(0, 10**15, "bytes per second", above=True)] | None
    ) = None
    pause_max_s: Annotated[float, Number(0, 86_400, "seconds")] | None = 1_800.0
    canary_p99_ms_max: Annotated[float, Number(0, 600_000, "milliseconds", above=True)] | None = (
        1_000.0
    )
    canary_rise_max: Annotated[float, Number(1, 100_000)] = 10.0
    others_fall_max: Annotated[float, Number(0, 1, above=True)] | None = 0.5
    others_errors_per_s_max: (
        Annotated[float, Number(0, 10**9, "errors per second", above=True)] | None
    ) = 10.0
    others_lag_s_max: Annotated[float, Number(0, 86_400, "seconds", above=True)] | None = 60.0
    controller_queue_ms_max: (
        Annotated[float, Number(0, 600_000, "milliseconds", above=True)] | None
    ) = 1_000.0
    np_max: Annotated[int, Whole(1, 100_000, "producers")] | None = None
    write_bytes_max: Annotated[int, Whole(1, 10**18, "bytes")] | None = None
    connections_per_broker_max: Annotated[int, Whole(1, 10_000_000, "connections")] | None = None
    fail_closed: bool = False

    @property
    def caps_load(self) -> bool:
        """Whether a key bounds the load of a trial."""
        caps = (self.np_max, self.load_bytes_per_s_max, self.connections_per_broker_max)
        return any(each is not None for each in caps)

    def load_violation(self, pattern: TrafficPattern) -> tuple[str, str] | None:
        """The key that does not allow a load, and a sentence on the load; None if all keys do."""
        connections, cap = pattern.connections_per_broker, self.load_bytes_per_s_max
        if self.np_max is not None and pattern.producers > self.np_max:
            text = f"the next load has {pattern.producers} producers, more than {self.np_max}"
            return "np_max", text
        most = self.connections_per_broker_max
        if most is not None and connections > most:
            text = f"the next load has {connections} connections to each broker, more than {most}"
            return "connections_per_broker_max", text
        if cap is not None and pattern.producer.closed_loop:
            return "load_bytes_per_s_max", (
                f"the next load may be more than {cap / 1e6:g} MB/s, as closed-loop producers "
                "send as fast as the brokers answer"
            )
        if cap is not None and pattern.peak_mb_per_s * 1e6 > cap:
            return "load_bytes_per_s_max", (
                f"the next load is {pattern.peak_mb_per_s:g} MB/s, more than {cap / 1e6:g} MB/s"
            )
        return None

    def highest_load(
        self, pattern_at: Callable[[int], TrafficPattern], most: int
    ) -> tuple[int, str]:
        """The highest load that all keys allow, and the key that allows no more.

        It is at least 1, and at most `most`, for which the key is empty.
        """
        found = self.load_violation(pattern_at(most))
        if found is None:
            return most, ""
        allowed = bisect_left(
            range(1, most), True, key=lambda load: self.load_violation(pattern_at(load)) is not None
        )
        return max(1, allowed), found[0]


@dataclass(frozen=True)
class BudgetOptions(Budget):
    """The largest cost of all trials of a run; see `search.budget.Budget`.

    A trial starts while no limit is reached, so the last trial may exceed time and payload by its
    own cost.

    Attributes:
        trials: largest number of trials of all message sizes together.
        duration_s: longest time in trials [s].
        payload_bytes: largest payload offered in trials, counted once for all replicas [B].
    """

    trials: Annotated[int, Whole(1, 1_000_000, "trials")] | None = None
    duration_s: Annotated[float, Number(0, 31_536_000, "seconds", above=True)] | None = None
    payload_bytes: Annotated[int, Whole(1, 10**18, "bytes")] | None = None


@dataclass(frozen=True)
class AxisName(Choice):
    """One of the axes, or `scale.PART` for a part of a mix."""

    def expected(self) -> str:
        """The expected values as a noun phrase, for messages and docs."""
        return f"{super().expected()}, or scale.PART for a part of a mix"

    def accepts(self, value: Any) -> bool:
        """True for the name of an axis."""
        return super().accepts(value) or scale_of_part(str(value)) is not None

    def for_editors(self) -> dict[str, Any]:
        """The JSON Schema of the names, and of those of parts."""
        names = super().for_editors()
        return {
            "description": names.pop("description", ""),
            "anyOf": [names, {"type": "string", "pattern": r"^scale\.[A-Za-z0-9_-]{1,40}$"}],
        }


class Search(ConfigModel):
    """The bounds of the search.

    Attributes:
        axis: the quantity that the search varies, while the rest of the traffic pattern is fixed:
            np, producers; scale, how many times a mix is offered, in percent, or one of its parts
            (docs/mixes.md); rate, records per second of each producer; message_bytes; partitions of
            each broker; consumer_groups; linger_ms; or batch_size. The last two need a latency
            objective.
        load_start_max: first guess of a load above the limit; raised while sustained.
        load_cap: highest load that is offered.
        resolution: width of a bracket, 1 - sustained/overloaded, at which it is a boundary point
            [ratio].
        invalid_repeats_max: largest number of repeats in a row of an INVALID trial.
        method: "guided", by the readings of trials and by earlier message sizes; or
            "bisection", for comparison.
        refine_max: largest number of message sizes that are added where the boundary line bends.
        confirm_s: time under load for which a limit is held before it is an answer [s]. `find-limit
            --confirm 30m` sets it.
        steady_s: longest hold that proves the largest limit on disk [s]; 0 for none
            (docs/steady.md). When left out, 3.5 times the brokers' `vm.dirty_expire_centisecs` (105
            s), if the load could fill a tenth of the memory for dirty pages in that time and the
            budget allows it.
        to_failure: whether that hold continues on a testbed until the brokers are overloaded.
            `find-limit --to-failure` sets it.
        brokers_offline: number of brokers in an outage that follows when all limits are found, to
            measure the limits of the other brokers, and the load that they carry while the brokers
            catch up. `find-limit --offline 1` sets it.
        budget: the largest cost of all trials.
        interval_max: width of a limit's 90 % interval, 1 - low/high, above which the size is
            measured further [ratio]; a limit whose interval stays wider is doubtful. 1 turns this
            off. Four times `resolution` when left out.
        overload_max_s: time after which a certain overload ends [s]; its window begins during the
            warm-up where it would last longer. Not for trials that have their full length.
        interval_required: whether a run with a doubtful limit ends without a conclusion (exit code
            3).
        accept_lower_bound: whether a size whose search ends with a lower bound is an answer (exit
            code 0); otherwise it is no conclusion (exit code 3). See docs/search.md.
        check_for_change: whether a trial at the end of a search repeats an early one, to see
            whether the limits changed meanwhile (docs/search.md); up to three more follow if that
            raises suspicion.
    """

    axis: Annotated[str, AxisName(tuple(AXES))] = NP.name
    load_start_max: Annotated[int, Whole(1, LOAD_CAP_MAX)] = 128
    load_cap: Annotated[int, Whole(1, LOAD_CAP_MAX)] = 20_000
    resolution: Annotated[float, Number(0, 0.5, above=True)] = 0.05
    invalid_repeats_max: Annotated[int, Whole(0, 20, "repeats")] = 3
    method: Literal["guided", "bisection"] = "guided"
    refine_max: Annotated[int, Whole(0, 20, "sizes")] = 0
    confirm_s: Annotated[float, Number(0, 31_536_000, "seconds", above=True)] | None = None
    steady_s: Annotated[float, Number(0, 86_400, "seconds")] | None = None
    to_failure: bool = False
    brokers_offline: Annotated[int, Whole(1, 100, "brokers")] | None = None
    budget: Annotated[BudgetOptions, FileSection()] = BudgetOptions()
    interval_max: Annotated[float, Number(0, 1, above=True)] | None = None
    interval_required: bool = False
    accept_lower_bound: bool = False
    check_for_change: bool = True
    overload_max_s: Annotated[float, Number(5, 86_400, "seconds")] = 10.0

    @property
    def widest_interval(self) -> float | None:
        """The effective `interval_max` [ratio]; None where any width is an answer."""
        width = self.interval_max or WIDEST_INTERVAL * self.resolution
        return width if width < 1.0 else None

    def require_consistent(self) -> None:
        """See `ConfigModel.require_consistent`."""
        if self.load_start_max > self.load_cap:
            raise ValueError(
                f"load_start_max is {self.load_start_max} and load_cap {self.load_cap}; expected "
                "a start no higher than the cap; lower load_start_max or raise load_cap"
            )


class Goal(ConfigModel):
    """The conditions under which a load is sustained, and the bounds of the search.

    Attributes:
        name: the name of the goal in tables.
        description: a sentence for people.
    """

    name: Name
    description: str = ""
    indicators: Annotated[Indicators, FileSection()] = Indicators()
    validity: Annotated[Validity, FileSection()] = Validity()
    guards: GuardLimits = GuardLimits()
    search: Search = Search()

    @property
    def thresholds(self) -> Thresholds:
        """The thresholds that judge a trial."""
        return Thresholds(self.indicators, self.validity)


RECORD_BYTES_MAX = 16_384
"""Largest record of an owner [B]."""


class OwnerBounds(GuardLimits):
    """The record of a cluster's owner: keys of a goal's section `guards`, and hours.

    Only the keys that the record has bind a run.

    Attributes:
        load_hours: the hours of each day in which the cluster may be loaded.
    """

    load_hours: Annotated[str, Hours()] | None = None

    @model_validator(mode="before")
    @classmethod
    def _without_null(cls, data: Any) -> Any:
        empty = [key for key, value in data.items() if value is None]
        if empty:
            raise ValueError(
                f"{empty[0]} is null; expected a value, as an owner's record turns no guard off; "
                "leave the key out"
            )
        return data

    @property
    def given(self) -> dict[str, Any]:
        """The keys that the record has, with their values."""
        return {name: getattr(self, name) for name in sorted(self.model_fields_set)}


def parse_bounds(text: bytes, label: str) -> OwnerBounds:
    """The bounds in a record, a map in JSON or YAML.

    Args:
        label: the topic and the key, for messages.

    Raises:
        ConfigError: the record is too large, malformed, or has an unknown key or a wrong value.
    """
    if len(text) > RECORD_BYTES_MAX:
        raise ConfigError(
            f"{label} has {len(text):,} B; expected at most {RECORD_BYTES_MAX:,} B; write it again"
        )
    if not text.strip():
        raise ConfigError(
            f'{label} is empty; expected a map such as {{"np_max": 20}}; write it again'
        )
    try:
        source = parse_map(text.decode(), label)
        return OwnerBounds.model_validate(source.data)
    except UnicodeDecodeError:
        raise ConfigError(
            f"{label} is not a text; expected JSON or YAML in UTF-8; write it again"
        ) from None
    except ValidationError as error:
        raise config_error(error, source, OwnerBounds) from None


def tightened(limits: GuardLimits, *owners: OwnerBounds) -> GuardLimits:
    """The strictest of each limit and the owners' bounds, in whatever order they are given.

    A fail-closed owner also turns each guard on that has a default and that all others leave off.
    """
    defaults, stricter = GuardLimits(), dict[str, Any]()
    is_closed = any(each.fail_closed for each in owners)
    for name in GuardLimits.model_fields:
        own = found = getattr(limits, name)
        for owner in owners:
            found = _stricter(name, found, owner.given.get(name))
        if is_closed and not found and name != "pause_max_s":
            found = getattr(defaults, name)
        if found != own:
            stricter[name] = found
    return limits.model_copy(update=stricter)


def _stricter(name: str, own: Any, bound: Any) -> Any:
    """The stricter of two values of a limit; None is no limit, and no pause."""
    if bound is None:
        return own
    if name == "pause_max_s":
        return min(own or 0.0, bound)
    if own is None or isinstance(bound, bool):
        return own or bound
    if isinstance(bound, str):
        return own
    return max(own, bound) if name.endswith("_min") else min(own, bound)

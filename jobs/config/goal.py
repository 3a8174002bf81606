"""Goals: thresholds for trials, guards of the cluster, and bounds of the search.

The module also reads the bounds from a cluster's owner, and combines them with the goal's bounds.
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
from jobs.config.yaml_file import parse_map
from metrics.common.bounds import Choice, Number, Whole
from metrics.common.errors import ConfigError
from metrics.judging.thresholds import Indicators, Thresholds, Validity
from metrics.traffic.axes import AXES, NP, scale_of_part
from metrics.traffic.pattern import TrafficPattern
from search.budget import Budget

LOAD_CAP_MAX = 100_000_000
WIDEST_INTERVAL = 4.0
"""Default of `search.interval_max`, as a multiple of `search.resolution`."""


class GuardLimits(ConfigModel):
    """Limits that stop a run with exit code 5; the run deletes all of its topics.

    Attributes:
        stop_topic: name of a topic that stops the run while the topic exists. If an operator
            creates the topic, the load ends; the operator needs no access to the driver. In the
            name `redline-stop`, the cluster's `name_prefix` replaces `redline-`.
        other_topics: whether the run stops if a topic that it did not create becomes
            under-replicated.
        disk_free_bytes_min: space that must stay free in every log directory [B]; 0 for no limit.
        disk_used_share_max: largest share [ratio] of a log directory's volume that may be in use.
            If not given, 0.9 applies on a cluster that may have other users.
        load_bytes_per_s_max: largest payload rate of all producers together [B/s].
        pause_max_s: longest total time [s] for which the run pauses while brokers are missing from
            a shared cluster, for example in a planned restart.
        canary_p99_ms_max: longest time (p99) [ms] that canaries may wait for an acknowledgement, on
            a cluster that may have other users. The latency of canaries shows the latency of other
            clients.
        canary_rise_max: highest accepted ratio [ratio] of the canaries' p99 to their p99 before the
            run. Slow canaries stop the run only if both `canary_rise_max` and `canary_p99_ms_max`
            are exceeded.
        others_fall_max: largest share [ratio] of other clients' throughput that may be lost while
            the run loads the brokers. The guard is off if other clients write at most 50
            messages/s.
        others_errors_per_s_max: largest increase [1/s] of the rate of other clients' produce errors
            under the load.
        others_lag_s_max: how far a consumer group of another user may fall behind under the loads,
            as growth of its lag [s]. A growth of the lag by 60 s means that the lag grows by the
            number of records that the group's topics receive in 60 s.
        controller_queue_ms_max: longest mean time [ms] that events may wait in the controller's
            queue.
        np_max: largest number of producers in a trial.
        write_bytes_max: largest payload [B] that a run writes, including all replicas and the
            warm-up.
        connections_per_broker_max: largest number of connections to each broker from a trial's
            producers and group members.
        fail_closed: whether the run refuses or ends a load if a safeguard is missing, on a cluster
            that may have other users. Otherwise the run only warns. The safeguards are canaries,
            the topic that stops runs, the list of all topics, the metrics that show harm to other
            clients, and the cluster's lock.

    Null turns a guard off, even if the guard has a default. A guard without a default is off unless
    it is given. The disk limits require Kafka 3.3 or later.
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
        """Whether one of the guards limits the load of a trial."""
        caps = (self.np_max, self.load_bytes_per_s_max, self.connections_per_broker_max)
        return any(each is not None for each in caps)

    def load_violation(self, pattern: TrafficPattern) -> tuple[str, str] | None:
        """The key that forbids a load, and a sentence about the load; None if all keys allow it."""
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
                f"the next load may be more than {cap / 1e6:g} MB/s, because closed-loop producers "
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
        """The highest load that all keys allow, and the key that forbids higher loads.

        The load is between 1 and `most`. If all keys allow `most`, the second result is empty.
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
    """The limits of the total cost of a run's trials; see `search.budget.Budget`.

    A trial starts if the run has not reached any limit of the budget yet. The last trial may
    therefore exceed the budget's limits of time and payload.

    Attributes:
        trials: largest total number of trials, over all message sizes.
        duration_s: longest total time [s] of the trials.
        payload_bytes: largest total payload [B] that the trials offer, without replicas.
    """

    trials: Annotated[int, Whole(1, 1_000_000, "trials")] | None = None
    duration_s: Annotated[float, Number(0, 31_536_000, "seconds", above=True)] | None = None
    payload_bytes: Annotated[int, Whole(1, 10**18, "bytes")] | None = None


@dataclass(frozen=True)
class AxisName(Choice):
    """A check that a value names an axis. The name for one part of a mix is `scale.PART`."""

    def expected(self) -> str:
        """The expected values as a noun phrase, for messages and docs."""
        return f"{super().expected()}, or scale.PART for a part of a mix"

    def accepts(self, value: Any) -> bool:
        """Whether a value is the name of an axis."""
        return super().accepts(value) or scale_of_part(str(value)) is not None

    def for_editors(self) -> dict[str, Any]:
        """The JSON Schema of the names of axes, including `scale.PART`."""
        names = super().for_editors()
        return {
            "description": names.pop("description", ""),
            "anyOf": [names, {"type": "string", "pattern": r"^scale\.[A-Za-z0-9_-]{1,40}$"}],
        }


class Search(ConfigModel):
    """The bounds of the search.

    Attributes:
        axis: the quantity that the search varies; the rest of the traffic pattern is fixed. Values:
            np, the number of producers; scale, the scale [%] of a mix or of one of its parts
            (docs/mixes.md); rate, the records per second of each producer; message_bytes;
            partitions, per broker; consumer_groups; linger_ms; and batch_size. linger_ms and
            batch_size require a latency objective.
        load_start_max: first guess of a load above the limit; the search raises the guess while the
            load is sustained.
        load_cap: highest load that the search offers.
        resolution: largest width of a boundary point's bracket, 1 - sustained/overloaded [ratio].
        invalid_repeats_max: largest number of consecutive repeats of an INVALID trial.
        method: `guided`, which uses readings of the trials and results of earlier message sizes; or
            `bisection`, which serves for comparison.
        refine_max: largest number of message sizes that the run adds where the boundary line bends.
        confirm_s: duration [s] of a constant load at a found limit. Before the run reports the
            limit, this load shows whether the limit lasts. `find-limit --confirm 30m` sets
            `confirm_s`.
        steady_s: longest duration [s] of a constant load at the largest limit; 0 for no such load.
            The load shows whether the disks can write the bytes permanently (docs/steady.md). The
            default is 3.5 times the brokers' `vm.dirty_expire_centisecs` (105 s). The default
            applies only if the budget allows the constant load, and if this load can fill a tenth
            of the memory for dirty pages in `steady_s`.
        to_failure: whether the constant load of `steady_s` continues on a testbed until the brokers
            are overloaded. `find-limit --to-failure` sets `to_failure`.
        brokers_offline: number of brokers in a planned outage after all limits are found. The run
            then measures the limits of the remaining brokers, and the load that they sustain while
            the stopped brokers catch up. `find-limit --offline 1` sets `brokers_offline`.
        budget: the limits of the total cost of all trials.
        interval_max: largest width of a limit's 90 % interval, 1 - low/high [ratio]. If the
            interval of a message size is wider than `interval_max`, further trials narrow this
            interval. If the interval stays wider than `interval_max`, the limit is doubtful. If
            `interval_max` is 1, the run accepts every interval. The default is four times
            `resolution`.
        overload_max_s: time [s] after which a trial ends if its overload is certain. If the warm-up
            and the window together last longer than this time, the window begins during the
            warm-up. `overload_max_s` does not apply to trials of full length.
        interval_required: whether a run with a doubtful limit ends without a conclusion (exit code
            3).
        accept_lower_bound: whether a lower bound is an answer for a message size (exit code 0);
            otherwise the run ends without a conclusion (exit code 3). See docs/search.md.
        check_for_change: whether a closing trial repeats an early load at the end of a search, to
            detect a change of the limits (docs/search.md). If the closing trial's result suggests a
            change, up to three more trials follow.
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
        """The effective `interval_max` [ratio]; None if every width is accepted."""
        width = self.interval_max or WIDEST_INTERVAL * self.resolution
        return width if width < 1.0 else None

    def require_consistent(self) -> None:
        """See `ConfigModel.require_consistent`."""
        if self.load_start_max > self.load_cap:
            raise ValueError(
                f"load_start_max is {self.load_start_max}; expected at most load_cap "
                f"{self.load_cap}; lower load_start_max, or raise load_cap"
            )


class Goal(ConfigModel):
    """The conditions under which a load is sustained, and the bounds of the search.

    Attributes:
        name: the name of the goal in tables.
        description: a sentence for readers.
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
"""Largest size of the record with an owner's bounds [B]."""


class OwnerBounds(GuardLimits):
    """The bounds from a cluster's owner: keys of a goal's section `guards`, and hours.

    If the owner's record lacks a key, the key has no bound.

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
                f"{empty[0]} is null; expected a value, because an owner's record cannot turn a "
                "guard off; remove the key"
            )
        return data

    @property
    def given(self) -> dict[str, Any]:
        """Key → value for the keys in the owner's record."""
        return {name: getattr(self, name) for name in sorted(self.model_fields_set)}


def parse_bounds(text: bytes, label: str) -> OwnerBounds:
    """Parse a record with an owner's bounds: a map in JSON or YAML.

    Args:
        label: the topic and the record's key, for messages.

    Raises:
        ConfigError: the record is too large, malformed, or has an unknown key or a wrong value.
    """
    if len(text) > RECORD_BYTES_MAX:
        raise ConfigError(
            f"{label} has {len(text):,} B; expected at most {RECORD_BYTES_MAX:,} B; shorten it"
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
    """The goal's limits, combined with the bounds of the owners: the strictest value of each limit
    applies.

    If an owner sets `fail_closed`, each guard with a default is on, even if the goal turns the
    guard off. The only exception is `pause_max_s`, which stays off.
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
    """The stricter of two values of a limit. The value None means that there is no limit; for
    `pause_max_s`, it means that the run does not pause.
    """
    if bound is None:
        return own
    if name == "pause_max_s":
        return min(own or 0.0, bound)
    if own is None or isinstance(bound, bool):
        return own or bound
    if isinstance(bound, str):
        return own
    return max(own, bound) if name.endswith("_min") else min(own, bound)

"""The number of brokers for a load, and the smallest measured set-up that carries the load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from jobs.console.events import Table, note
from jobs.console.printing import make_reporter
from jobs.runs.outcome import RunOutcome, finish, outcome_of
from metrics.columns import Column, as_document
from metrics.common.errors import ConfigError, NoConclusionError
from metrics.comparing.figures import (
    BROKERS_KEY,
    PROPERTIES_PREFIX,
    Result,
    case_words,
    load_sweep,
    short,
)
from metrics.planning.provisioning import (
    BETWEEN_RUNS,
    Demand,
    MeasuredLimit,
    TrafficShare,
    provision,
    provision_rows,
)
from metrics.reporting.files import write_json_file
from metrics.reporting.limit_answer import doubt_words
from metrics.reporting.summary import RunSummary, chosen_goal, load_summary
from metrics.tables.boundary import Boundary
from metrics.traffic.axes import NP, SCALE
from metrics.trial.trial import ALL_BROKERS
from metrics.units import AT_LEVEL, format_count, format_mb_per_s, format_size

SIZES = (
    BROKERS_KEY,
    f"{PROPERTIES_PREFIX}cpus",
    f"{PROPERTIES_PREFIX}heap_mb",
    f"{PROPERTIES_PREFIX}log_dirs",
)
"""Keys that determine the size of a set-up; the most expensive key comes first."""
DAY_S = 86_400


@dataclass(frozen=True)
class Setup:
    """A case of a sweep, and the load that this case carries.

    Attributes:
        settings: full path of each varied key → its value.
        message_bytes: message size [B].
        mb_per_s: the load that the case carries [MB/s]. In each repeat the case has a limit with a
            90 % interval; this load is the lowest lower end of these intervals.
    """

    settings: Mapping[str, str]
    message_bytes: Annotated[int, Column("bpm")]
    mb_per_s: float

    @property
    def size(self) -> tuple[float, ...]:
        """The sort key for the size of the set-up, one value for each key of `SIZES`."""
        return tuple(float(self.settings.get(path, 0)) for path in SIZES)


def setups_of(results: Sequence[Result], message_bytes: int) -> list[Setup]:
    """The set-ups of all cases that have a limit at this message size, the smallest set-up first.

    Raises:
        ConfigError: no case has a limit at this message size.
    """
    sizes = sorted({each.message_bytes for each in results if each.value})
    if message_bytes not in sizes:
        known = ", ".join(map(format_size, sizes)) or "none"
        raise ConfigError(
            f"the sweep has no limit at {format_size(message_bytes)}; expected a measured size: "
            f"{known}; name a measured size, or measure this size"
        )
    lowest: dict[tuple[tuple[str, str], ...], float] = {}
    for each in results:
        if each.message_bytes == message_bytes and each.value:
            case = tuple(sorted(each.settings.items()))
            low = min(each.value, each.low or each.value)
            lowest[case] = min(low, lowest.get(case, low))
    found = [Setup(dict(case), message_bytes, low) for case, low in lowest.items()]
    return sorted(found, key=lambda one: (*one.size, one.mb_per_s))


Options = Mapping[str, Any]
"""Field of `Demand` → the value of the option with this name; None if the option is not given."""

_KNOWN_OF_PARTS = ("message_bytes", "replication_factor", "consumer_groups")


def demand_for(options: Options, limits: Sequence[MeasuredLimit], origin: str) -> Demand:
    """The load to plan for, from the options of `redline plan`. For a mix, the message sizes, the
    replication factor and the consumer groups come from the limits.

    Args:
        limits: the limits of a run; empty if the user states a limit with `--limit` instead of a
            run.
        origin: the source of the limits in words, such as `run R`.

    Raises:
        ConfigError: an option is not suitable for the limits, or a required option is missing.
    """
    given = {name: value for name, value in options.items() if value is not None}
    if limits and limits[0].parts:
        wrong = [f"--{name.replace('_', '-')}" for name in _KNOWN_OF_PARTS if name in given]
        if wrong:
            raise ConfigError(
                f"{' and '.join(wrong)} cannot be used with {origin}, which measured a mix and "
                "states these values for each part; omit the options"
            )
        # With a scale, of_mix computes the payload.
        demand = Demand(**{"mb_per_s": 1.0, **given, "message_bytes": limits[0].message_bytes})
        return demand.of_mix(limits[0])
    if "scale" in given:
        raise ConfigError(
            f"--scale is {given['scale']:g} and the limits come from {origin}; expected a run with "
            "a mix, because a scale counts how many times a mix is offered; use --mb-per-s or "
            "--gb-per-day"
        )
    if "message_bytes" not in given:
        raise ConfigError(
            f"--message-bytes is missing and the limits come from {origin}; expected the message "
            "size, because limits depend on it; add --message-bytes"
        )
    return Demand(**{"consumer_groups": 1, **given})


def plan_brokers(
    folder: Path | None,
    goal: str | None,
    limit_mb_per_s: float | None,
    asked: Options,
    json_file: Path | None,
) -> None:
    """Calculate and show how many brokers the demand needs.

    Args:
        folder: the folder of the run with the limits; None to use `limit_mb_per_s`.
        goal: the goal whose limits are used; None if the run has only one goal.
        limit_mb_per_s: a known limit of one broker [MB/s].
        json_file: the file for the answer as JSON; None to write no file.

    Raises:
        ConfigError: an option does not suit the limits, the run has no usable limit, or a file
            cannot be read or written.
    """
    caveat = ""
    if folder is not None:
        summary = load_summary(folder / "summary.json")
        caveat = summary.caveat
        limits = limits_of(summary, goal)
        demand = demand_for(asked, limits, f"run {summary.run_id}")
    else:
        assert limit_mb_per_s is not None, "checked above"
        demand = demand_for(asked, (), "one kind of traffic (--limit)")
        limits = [
            MeasuredLimit(
                demand.message_bytes,
                limit_mb_per_s,
                None,
                demand.replication_factor,
                demand.consumer_groups,
            )
        ]
    answer = provision(limits, demand)
    with make_reporter() as reporter:
        title = f"{format_mb_per_s(demand.mb_per_s * (1 + demand.growth))} MB/s needs"
        if demand.scale is not None:
            title = f"{demand.scale * (1 + demand.growth):.3g} times the mix, {title}"
        rows = tuple(provision_rows(answer, demand))
        reporter.report(Table(title, ("what", "value"), rows))
        for sentence in (*answer.assumptions, *([caveat] if caveat else [])):
            note(reporter, sentence)
    write_json_file(
        json_file, {"demand": as_document(demand), "answer": as_document(answer), "caveat": caveat}
    )


def choose_setup(folder: Path, asked: Options, json_file: Path | None) -> None:
    """Show which set-up of a sweep carries the demand, including growth and headroom.

    Args:
        folder: the folder of the sweep.
        asked: the demand. If all limits of the sweep have the same message size, the demand need
            not state the size.
        json_file: the file for the answer as JSON; None to write no file.

    Raises:
        ConfigError: the sweep does not exist, or its experiment does not measure limits.
        NoConclusionError: no set-up carries the demand.
    """
    answer = load_sweep(folder / "sweep.json")
    if answer.asks != "limit" or answer.unit != "MB/s":
        raise ConfigError(
            f"the sweep {answer.sweep_id} measured {answer.figure}; expected limits in MB/s; name "
            "a sweep of an experiment with asks: limit"
        )
    sizes = {each.message_bytes for each in answer.results if each.value}
    if asked.get("message_bytes") is None and len(sizes) == 1:
        asked = {**asked, "message_bytes": sizes.pop()}
    demand = demand_for(asked, (), f"sweep {answer.sweep_id}")
    if demand.offline or demand.link_mbit_per_s or demand.zones or demand.disk_gb:
        raise ConfigError(
            "--offline, --zones, --disk-gb or --link-mbit-per-s is given with --sweep; expected "
            "these options with --run or --limit only, because a sweep measures whole set-ups; "
            "omit them, or use --headroom"
        )
    setups = setups_of(answer.results, demand.message_bytes)
    wanted = demand.mb_per_s * (1 + demand.growth) / (1 - demand.headroom)
    found = next((one for one in setups if one.mb_per_s >= wanted), None)
    rows = tuple(
        (
            *(one.settings[path] for path in answer.axes),
            format_mb_per_s(one.mb_per_s),
            f"{one.mb_per_s * DAY_S / 1e3:,.0f}",
            format_count(one.mb_per_s * 1e6 / one.message_bytes * 60),
            "the smallest" if one is found else "yes" if one.mb_per_s >= wanted else "no",
        )
        for one in setups
    )
    head = (*map(short, answer.axes), f"MB/s {AT_LEVEL}", "GB a day", "messages/min", "carries it")
    title = f"{format_mb_per_s(wanted)} MB/s, {wanted * DAY_S / 1e3:,.0f} GB a day"
    conclusion = (
        "none of the measured set-ups carries this load"
        if found is None
        else f"smallest measured set-up that carries this load: {case_words(found.settings)}"
    )
    document = {
        "demand": as_document(demand),
        "mb_per_s_wanted": wanted,
        "smallest": None if found is None else as_document(found),
        "setups": [as_document(one) for one in setups],
        "caveat": answer.caveat,
    }
    outcome = RunOutcome()
    if found is None:
        largest = format_mb_per_s(max(s.mb_per_s for s in setups))
        outcome = outcome_of(
            NoConclusionError(
                f"{conclusion}: the largest set-up carries {largest} of {format_mb_per_s(wanted)} "
                "MB/s; "
                "measure larger set-ups"
            )
        )
    with make_reporter() as reporter:
        reporter.report(Table(title, head, rows))
        for sentence in (conclusion, *([answer.caveat] if answer.caveat else [])):
            note(reporter, sentence)
        finish(outcome, reporter, partial(write_json_file, json_file, document))


def limits_of(summary: RunSummary, goal: str | None) -> list[MeasuredLimit]:
    """The limits of a run that planning can use. For a mix, planning uses the limit that the run
    found along the axis `scale`.

    Raises:
        ConfigError: the run has no goal with the name `goal`; the run has several goals, but `goal`
            is None; or planning cannot use the axis of the run's limits.
    """
    chosen = chosen_goal(summary.boundaries, summary.run_id, goal)
    of_goal = [each for each in summary.boundaries if each.goal == chosen]
    of_part = next((each for each in of_goal if each.parts and each.along is not SCALE), None)
    if of_part is not None:
        raise ConfigError(
            f"run {summary.run_id} searched along {of_part.axis}, so its limit applies to one part "
            "of the mix; expected a limit of the whole mix; search along scale (redline find-limit "
            "without goal.search.axis)"
        )
    points = [
        each
        for each in of_goal
        if each.along in {NP, SCALE}
        and each.state == ALL_BROKERS
        and each.gave_up is None
        and each.mb_per_s > 0
    ]
    is_older = any(not each.replication_factor for point in points for each in point.parts)
    if summary.replication_factor < 1 or is_older:
        raise ConfigError(
            f"the summary of run {summary.run_id} has no replication factor, because an older "
            "version wrote it; expected a newer summary; run redline find-limit again"
        )
    if not points:
        raise ConfigError(
            f"run {summary.run_id} ({summary.status}) has no closed bracket to plan with; expected "
            "limits along np, or along scale for a mix; finish the run with redline find-limit "
            "--resume"
        )
    return [_limit_of(point, summary) for point in points]


def _limit_of(point: Boundary, summary: RunSummary) -> MeasuredLimit:
    """The limit at a boundary point. For a mix, the limit also states the share of each part in the
    payload.
    """
    parts = tuple(
        TrafficShare(
            each.part,
            each.mb_per_s / point.mb_per_s,
            each.bpm,
            each.replication_factor,
            each.consumer_groups,
        )
        for each in point.parts
    )
    replicas, groups = summary.replication_factor, summary.consumer_groups
    mix_mb_per_s = None
    if parts:
        assert point.scale_sustained, "limits_of accepts a mix along scale only"
        mix_mb_per_s = point.mb_per_s / point.scale_sustained
        replicas = max(each.replication_factor for each in parts)
        groups = sum(each.consumer_groups for each in parts)
    limit = MeasuredLimit(
        point.message_bytes,
        point.mb_per_s_per_broker,
        point.limited_by,
        replicas,
        groups,
        point.mb_per_s_per_broker_low,
        doubt_words(point),
        parts=parts,
        mix_mb_per_s=mix_mb_per_s,
        between_runs=BETWEEN_RUNS,
    )
    return _lasting(limit, point)


def _lasting(limit: MeasuredLimit, point: Boundary) -> MeasuredLimit:
    """The steady limit if it is known; otherwise the burst limit, with a sentence which states that
    the limit is a burst limit.

    The interval of the returned limit allows for the variation between runs.
    """
    steady = point.steady_mb_per_s
    size = format_size(point.message_bytes)
    if not steady:
        note = f" ({point.proof_note})" if point.proof_note else ""
        text = f"the limit at {size} is a burst limit: it is not proven on disk{note}"
        return limit if point.proven_on_disk else replace(limit, lasts=text)
    if steady >= point.mb_per_s:
        return limit
    share = steady / point.mb_per_s
    text = (
        f"the limit at {size} is the steady limit, which is proven on disk; the burst limit of a "
        f"broker is {format_mb_per_s(limit.mb_per_s)} MB/s"
    )
    return replace(
        limit, mb_per_s=share * limit.mb_per_s, mb_per_s_low=None, limited_by="disk", lasts=text
    )

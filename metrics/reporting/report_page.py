"""The report of a run as one self-contained HTML file, with themes for light, dark and print.

`build_report` computes the content of the report as plain values, from rows and without Spark.
`report_page` renders the content as HTML. A report contains:

* the answers for each goal, with the limiting resource of each message size;
* commands of Kafka's own tools that offer the limit, and the overload above the limit;
* the trials of the run, each with the ends of brackets (sustained or overloaded) that it provides;
* the readings of each trial over time, as small SVG drawings without scripts;
* the environment and the configuration of the run.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from metrics.reporting.impact import impact_of
from metrics.reporting.limit_answer import (
    SizeAnswer,
    answer_of,
    first_reasons,
    headline,
    load_words,
    reason_texts,
)
from metrics.reporting.summary import LIMIT, RunSummary, by_goal, inferred_measurement
from metrics.reporting.templating import render
from metrics.tables.boundary import Boundary
from metrics.traffic.axes import MESSAGE_BYTES, NP
from metrics.trial.client import ClientWindow
from metrics.trial.trial import ALL_BROKERS, RunSeries, Trial
from metrics.units import UNKNOWN, format_count, format_duration, format_size, format_volume
from metrics.windows.broker import BrokerWindow
from metrics.windows.series import SeriesPoint
from metrics.windows.use import Resource, ResourceUse
from search.model import Verdict

WIDTH, HEIGHT = 220, 56  # [px]
BROKERS_MAX = 12
"""Maximum number of brokers in a trial's evidence, and of lines in a panel.

A trial's evidence shows the brokers whose request handlers are least idle. A panel shows the
brokers with the lowest ids."""
LATENCY = "Latency [ms]"


@dataclass(frozen=True)
class Panel:
    """A small chart of one reading over the time of a trial.

    Attributes:
        title: name of the reading, with the reading's unit.
        top: the value at the upper edge, as text; the lower edge is 0.
        window: left edge and width of the measured window in the drawing [px].
        lines: (name, points) of each line, for a broker or for all producers. Points are `x,y x,y`.
        size: width and height of the drawing [px].
    """

    title: str
    top: str
    window: tuple[float, float]
    lines: tuple[tuple[str, str], ...]
    size: tuple[int, int] = (WIDTH, HEIGHT)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the lines."""
        return tuple(name for name, _ in self.lines)


Panels = Mapping[int, tuple[Panel, ...]]
"""Number of a trial → its panels."""

_Line = tuple[int, str]
"""(broker id, name of the broker's line)."""

Points = Sequence[tuple[float, float]]
"""Points of a line, each as (time since the start of the window [s], value)."""


def panels_of_run(series: RunSeries, trials: Iterable[Trial]) -> Panels:
    """The panels of the given trials; empty if the run has too many readings for one page."""
    if not series.is_complete:
        return {}
    return panels_of(series.points, {each.number: each.evidence.client for each in trials})


def panels_of(
    points: Mapping[int, Iterable[SeriesPoint]], clients: Mapping[int, ClientWindow]
) -> Panels:
    """Draw the latency and the brokers' readings of each trial.

    Args:
        points: number of the trial → the brokers' readings, in the order of the panels.
        clients: number of the trial → the window of its clients.
    """
    found = {}
    for trial, client in clients.items():
        titles: dict[str, dict[_Line, list[tuple[float, float]]]] = {}
        for point in points.get(trial, ()):
            lines = titles.setdefault(point.title, defaultdict(list))
            line = (point.broker_id, point.name)
            lines[line].append((point.elapsed_s, point.value))
        named = {
            title: {name: points for (_, name), points in sorted(lines.items())[:BROKERS_MAX]}
            for title, lines in titles.items()
        }
        found[trial] = _drawn({**_latency_lines(client), **named}, client)
    return {trial: panels for trial, panels in found.items() if panels}


def _latency_lines(client: ClientWindow) -> dict[str, dict[str, Points]]:
    """The latency over time. Each slice of the window is drawn as a point at the slice's middle."""
    slices = client.latency_over_time
    if not slices:
        return {}
    middles = [(each, each.start_s + each.length_s / 2) for each in slices]
    return {
        LATENCY: {
            "p99": [(at_s, each.p99_ms) for each, at_s in middles],
            "p50": [(at_s, each.p50_ms) for each, at_s in middles],
        }
    }


def _drawn(titles: Mapping[str, Mapping[str, Points]], client: ClientWindow) -> tuple[Panel, ...]:
    """One panel for each title. All panels have the same time axis."""
    times = [at_s for lines in titles.values() for line in lines.values() for at_s, _ in line]
    first_s, last_s = min([0.0, *times]), max([client.duration_s, *times])
    return tuple(
        _panel(title, lines, (first_s, last_s), client.duration_s)
        for title, lines in titles.items()
    )


def _panel(
    title: str, lines: Mapping[str, Points], span_s: tuple[float, float], window_s: float
) -> Panel:
    first_s, last_s = span_s
    top = max(value for line in lines.values() for _, value in line)
    across, up = WIDTH / (last_s - first_s), (HEIGHT - 4) / (top or 1.0)
    drawn = tuple(
        (
            name,
            " ".join(
                f"{(at_s - first_s) * across:.0f},{HEIGHT - 2 - value * up:.0f}"
                for at_s, value in line
            ),
        )
        for name, line in lines.items()
    )
    return Panel(title, _short(top), (-first_s * across, window_s * across), drawn)


def _short(value: float) -> str:
    return f"{value:.2f}" if value < 100 else format_count(value)


WINDOWS_MAX = 1_000
"""Maximum number of brokers' windows in a report. If a run has many trials, the report shows fewer
brokers for each trial.
"""
LOWER, UPPER = "sustained side", "overloaded side"

Sides = tuple[tuple[str, str], ...]
"""The ends of brackets that one trial provides, each as (`LOWER` or `UPPER`, name of the goal)."""


@dataclass(frozen=True)
class ListedTrial:
    """One trial in the report.

    Attributes:
        trial: the trial.
        sides: the ends of brackets (sustained or overloaded) that the trial provides.
        brokers_shown: number of brokers whose windows are shown.
    """

    trial: Trial
    sides: Sides
    brokers_shown: int

    @property
    def verdict(self) -> str:
        """The verdict of a trial. If the goals have different verdicts, slashes separate these
        verdicts.
        """
        verdicts = (each.verdict.value for each in self.trial.judgements.values())
        return " / ".join(dict.fromkeys(verdicts))

    @property
    def reason(self) -> str:
        """The most important reason for the verdict, from the first goal that has a reason."""
        judgements = self.trial.judgements.values()
        return next((reason.text for each in judgements for reason in each.reasons), "")

    @property
    def windows(self) -> tuple[BrokerWindow, ...]:
        """The windows of the brokers whose request handlers are least idle, sorted by broker id."""
        order = sorted(
            self.trial.evidence.brokers,
            key=lambda each: 1.0 if each.handler_idle is None else each.handler_idle,
        )
        return tuple(sorted(order[: self.brokers_shown], key=lambda each: each.broker_id))


def listed_trials(
    trials: Sequence[Trial], boundaries: Sequence[Boundary]
) -> tuple[ListedTrial, ...]:
    """All trials of a run in chronological order.

    Each listed trial contains the ends of brackets (sustained or overloaded) that the trial
    provides.
    """
    ordered = sorted(trials, key=lambda each: each.number)
    sides = _sides(ordered, boundaries)
    shown = max(1, min(BROKERS_MAX, WINDOWS_MAX // max(1, len(ordered))))
    return tuple(ListedTrial(each, sides.get(each.number, ()), shown) for each in ordered)


def belongs_to(trial: Trial, boundary: Boundary) -> bool:
    """True if the trial was made for this boundary point."""
    is_of_size = (
        trial.point_message_bytes == boundary.message_bytes or boundary.along is MESSAGE_BYTES
    )
    return is_of_size and trial.state == boundary.state


def _sides(trials: Sequence[Trial], boundaries: Sequence[Boundary]) -> dict[int, Sides]:
    """Trial number → the ends of brackets (sustained or overloaded) that the trial provides.

    The sustained end comes from the last SUSTAINED trial at the load of this end. The overloaded
    end comes from the last OVERLOADED trial at the load of this end.
    """
    found: dict[tuple[str, int, str], int] = {}
    for trial in trials:
        for boundary in (each for each in boundaries if belongs_to(trial, each)):
            # Tables of the first versions have an empty goal name.
            judgement = trial.judgements.get(boundary.goal) or trial.judgements.get("")
            low, over = boundary.loads
            ends = ((low, Verdict.SUSTAINED, LOWER), (over, Verdict.OVERLOADED, UPPER))
            for load, verdict, side in ends:
                has_verdict = judgement is not None and judgement.verdict is verdict
                if trial.load == load and has_verdict:
                    found[boundary.goal, boundary.message_bytes, side] = trial.number
    sides: dict[int, Sides] = {}
    for (goal, _, side), number in found.items():
        sides[number] = (*sides.get(number, ()), (side, goal))
    return sides


@dataclass(frozen=True)
class Use:
    """The use of one resource at both sides of the bracket, on the broker with the highest use.

    Attributes:
        resource: name of the resource.
        at_limit, at_overload: use at the sustained side and at the overloaded side [ratio]; None if
            the use is not known.
        is_limit: True for the limiting resource.
        ceiling: highest use at which the goal accepts a load [ratio]; 1 if the goal has no
            threshold for the resource.
    """

    resource: str
    at_limit: ResourceUse | None
    at_overload: ResourceUse | None
    is_limit: bool
    ceiling: float = 1.0

    @property
    def headroom(self) -> float | None:
        """The difference between the goal's threshold for the resource and the use at the limit
        [ratio]; 0 if the use is higher than the threshold. None if the use is not known.
        """
        used = None if self.at_limit is None else self.at_limit.utilization
        return None if used is None else max(0.0, self.ceiling - used)


Ceilings = Mapping[Resource, float]
"""Resource → highest use at which a goal accepts a load [ratio]."""

_IDLE_MINIMA = {
    Resource.REQUEST_HANDLERS: "indicators.request_handler_idle_min",
    Resource.NETWORK_THREADS: "indicators.network_idle_min",
}


def ceilings_of(goal: Mapping[str, Any]) -> Ceilings:
    """Resource → highest use at which a goal accepts a load, from the goal's keys in the table
    `runs`.
    """
    return {
        resource: 1.0 - float(goal[key])
        for resource, key in _IDLE_MINIMA.items()
        if goal.get(key) is not None
    }


@dataclass(frozen=True)
class Binding:
    """The limiting resource of one message size.

    Attributes:
        size: the message size with its unit.
        resource: name of the limiting resource, or a remark if the resource is not known.
        evidence: the evidence for the resource, in one sentence.
        reasons: reasons of the overload, one sentence for each reason.
        uses: use of each measured resource.
        trials: number of the trial at the limit, and number of the trial at the overload; None if
            there is no such trial.
    """

    size: str
    resource: str
    evidence: str
    reasons: tuple[str, ...]
    uses: tuple[Use, ...]
    trials: tuple[int | None, ...]


def binding_of(boundary: Boundary, trials: Sequence[ListedTrial], ceilings: Ceilings) -> Binding:
    """The limiting resource of a boundary point, and the use of all resources at both ends of the
    bracket.
    """
    low, over = (_at(boundary, trials, side) for side in (LOWER, UPPER))
    if boundary.loads[1] is None:
        resource = "no overload occurred"
    else:
        resource = boundary.limited_by or Resource.UNKNOWN.value
    return Binding(
        size=format_size(boundary.message_bytes),
        resource=resource,
        evidence=boundary.evidence.removeprefix(f"{resource}: "),
        reasons=first_reasons(reason_texts(boundary.overload_reasons)),
        uses=_uses(low, over, resource, ceilings),
        trials=tuple(None if each is None else each.trial.number for each in (low, over)),
    )


def _at(boundary: Boundary, trials: Sequence[ListedTrial], side: str) -> ListedTrial | None:
    load = boundary.loads[0 if side == LOWER else 1]
    found = [
        each
        for each in trials
        if (side, boundary.goal) in each.sides
        and each.trial.load == load
        and belongs_to(each.trial, boundary)
    ]
    return found[-1] if found else None


def _uses(
    low: ListedTrial | None, over: ListedTrial | None, limit: str, ceilings: Ceilings
) -> tuple[Use, ...]:
    found = (
        Use(
            each.value,
            _most_used(low, each),
            _most_used(over, each),
            each.value == limit,
            ceilings.get(each, 1.0),
        )
        for each in Resource
    )
    return tuple(use for use in found if _is_known(use.at_limit) or _is_known(use.at_overload))


def _most_used(listed: ListedTrial | None, resource: Resource) -> ResourceUse | None:
    uses = () if listed is None else listed.trial.evidence.resources
    own = [use for use in uses if use.resource is resource]
    return max(own, key=_how_used, default=None)


def _how_used(use: ResourceUse) -> tuple[float, float]:
    return (
        -1.0 if use.utilization is None else use.utilization,
        -1.0 if use.saturation is None else use.saturation,
    )


def _is_known(use: ResourceUse | None) -> bool:
    return use is not None and (use.utilization is not None or bool(use.saturation))


# The first prefix that fits a name counts, so longer prefixes come first.
_GROUPS = {
    "broker.config": "Properties of the brokers that differ from Kafka's defaults",
    "topic.config": "Properties of the topics",
    "broker": "Brokers",
    "controller": "Controllers",
    "cluster": "Cluster",
    "driver": "Driver",
    "spark": "Driver",
    "python": "Driver",
    "redline": "Driver",
    "package": "Packages",
    "series": "Series of the exporters",
}


_FILES = ("cluster", "workload", "goal")


FactGroups = tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
"""Groups of facts, each as (heading, facts); a fact is (name, value)."""


def key_facts(
    summary: RunSummary, configuration: Mapping[str, Mapping[str, Any]]
) -> tuple[tuple[str, str], ...]:
    """The most important facts of a run, as (name, value)."""
    known, workload = summary.environment, configuration.get("workload", {})
    memory = known.get("broker.memory_bytes", "")
    heap = known.get("broker.jvm.heap_max_bytes", "")
    java = " ".join(filter(None, map(known.get, ("broker.jvm.name", "broker.jvm.version"))))
    sizes = (("of memory", memory), ("of heap", heap))
    machine = [f"{known['broker.cores']} cores"] if "broker.cores" in known else []
    machine += [f"{format_volume(int(size))} {what}" for what, size in sizes if size.isdigit()]
    producer = (
        f"{name} {workload[f'producer.{name}']}"
        for name in ("acks", "compression", "client")
        if f"producer.{name}" in workload
    )
    version, commit = known.get("redline.version", ""), known.get("redline.commit", "")
    facts = (
        ("Brokers", str(summary.brokers or UNKNOWN)),
        ("Kafka", known.get("broker.version", "")),
        ("Each broker", ", ".join(machine)),
        ("Java", java),
        ("Producers", ", ".join(producer)),
        ("Replicas", f"{summary.replication_factor or ''}"),
        ("Consumer groups", f"{summary.consumer_groups}"),
        ("kafka-redline", f"{version} ({commit})" if commit else version),
    )
    return tuple((name, value) for name, value in facts if value)


def environment_of(environment: Mapping[str, str]) -> FactGroups:
    """All facts of the environment, in groups with headings."""
    found: dict[str, list[tuple[str, str]]] = {}
    for name, value in environment.items():
        found.setdefault(_title(name), []).append((name, value))
    order = [*dict.fromkeys(_GROUPS.values()), "More"]
    return tuple((title, tuple(sorted(found[title]))) for title in order if title in found)


def configuration_of(configuration: Mapping[str, Mapping[str, Any]]) -> FactGroups:
    """All keys of the configuration. Each configuration file is one group."""
    return tuple(
        (
            kind.capitalize() if kind in _FILES else kind,
            tuple(
                (key, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
                for key, value in sorted(keys.items())
            ),
        )
        for kind, keys in configuration.items()
    )


def seconds_between(started_at: str, finished_at: str) -> float | None:
    """The time from one ISO 8601 time to another [s]; None if one of the times is not known."""
    try:
        # Python 3.10 cannot parse a time zone of Z.
        began, ended = (
            datetime.fromisoformat(text.replace("Z", "+00:00"))
            for text in (started_at, finished_at)
        )
    except ValueError:
        return None
    return (ended - began).total_seconds()


def _title(name: str) -> str:
    # If a fact differs between nodes, its name contains the number of the node.
    parts = [part for part in name.split(".") if not part.isdigit()]
    plain = ".".join(parts)
    return next((_GROUPS[each] for each in _GROUPS if plain.startswith(f"{each}.")), "More")


_SECONDS = 60
_OPTIONS = {
    "acks": "acks",
    "linger_ms": "linger.ms",
    "batch_size_bytes": "batch.size",
    "compression": "compression.type",
    "enable_idempotence": "enable.idempotence",
}
"""Column of a traffic pattern → property of Kafka's producer."""
SERVERS = "HOST:9092"


def kafka_commands(boundary: Boundary, brokers: int) -> tuple[str, ...]:
    """The lines of a shell script that offers the limit for a minute, and then the overload for a
    minute.

    Each producer is a process of `kafka-producer-perf-test.sh` with the rate, message size and
    batching of the run. Records have random bytes.

    Returns:
        The lines; empty for a mix, for an axis other than the number of producers, and if no load
        was sustained.
    """
    boundary = boundary.lasting
    known, (low, over) = boundary.pattern, boundary.loads
    if boundary.along is not NP or boundary.parts or not low or not known.get("acks"):
        return ()
    topic = f"redline-check-{boundary.message_bytes}"
    partitions = int(float(known.get("partitions_per_broker", 1))) * max(1, brokers)
    rate = boundary.mps / low
    options = " ".join(
        f"{name}={known[column].lower()}" for column, name in _OPTIONS.items() if column in known
    )
    each = (
        f"kafka-producer-perf-test.sh --topic {topic} --record-size {boundary.message_bytes} "
        f"--throughput {max(1, round(rate))} --num-records {max(1, round(rate * _SECONDS))} "
        f"--producer-props bootstrap.servers={SERVERS} {options}"
    )
    sides = [(low, boundary.mb_per_s, "the limit")]
    if over is not None:
        sides.append((over, boundary.mb_per_s_overloaded or 0.0, "the overload above it"))
    lines = [
        (
            f"kafka-topics.sh --bootstrap-server {SERVERS} --create --topic {topic} "
            f"--partitions {partitions} --replication-factor {known.get('replication_factor', '1')}"
        )
    ]
    for load, mb_per_s, what in sides:
        lines += [
            f"# {what}: {load_words(boundary, load, mb_per_s)}",
            f"for n in $(seq {load}); do {each} & done; wait",
        ]
    return (*lines, f"kafka-topics.sh --bootstrap-server {SERVERS} --delete --topic {topic}")


@dataclass(frozen=True)
class Command:
    """The command that reproduces the run.

    Attributes:
        lines: lines of a shell command; the report joins them with a backslash.
        notes: further requirements of the command, one sentence for each requirement.
    """

    lines: tuple[str, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class GoalPart:
    """The answers for one goal.

    Attributes:
        summary: the run's summary, restricted to this goal.
        headline: a sentence about all message sizes; empty if there is only one size.
        answers: the answer for each message size.
        bindings: the limiting resource of each message size.
        checks: message size → lines of a script that checks the limit with Kafka's own tools.
    """

    goal: str
    summary: RunSummary
    headline: str
    answers: tuple[SizeAnswer, ...]
    bindings: tuple[Binding, ...]
    checks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def build_report(
    summary: RunSummary,
    trials: Sequence[Trial],
    configuration: Mapping[str, Mapping[str, Any]],
    command: Command | None = None,
    series: Panels | None = None,
) -> dict[str, Any]:
    """The content of a run's report, for the template `report.html`.

    Args:
        summary: the summary of the run.
        trials: all trials of the run.
        configuration: kind of a configuration file (cluster, workload or goal) → key → value, as in
            the table `runs`; empty if the configuration is not known.
        command: the command that reproduces the run; None if the command is not known.
        series: the panels of each trial; None if there are no readings over time.
    """
    rows = listed_trials(trials, summary.boundaries)
    ceilings = {
        str(keys.get("name", "")): ceilings_of(keys)
        for kind, keys in configuration.items()
        if kind.partition(" ")[0] == "goal"
    }
    held = _held(summary, rows)
    what = "Fixed load on" if held else "Throughput limit of"
    return {
        "title": f"{what} {summary.cluster} with {summary.workload}",
        "summary": summary,
        "parts": tuple(
            _part(part, rows, ceilings) for _, part in by_goal(summary) if part.boundaries
        ),
        "trials": rows,
        "facts": (*_run_facts(summary, rows), *key_facts(summary, configuration)),
        "environment": environment_of(summary.environment),
        "configuration": configuration_of(configuration),
        "command": command,
        "held": held,
        "impact": (summary.impact or impact_of(trials)).sentences,
        "series": series or {},
        "has_closed_loop": any(each.pattern.producer.closed_loop for each in trials),
    }


def is_held(summary: RunSummary) -> bool:
    """True if a run measured fixed loads; False for a search."""
    measurement = summary.measurement or inferred_measurement(
        bool(summary.boundaries), summary.trials, summary.status
    )
    return measurement != LIMIT


def _held(summary: RunSummary, trials: Sequence[ListedTrial]) -> str:
    if not is_held(summary) or not trials:
        return ""
    verdicts = [trial.verdict for trial in trials]
    counts = ", ".join(f"{verdicts.count(each)} {each}" for each in dict.fromkeys(verdicts))
    return f"Fixed loads were offered in {len(trials)} trials: {counts}."


def _part(
    summary: RunSummary, trials: Sequence[ListedTrial], ceilings: Mapping[str, Ceilings]
) -> GoalPart:
    boundaries: tuple[Boundary, ...] = summary.boundaries
    is_whole = boundaries[0].state == ALL_BROKERS
    goal = (boundaries[0].goal if is_whole else "") or summary.goal
    return GoalPart(
        goal=goal,
        summary=summary,
        headline=headline(boundaries, summary.brokers),
        answers=tuple(map(answer_of, boundaries)),
        bindings=tuple(
            binding_of(each, trials, ceilings.get(each.goal or summary.goal, {}))
            for each in boundaries
        ),
        checks={
            format_size(each.message_bytes): lines
            for each in boundaries
            if (lines := kafka_commands(each, summary.brokers))
        },
    )


def _run_facts(summary: RunSummary, trials: Sequence[ListedTrial]) -> tuple[tuple[str, str], ...]:
    lasted_s = seconds_between(summary.started_at, summary.finished_at)
    return (
        ("Run", summary.run_id),
        ("Cluster", summary.cluster),
        ("Workload", summary.workload),
        ("Goal", summary.goal),
        ("Started", summary.started_at),
        ("Took", format_duration(lasted_s)),
        ("Trials", format_count(len(trials))),
    )


def report_page(report: Mapping[str, Any]) -> str:
    """Render a report as HTML, with a chart for each goal and a chart of all trials."""
    # Imported here, because jobs without charts need no charting library.
    from metrics.reporting.boundary_chart import boundary_spec
    from metrics.reporting.trial_charts import throughput_latency_spec

    lines = [boundary_spec(part.summary) for part in report["parts"]]
    latency = throughput_latency_spec([listed.trial for listed in report["trials"]])
    specs = lines if latency is None else [*lines, latency]
    return render("report.html", report=report, specs=specs, latency=latency)

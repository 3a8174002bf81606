"""The results of a run: its boundaries, its files, and the command that repeats the run."""

from __future__ import annotations

import json
import math
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from jobs.config import (
    Configuration,
    Goal,
    available,
    describe,
    load_cluster,
    load_goal,
    load_workload,
)
from jobs.config.loading import Settings
from jobs.console.events import RunFinished
from jobs.runs.context_factory import RunOrder
from jobs.runs.estimate import confirmation_of
from jobs.runs.lifecycle import RunState
from jobs.runs.outcome import RunOutcome
from jobs.runs.resumption import config_text
from jobs.runs.steady import last_at, with_proof
from metrics.common.errors import ConfigError
from metrics.judging.attribution import (
    VOTING_LOAD_RATIO_MAX,
    AttributionVote,
    combine_votes,
    contradiction,
)
from metrics.reporting.files import write_atomic
from metrics.reporting.impact import impact_of
from metrics.reporting.limit_answer import doubt_words, open_words
from metrics.reporting.report_page import Command, Panels, build_report, is_held, panels_of_run
from metrics.reporting.summary import RunSummary, by_goal, trial_document, write_summary
from metrics.tables.boundary import Boundary, make_boundary
from metrics.tables.store import TableStore
from metrics.trial.adding import Quantiles
from metrics.trial.others import traffic_beside
from metrics.trial.trial import ALL_BROKERS, RunSeries, Trial
from metrics.units import format_duration, format_ratio, iso_utc
from search.confirming import SplitHistory, describe_failure, split_history
from search.line import FinishedPoint
from search.model import LEVEL, Bracket, Done, GaveUp, Interval, Verdict


class ArtifactWriter:
    """Writes the files of a run, and collects failures, so that a failed file does not stop the
    others.

    Attributes:
        written: the written files in order, as (kind, path).
    """

    def __init__(self) -> None:
        self.written: list[tuple[str, str]] = []
        self._failures: list[str] = []

    def write(self, what: str, path: Path, write: Callable[[], object]) -> bool:
        """Write a file; return False if it cannot be written, for example because the disk
        is full.
        """
        try:
            write()
        except OSError as error:
            self._failures.append(f"{path} ({error.strerror or error})")
            return False
        except ConfigError as error:  # the message names the path
            self._failures.append(str(error))
            return False
        self.written.append((what, str(path)))
        return True

    def write_answer_file(
        self, what: str, path: Path, copy: Path | None, write: Callable[[Path], object]
    ) -> None:
        """Write the answer for programs to its path, and also to the file of `--json` if one is
        given.
        """
        for each in (path, *([copy] if copy is not None else [])):
            self.write(what, each, partial(write, each))

    def require_all(self, remedy: str) -> None:
        """Raise an error if a file could not be written; must be called after all other steps.

        Args:
            remedy: how the user can get the missing files.

        Raises:
            ConfigError: a file could not be written.
        """
        if self._failures:
            raise ConfigError(
                f"not written: {', '.join(self._failures)}; expected free space and write "
                f"permission in the folder; all results are in the tables; {remedy}"
            )


def present_trials(point: FinishedPoint, trials: Sequence[Trial]) -> list[Trial]:
    """The trials of a boundary point that are evidence for its present limit.

    If the limit changed during the run, trials before the last change are left out, because they
    show an earlier limit. Trials that test whether the disks can write a load are always included.

    Args:
        point: the boundary point.
        trials: all trials of the point, oldest first.
    """
    searched = [each for each in trials if not each.steady]
    changed = point.result.changed
    counted = searched[changed[-1].since :] if changed else searched
    return [*counted, *(each for each in trials if each.steady)]


def change_words(
    point: FinishedPoint, trials: Sequence[Trial], config: Configuration
) -> tuple[str, ...]:
    """A sentence about each change of a point's limit: the size and the time of the change.

    Args:
        point: the boundary point.
        trials: all trials of the point, oldest first.
        config: the configuration of the run.
    """
    searched = [each for each in trials if not each.steady]
    changes = point.result.changed
    words = []
    for number, change in enumerate(changes):
        is_last = number == len(changes) - 1
        after = (point.result.interval if is_last else None) or change.after
        last, first = searched[change.last_before], searched[change.since]
        size = f"from {_amount(change.before)} to {_amount(after)} {config.axis.words}"
        when = (
            f"between trial {last.number} ({iso_utc(last.started_at_s)}) and trial {first.number} "
            f"({iso_utc(first.started_at_s)})"
        )
        share = "" if change.verb == "changed" else f" ({format_ratio(change.probability)})"
        words.append(
            f"the limit {change.verb} {size}{share}, {when}; earlier trials no longer count"
        )
    return tuple(words)


def _amount(interval: Interval | None) -> str:
    """The median and the interval as text, such as `387 (376 to 398 at 90 %)`."""
    if interval is None:
        return "an unknown number"
    middle = interval.high if interval.median is None else interval.median
    span = f"{interval.low:,.4g} to {interval.high:,.4g} at {100 * LEVEL:.0f} %"
    return f"{middle:,.4g} ({span})"


_LOADERS: Mapping[str, Callable[[str], BaseModel]] = {
    "cluster": load_cluster,
    "workload": load_workload,
    "goal": load_goal,
}
_NAMING = ("name", "description")  # keys that describe the file and change no measurement


def command_of(settings: Settings, held: Sequence[tuple[int, int]] = ()) -> Command | None:
    """The command that repeats a run; None if one command is not enough, or no configuration is
    recorded.

    If a value differs from the value in the files of conf/, the command has an option `--set` for
    this value. If a configuration file is not part of the project, the command contains NAME.yaml
    instead of the file's name. A note then tells the user to make this file from the keys in the
    report. Secrets stay references.

    Args:
        settings: kind → key → value, as `jobs.runs.resumption.config_text` records them.
        held: (message size [B], load) of each trial, if the run has a fixed load.
    """
    if not settings or len(set(held)) > 1:
        return None
    names = {kind: str(settings[kind].get("name", kind)) for kind in _LOADERS if kind in settings}
    goals = [names.get("goal", ""), *(kind[5:] for kind in settings if kind.startswith("goal "))]
    lines, notes = [f"redline {'traffic' if held else 'find-limit'}"], list[str]()
    for kind, name in names.items():
        own = _own(kind, name, settings[kind])
        value = ",".join(goals) if kind == "goal" else name
        lines.append(f"--{kind} {shlex.quote(value if own is not None else f'{value}.yaml')}")
        if own is None:
            notes.append(
                f"The file of the {kind} {name} is not part of kafka-redline: name your own file "
                "with the keys below."
            )
            continue
        lines += [f"--set {shlex.quote(each)}" for each in _overrides(kind, own, settings[kind])]
    if held:
        message_bytes, load = held[0]
        lines.append(f"--message-bytes {message_bytes} --np {load} --trials {len(held)}")
    return Command(tuple(lines), tuple(notes))


def _own(kind: str, name: str, recorded: Mapping[str, Any]) -> dict[str, Any] | None:
    """The content of the file with this name in conf/, in recorded form; None if the run did not
    use this file.
    """
    if name not in available(kind):
        return None
    try:
        read = describe(_LOADERS[kind](name))
    except ConfigError:  # the file has changed and is no longer valid; its keys are in the report
        return None
    plain: dict[str, Any] = json.loads(json.dumps(read, default=str))
    return plain if plain.get("description") == recorded.get("description") else None


def _overrides(kind: str, own: Mapping[str, Any], recorded: Mapping[str, Any]) -> Iterator[str]:
    """An override, such as `workload.producer.acks=all`, for each key whose value differs from the
    file.
    """
    for key in sorted({*own, *recorded} - {*_NAMING}):
        before, after = own.get(key), recorded.get(key)
        if isinstance(before, dict) and isinstance(after, dict) and before.keys() <= after.keys():
            for name in sorted(after):
                if before.get(name) != after[name]:
                    yield f"{kind}.{key}.{name}={_yaml(after[name])}"
        elif before != after:
            yield f"{kind}.{key}={_yaml(after)}"


def _yaml(value: Any) -> str:
    """A value as text for `--set KEY=VALUE`: a plain word, or JSON, which `--set` reads as YAML."""
    return value if isinstance(value, str) and value.isalpha() else json.dumps(value)


REPORT = "report.html"


def boundary_of(
    point: FinishedPoint,
    trials: Iterable[Trial],
    config: Configuration,
    goal: str,
    brokers: int,
    state: str = ALL_BROKERS,
) -> Boundary:
    """The boundary of one search. The boundary gets its reasons from the last OVERLOADED trial at
    the overloaded load: they are the reasons for the verdict of this trial.

    All overloads near the limit vote for the limiting resource.

    Args:
        point: the finished point of the search.
        trials: all trials of the run, oldest first.
        config: the configuration of the run.
        goal: the goal of the search.
        brokers: number of brokers.
        state: the state of the cluster during the search.
    """
    result, bracket = point.result, point.result.bracket
    done = result if isinstance(result, Done) else Done(bracket)
    asked = config.goal_named(goal)
    ever = [
        each
        for each in trials
        if each.point_message_bytes == point.message_bytes and each.state == state
    ]
    own = present_trials(point, ever)
    over = last_at(own, goal, bracket.overloaded, Verdict.OVERLOADED)
    held = last_at(own, goal, bracket.sustained, Verdict.SUSTAINED)
    votes = _votes_near_limit(own, bracket, config, goal)
    bound = combine_votes(votes, "overloads near the limit")
    gave_up = result.reason if isinstance(result, GaveUp) else None
    boundary = make_boundary(
        bracket,
        config.axis,
        config.workload.pattern(point.message_bytes, brokers),
        trials=len(ever),
        reasons=over.judgements[goal].reasons if over else (),
        limited_by=bound.resource if bound else None,
        gave_up=gave_up,
        interval=result.interval,
    )
    latency = held.evidence.client.latency if held else Quantiles()
    holds = split_history(point.history, confirmation_of(config.workload, asked))
    lasted = True if done.confirmed_s else None
    if any(each.load == bracket.sustained for each in holds.failed):
        lasted = False
    unchecked = "the limit was not checked for a change, because search.check_for_change is false"
    notes = (
        *done.notes,
        _nothing_sustained(result, config),
        contradiction(votes),
        *_held(point, holds, ever, config, goal),
        _other_traffic(own),
        *(impact := impact_of(own)).waits,
        *impact.load,
        unchecked if gave_up is None and not asked.search.check_for_change else None,
    )
    boundary = replace(
        boundary,
        goal=goal,
        evidence=bound.text if bound else "",
        notes=tuple(filter(None, notes)),
        changed=change_words(point, ever, config),
        state=state,
        interval_max=asked.search.widest_interval,
        latency_p50_ms=_known(latency.p50_ms),
        latency_p99_ms=_known(latency.p99_ms),
        latency_p999_ms=_known(latency.p999_ms),
        broker_resident_bytes=held.evidence.broker_resident_bytes if held else None,
        page_cache_bytes=held.evidence.page_cache_bytes if held else None,
        lasted=lasted,
        confidence=done.confidence,
        confirmed_s=done.confirmed_s,
    )
    return with_proof(boundary, own, goal)


def why_no_answer(boundary: Boundary, goal: Goal) -> str:
    """The reason why a boundary does not answer its goal; empty if the goal is answered."""
    if boundary.gave_up is not None:
        return open_words(boundary)
    return doubt_words(boundary) if goal.search.interval_required else ""


def _known(time_ms: float) -> float | None:
    return time_ms if math.isfinite(time_ms) else None


def _votes_near_limit(
    trials: Iterable[Trial], bracket: Bracket, config: Configuration, goal: str
) -> tuple[AttributionVote, ...]:
    """The votes of overloaded trials for the limiting resource; trials near the limit have more
    weight.
    """
    lowest = bracket.overloaded
    if lowest is None:
        return ()
    return tuple(
        AttributionVote(each.judgements[goal], config.axis.amount(each.load), lowest / each.load)
        for each in trials
        if each.judgements[goal].verdict is Verdict.OVERLOADED
        and lowest <= each.load <= lowest * VOTING_LOAD_RATIO_MAX
    )


def _nothing_sustained(result: Done | GaveUp, config: Configuration) -> str:
    """A note about a limit of 0. The cause of a limit of 0 is the cluster or the goal, not the
    load.
    """
    over = result.bracket.overloaded
    if result.bracket.sustained > 0 or over is None or isinstance(result, GaveUp):
        return ""
    return (
        f"even {config.axis.amount(over)} overloaded the cluster, so other clients load it, or it "
        "cannot meet this goal; check the reasons of the trials"
    )


def _held(
    point: FinishedPoint,
    holds: SplitHistory,
    trials: Sequence[Trial],
    config: Configuration,
    goal: str,
) -> Iterator[str]:
    """Notes about the holds that confirm the limit of a boundary point: one note for each load that
    did not last, and one note for the load that lasted.
    """
    for hold in holds.failed:
        held = [each for each in trials if each.held]
        over = last_at(held, goal, hold.load, Verdict.OVERLOADED)
        reasons = over.judgements[goal].reasons if over else ()
        why = f": {reasons[0].text}" if reasons else ""
        amount = config.axis.amount(hold.load)
        yield f"a hold of {amount} failed, because {describe_failure(hold)}{why}"
    if isinstance(point.result, Done) and point.result.confirmed_s is not None and holds.last:
        hold = holds.last
        yield (
            f"held for {format_duration(hold.held_s)} of load in {len(hold.valid)} windows, "
            f"{len(hold.overloads) or 'none'} of them overloaded"
        )


def _other_traffic(trials: Sequence[Trial]) -> str | None:
    """A note about other clients' traffic during the valid trials; None without such traffic."""
    valid = [
        (trial.evidence.others, 1e6 * (trial.evidence.client.achieved_mb_per_s or 0.0))
        for trial in trials
        if trial.evidence.others is not None
        and any(each.verdict is not Verdict.INVALID for each in trial.judgements.values())
    ]
    return traffic_beside([others for others, _ in valid], [own for _, own in valid])


def summary_of_run(
    run: RunState,
    config: Configuration,
    outcome: RunOutcome,
    boundaries: Sequence[Boundary] = (),
    trials: Sequence[Trial] = (),
    *,
    measurement: str | None,
) -> RunSummary:
    """The summary of a run, with the boundaries of a search or the trials of a fixed load."""
    started_at, finished_at = run.times
    used = run.context.config if run.contexts else config  # has the replicas of given topics
    return RunSummary(
        run_id=run.order.run_id,
        started_at=started_at,
        finished_at=finished_at,
        cluster=config.cluster.name,
        workload=config.workload.name,
        goal=config.goal_names,
        boundaries=tuple(boundaries),
        brokers=run.brokers,
        **asdict(outcome),
        caveat=run.caveat(config),
        environment=run.environment,
        replication_factor=used.workload.topic.replication_factor,
        consumer_groups=config.workload.consumers.groups,
        trials=tuple(map(trial_document, trials)),
        measurement=measurement or "",
        owner_bounds=run.owner_bounds,
    )


def conclude_run(run: RunState, config: Configuration, summary: RunSummary) -> None:
    """Write the files of a run, and report its end.

    Raises:
        ConfigError: a file could not be written; all other steps are done.
    """
    order = run.order
    made, series = None, None
    if run.contexts:
        made = run.context.history.trials
        series = panels_of_run(run.context.history.series, made)
        summary = replace(summary, impact=impact_of(made, run.canaries_after))
    settings = json.loads(config_text(config))
    files = write_results(summary, order, made, settings, series)
    took_s = time.time() - run.started_s
    order.reporter.report(RunFinished(summary, took_s, tuple(files.written)))
    files.require_all(
        f"fix the disk, then write the summary and the report with redline report {summary.run_id}"
    )


def write_results(
    summary: RunSummary,
    order: RunOrder,
    trials: Sequence[Trial] | None,
    settings: Settings,
    series: Panels | None = None,
) -> ArtifactWriter:
    """Write summary.json, the charts and the report; a failed file does not stop the other files.

    Args:
        summary: the summary of the run.
        order: the settings of the run, including the paths of the run's files and tables.
        trials: the trials of the run, see `write_report`; None to write no report, because the
            tables were never open.
        settings: the recorded configuration, see `write_report`.
        series: the readings over time, see `write_report`.
    """
    files, folder = ArtifactWriter(), order.folder
    path, page = folder / "summary.json", folder / REPORT
    files.write_answer_file("summary", path, order.json_file, partial(write_summary, summary))
    for goal, part in by_goal(summary):
        drawn = folder / f"boundary{f'-{goal}' if goal else ''}.html"
        picture = drawn.with_suffix(".png")
        is_written = part.boundaries and files.write(
            "chart", drawn, partial(_write_chart, part, drawn, picture)
        )
        if is_written and picture.exists():  # pictures need an optional package
            files.written.append(("chart", str(picture)))
    if trials is not None:
        files.write("report", page, lambda: write_report(page, summary, trials, settings, series))
        files.written.append(("tables", order.tables_or_default))
    files.written.sort(key=lambda each: each[0] != "report")  # the file for readers comes first
    return files


def _write_chart(summary: RunSummary, page: Path, picture: Path) -> None:
    # Imported here because Altair takes a tenth of the import time of a command without a result.
    from metrics.reporting.boundary_chart import write_chart

    write_chart(summary, page, picture)


def write_report(
    page: Path,
    summary: RunSummary,
    trials: Sequence[Trial],
    settings: Settings,
    series: Panels | None = None,
) -> None:
    """Write the report of a run.

    Args:
        trials: all trials of the run.
        settings: the configuration of the run, as `jobs.runs.resumption.config_text` records it.
        series: the readings over time; see `metrics.reporting.report_page.panels_of_run`.
    """
    from metrics.reporting.report_page import report_page  # as in `_write_chart`

    held = [(each.pattern.message_bytes, each.load) for each in trials] if is_held(summary) else []
    command = command_of(settings, held)
    write_atomic(page, report_page(build_report(summary, trials, settings, command, series)))


def series_from(tables: TableStore, run_id: str, trials: Sequence[Trial]) -> RunSeries:
    """The readings of trials over time, read from the tables."""
    series = RunSeries()
    samples, hosts = tables.samples_of(run_id), tables.host_samples_of(run_id)
    for trial in trials:
        series.add(trial, samples.get(trial.number, ()), hosts.get(trial.number, ()))
    return series

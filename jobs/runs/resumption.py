"""The resumption of a run from its recorded trials, by a replay of its search."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from jobs.config import Cluster, Configuration, Goal, Workload, describe
from jobs.config.base import Model, default_at
from jobs.config.cluster import are_started_by_run
from metrics.common.errors import ConfigError
from metrics.tables.rows import SERIES
from metrics.tables.store import TableStore
from metrics.trial.trial import Trial
from search.line import FinishedPoint, Line
from search.lines import (
    checkers_of,
    histories_at,
    next_check,
    next_size,
    searchers_of,
    with_checked,
)
from search.model import Measure, Observation

_OF_SERIES = re.compile(rf"{SERIES}\.(?:\d+\.)?(.+)")
_OF_CLUSTER = re.compile(r"cluster\.(id|brokers)|broker(\.\d+)?\.version")


def config_text(config: Configuration) -> str:
    """The whole configuration as JSON; secrets stay references."""
    settings = {kind: describe(getattr(config, kind)) for kind in ("cluster", "workload", "goal")}
    settings |= {f"goal {goal.name}": describe(goal) for goal in config.goals[1:]}
    return json.dumps(settings, default=str, sort_keys=True)


def resumed_trials(
    tables: TableStore, run_id: str, config_text: str, environment: Mapping[str, str]
) -> list[Trial]:
    """The finished trials of a run, oldest first.

    Args:
        tables: the tables that contain the run.
        run_id: the id of the run.
        config_text: the present configuration, which must equal the recorded configuration.
        environment: the present environment. The present cluster must be the recorded cluster. If
            each run starts its own brokers, the present versions must be the recorded versions
            instead.

    Raises:
        ConfigError: the run does not exist, is done, or differs in its configuration, its cluster
            or its exporters' series.
    """
    runs = tables.run_rows(run_id)
    if not runs:
        raise ConfigError(
            f"--resume names the run {run_id}, which is not in {tables.address('runs')}; "
            "expected a run of these tables; correct the id, or name its tables with --tables"
        )
    if runs[0].status == "done":
        raise ConfigError(
            f"the run {run_id} is done; expected an unfinished run to resume; redline report "
            f"{run_id} writes its report and a missing summary"
        )
    settings = json.loads(config_text)
    differing = differences(runs[0].settings, settings)
    if differing:
        raise ConfigError(
            f"the run {run_id} has another configuration: {'; '.join(differing)}; expected the "
            "same configuration; give the same files and --set options, or start a new run"
        )
    is_new = are_started_by_run(settings.get("cluster", {}))
    others = other_cluster(runs[0].environment, environment, is_new)
    if others:
        raise ConfigError(
            f"the run {run_id} was made on another cluster: {'; '.join(others)}; expected the "
            "same cluster, because trials of two clusters cannot be combined; name the cluster of "
            "the run, or start a new run"
        )
    require_same_series(f"the run {run_id}", runs[0].environment, environment)
    return tables.trials_of(run_id)


def other_cluster(
    then: Mapping[str, str], now: Mapping[str, str], is_new: bool = False
) -> list[str]:
    """The facts in which two clusters differ, such as `cluster.id was A and is B`.

    A fact that is missing in one environment is ignored.

    Args:
        then: the environment at the start of the run.
        now: the present environment.
        is_new: whether each run starts new brokers, so that the cluster ids differ.
    """
    names = sorted(name for name in then.keys() & now.keys() if _OF_CLUSTER.fullmatch(name))
    return [
        f"{name} was {then[name]} and is {now[name]}"
        for name in names
        if then[name] != now[name] and not (is_new and name == "cluster.id")
    ]


def require_same_series(run: str, then: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Check that the run still reads its metrics from the same exporter series as at its start.

    Args:
        run: name of the run for the message.
        then: the environment at the start of the run.
        now: the present environment.

    Raises:
        ConfigError: the series of a reading changed or disappeared.
    """
    moved = other_series(then, now)
    if moved:
        raise ConfigError(
            f"{run} read other series of the exporters: {'; '.join(moved)}; expected the same "
            "series, because the run's trials were judged with them; restore the exporters' rules, "
            "or start a new run"
        )


def other_series(then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The readings whose exporter series changed or disappeared.

    A new reading is ignored, because an exporter shows some series only after their first use. If
    one environment has no series, as with JMX, the result is empty.
    """
    before, after = _series_of(then), _series_of(now)
    if not after:
        return []
    return [
        f"{reading} was {' and '.join(before[reading])} and is "
        f"{' and '.join(after.get(reading, ['not shown']))}"
        for reading in sorted(before)
        if before[reading] != after.get(reading)
    ]


def _series_of(environment: Mapping[str, str]) -> dict[str, list[str]]:
    """Reading → the names of its series on all brokers, without duplicates."""
    found: dict[str, list[str]] = {}
    for name, series in sorted(environment.items()):
        named = _OF_SERIES.fullmatch(name)
        if named is not None:
            found.setdefault(named[1], []).append(series)
    return {reading: list(dict.fromkeys(each)) for reading, each in found.items()}


def differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The differences between two configurations, such as `goal.search.resolution was 0.1 and is
    0.2`.

    Budgets and guards may differ, so that a run can be resumed after a budget or a guard stopped
    it. A key that is missing in the recorded configuration differs only if its value is not the
    default.
    """
    return [
        f"{kind}.{key} was {then.get(kind, {}).get(key)} and is {now.get(kind, {}).get(key)}"
        for kind in sorted({*then, *now})
        for key in sorted({*then.get(kind, {}), *now.get(kind, {})})
        if not key.startswith(("search.budget.", "guards."))
        and then.get(kind, {}).get(key) != now.get(kind, {}).get(key)
        and (key in then.get(kind, {}) or now[kind][key] != _default(kind, key))
    ]


def _default(kind: str, key: str) -> Any:
    """The default of a key, in the form of `config_text`."""
    models: Mapping[str, Model] = {"cluster": Cluster, "workload": Workload, "goal": Goal}
    found = default_at(models[kind.partition(" ")[0]], key.split("."))
    return json.loads(json.dumps(dict(found) if isinstance(found, Mapping) else found, default=str))


def replay(
    lines: Mapping[str, Line], trials: Sequence[Trial]
) -> tuple[dict[str, list[FinishedPoint]], dict[str, tuple[Observation, ...]]]:
    """Replay a search; return each goal's finished points, and the observations of its unfinished
    point.

    The search decides only from the history, so the replay repeats its decisions.

    Args:
        lines: goal → the plan of its boundary line.
        trials: the recorded trials, oldest first.

    Raises:
        ConfigError: a search with the plans in `lines` would have made other trials than the
            recorded trials.
    """
    finished: dict[str, list[FinishedPoint]] = {goal: [] for goal in lines}
    begun: dict[str, tuple[Observation, ...]] = dict.fromkeys(lines, ())
    searched, used = _before_checks(lines, trials), 0
    stages = (
        (searched, next_size, searchers_of, False),
        (trials[len(searched) :], next_check, checkers_of, True),
    )
    for of_stage, following, searchers_at, checked in stages:
        while (message_bytes := following(lines, finished)) is not None:
            own = [trial for trial in of_stage if trial.point_message_bytes == message_bytes]
            used += len(own)
            before = histories_at(finished, message_bytes) if checked else begun
            histories = {
                goal: (*before[goal], *(each.observation(goal) for each in own)) for goal in lines
            }
            searchers = searchers_at(lines, message_bytes, finished)
            decisions = {goal: one.decide(histories[goal]) for goal, one in searchers.items()}
            ends = {goal: each for goal, each in decisions.items() if not isinstance(each, Measure)}
            if len(ends) < len(decisions):
                _require_all_used(used, trials)
                return finished, histories
            for goal, end in ends.items():
                point = FinishedPoint(message_bytes, end, histories[goal], checked=checked)
                finished[goal] = with_checked(finished[goal], point)
    _require_all_used(used, trials)
    return finished, begun


def _before_checks(lines: Mapping[str, Line], trials: Sequence[Trial]) -> Sequence[Trial]:
    """The trials before the first check; all trials if a line has `checks_at_once`. A check is a
    trial that shows whether the limit of a finished message size has changed.
    """
    if any(line.checks_at_once for line in lines.values()):
        return trials
    return list(takewhile(lambda each: not each.checks, trials))


def _require_all_used(used: int, trials: Sequence[Trial]) -> None:
    if used != len(trials):
        sizes = sorted({trial.point_message_bytes for trial in trials})
        raise ConfigError(
            f"the run has {len(trials)} trials at {', '.join(map(str, sizes))} B, but a search "
            f"with this goal and workload makes only {used} of them; expected the configuration of "
            "the run's start; start a new run without --resume"
        )

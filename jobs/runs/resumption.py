"""The trials of a run that is resumed: its own plan, and how far its search came."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from jobs.config import Configuration, describe
from jobs.config.cluster import are_started_by_run
from metrics.common.errors import ConfigError
from metrics.tables.store import TableStore
from metrics.trial.trial import Trial
from search.line import FinishedPoint, Line
from search.lines import next_size, searchers_of
from search.model import Measure, Observation

_OF_CLUSTER = re.compile(r"cluster\.(id|brokers)|broker(\.\d+)?\.version")


def config_text(config: Configuration) -> str:
    """The whole configuration as JSON; it holds references to secrets and no secrets."""
    settings = {kind: describe(getattr(config, kind)) for kind in ("cluster", "workload", "goal")}
    settings |= {f"goal {goal.name}": describe(goal) for goal in config.goals[1:]}
    return json.dumps(settings, default=str, sort_keys=True)


def resumed_trials(
    tables: TableStore, run_id: str, config_text: str, environment: Mapping[str, str]
) -> list[Trial]:
    """The trials that a run has made so far, oldest first.

    Args:
        config_text: the configuration to go on with, which must be the run's own.
        environment: the present environment; the cluster must be the run's own. Brokers that each
            run starts must be alike.

    Raises:
        ConfigError: there is no such run, it is done, or its plan or its cluster was another.
    """
    runs = tables.run_rows(run_id)
    if not runs:
        raise ConfigError(
            f"--resume names the run {run_id}, which is not in {tables.address('runs')}; "
            "expected a run of these tables; name it as its folder, or give its --tables"
        )
    if runs[0].status == "done":
        raise ConfigError(
            f"the run {run_id} is done; there is nothing to resume; redline report {run_id} writes "
            "its page, and its summary where that is missing"
        )
    differing = differences(json.loads(runs[0].config), json.loads(config_text))
    if differing:
        raise ConfigError(
            f"the run {run_id} had another plan: {'; '.join(differing)}; expected the same; "
            "give the same files and --set options, or start a new run"
        )
    cluster = json.loads(config_text).get("cluster", {})
    is_new = are_started_by_run(cluster)
    others = other_cluster(runs[0].environment or {}, environment, is_new)
    if others:
        raise ConfigError(
            f"the run {run_id} was made on another cluster: {'; '.join(others)}; expected the "
            "same, as trials of two clusters give no limit of either; name the run's own cluster, "
            "or start a new run"
        )
    return tables.trials_of(run_id)


def other_cluster(
    then: Mapping[str, str], now: Mapping[str, str], is_new: bool = False
) -> list[str]:
    """What says that two environments are of two clusters: `cluster.id was A and is B`.

    What either does not tell says nothing.

    Args:
        is_new: whether each run starts new brokers, whose cluster id differs.
    """
    names = sorted(name for name in then.keys() & now.keys() if _OF_CLUSTER.fullmatch(name))
    return [
        f"{name} was {then[name]} and is {now[name]}"
        for name in names
        if then[name] != now[name] and not (is_new and name == "cluster.id")
    ]


def differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs between two configurations, by file and key: `key was A and is B`.

    Budgets and guards may differ: raising one is what a run that it stopped is resumed for.
    """
    return [
        f"{kind}.{key} was {then.get(kind, {}).get(key)} and is {now.get(kind, {}).get(key)}"
        for kind in sorted({*then, *now})
        for key in sorted({*then.get(kind, {}), *now.get(kind, {})})
        if not key.startswith(("search.budget.", "guards."))
        and then.get(kind, {}).get(key) != now.get(kind, {}).get(key)
    ]


def replay(
    lines: Mapping[str, Line], trials: Sequence[Trial]
) -> tuple[dict[str, list[FinishedPoint]], dict[str, tuple[Observation, ...]]]:
    """How far a search came: finished points and trials of the one in progress, by goal.

    The search decides from the history alone, so what it decided is decided again.

    Raises:
        ConfigError: these trials are not what these lines would have measured.
    """
    finished: dict[str, list[FinishedPoint]] = {goal: [] for goal in lines}
    used = 0
    while (message_bytes := next_size(lines, finished)) is not None:
        own = [trial for trial in trials if trial.point_message_bytes == message_bytes]
        used += len(own)
        histories = {goal: tuple(each.observation(goal) for each in own) for goal in lines}
        searchers = searchers_of(lines, message_bytes, finished)
        decisions = {goal: one.decide(histories[goal]) for goal, one in searchers.items()}
        if any(isinstance(decision, Measure) for decision in decisions.values()):
            _require_all_used(used, trials)
            return finished, histories
        for goal, decision in decisions.items():
            if not isinstance(decision, Measure):
                finished[goal].append(FinishedPoint(message_bytes, decision, histories[goal]))
    _require_all_used(used, trials)
    return finished, dict.fromkeys(lines, ())


def _require_all_used(used: int, trials: Sequence[Trial]) -> None:
    if used != len(trials):
        sizes = sorted({trial.point_message_bytes for trial in trials})
        raise ConfigError(
            f"the run has {len(trials)} trials at {', '.join(map(str, sizes))} B, and with this "
            f"goal and workload its search would have made only {used} of them; expected the plan "
            "that the run began with; run again without --resume"
        )

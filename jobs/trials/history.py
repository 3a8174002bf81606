"""The trials of a run as the search and the results need them, fresh or read from the tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from metrics.tables.schema import Trial
from metrics.tables.store import TableStore
from metrics.trial.judgement import Judgement, Reason
from metrics.windows.resource import Resource
from search.errors import ConfigError
from search.line import FinishedPoint, Line
from search.lines import next_size, searchers_of
from search.model import Measure, Observation, Verdict


@dataclass(frozen=True)
class TrialRecord:
    """One finished trial.

    Attributes:
        number: within the run, from 1.
        bpm: message size of the boundary point that it belongs to [B].
        load: on the axis that is searched.
        duration_s: all phases [s].
        judgements: goal → what it says of the trial.
    """

    number: int
    bpm: int
    load: int
    duration_s: float
    judgements: Mapping[str, Judgement]

    def observation(self, goal: str) -> Observation:
        """The trial as the search of a goal sees it."""
        judged = self.judgements[goal]
        return Observation(self.load, judged.verdict, dict(judged.utilization), self.duration_s)


def record_of(trial: Trial) -> TrialRecord:
    """A trial that was just made."""
    pattern = trial.pattern
    return TrialRecord(
        number=trial.trial,
        bpm=pattern.point_bpm or pattern.bpm,
        load=pattern.load or pattern.np,
        duration_s=trial.finished_at_s - trial.started_at_s,
        judgements=trial.verdicts,
    )


def record_from(row: Mapping[str, Any]) -> TrialRecord:
    """A row of the table `trials`, as `Row.asDict(recursive=True)` gives it."""
    return TrialRecord(
        number=row["trial"],
        bpm=row["point_bpm"],
        load=row["load"],
        duration_s=(row["finished_at"] - row["started_at"]).total_seconds(),
        judgements={goal: _judgement(each) for goal, each in row["verdicts"].items()},
    )


def _judgement(row: Mapping[str, Any]) -> Judgement:
    return Judgement(
        verdict=Verdict(row["verdict"]),
        reasons=tuple(
            Reason(**{**reason, "resource": Resource(reason["resource"])})
            for reason in row["reasons"]
        ),
        utilization=dict(row["utilization"]),
        limited_by=None if row["limited_by"] is None else Resource(row["limited_by"]),
        attribution=row["attribution"] or "",
    )


def resumed_records(tables: TableStore, run_id: str, config_text: str) -> list[TrialRecord]:
    """The trials that a run has made so far, oldest first.

    Args:
        config_text: the configuration to go on with, which must be the run's own.

    Raises:
        ConfigError: there is no such run, it is done, or its configuration was another.
    """
    runs = tables.runs().where(f"run_id = '{run_id}'").collect()
    if not runs:
        raise ConfigError(
            f"--resume names the run {run_id}, which is not in {tables.address('runs')}; "
            "expected a run of these tables; name it as its folder, or give its --tables"
        )
    if runs[0].status == "done":
        raise ConfigError(f"the run {run_id} is done; there is nothing to resume")
    differing = differences(json.loads(runs[0].config), json.loads(config_text))
    if differing:
        raise ConfigError(
            f"the run {run_id} had another plan: {'; '.join(differing)}; expected the same; "
            "give the same files and --set options, or start a new run"
        )
    return [record_from(row) for row in tables.trial_rows(run_id)]


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
    lines: Mapping[str, Line], records: Sequence[TrialRecord]
) -> tuple[dict[str, list[FinishedPoint]], dict[str, tuple[Observation, ...]]]:
    """How far a search came: finished points and trials of the one in progress, by goal.

    The search decides from the history alone, so what it decided is decided again.

    Raises:
        ConfigError: these trials are not what these lines would have measured.
    """
    finished: dict[str, list[FinishedPoint]] = {goal: [] for goal in lines}
    used = 0
    while (bpm := next_size(lines, finished)) is not None:
        own = [record for record in records if record.bpm == bpm]
        used += len(own)
        histories = {goal: tuple(each.observation(goal) for each in own) for goal in lines}
        searchers = searchers_of(lines, bpm, finished)
        decisions = {goal: one.decide(histories[goal]) for goal, one in searchers.items()}
        if any(isinstance(decision, Measure) for decision in decisions.values()):
            _require_all_used(used, records)
            return finished, histories
        for goal, decision in decisions.items():
            if not isinstance(decision, Measure):
                finished[goal].append(FinishedPoint(bpm, decision, histories[goal]))
    _require_all_used(used, records)
    return finished, dict.fromkeys(lines, ())


def _require_all_used(used: int, records: Sequence[TrialRecord]) -> None:
    if used != len(records):
        sizes = sorted({record.bpm for record in records})
        raise ConfigError(
            f"the run has {len(records)} trials at {', '.join(map(str, sizes))} B, and with this "
            f"goal and workload its search would have made only {used} of them; expected the plan "
            "that the run began with; run again without --resume"
        )

"""The trials of a run as the search and the results need them, fresh or read from the tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from metrics.evidence import Reason, Resource
from metrics.schema import Trial
from metrics.store import TableStore
from search.errors import ConfigError
from search.line import FinishedPoint, Line
from search.model import Measure, Observation, Verdict


@dataclass(frozen=True)
class TrialRecord:
    """One finished trial.

    Attributes:
        number: within the run, from 1.
        bpm: message size of the boundary point that it belongs to [B].
        reasons: of its verdict.
        limited_by: what bound the brokers, of an overload; `evidence` says why.
    """

    number: int
    bpm: int
    observation: Observation
    reasons: tuple[Reason, ...]
    limited_by: Resource | None
    evidence: str = ""


def record_of(trial: Trial) -> TrialRecord:
    """A trial that was just made."""
    judgement = trial.judgement
    seen = Observation(
        load=trial.pattern.load or trial.pattern.np,
        verdict=judgement.verdict,
        indicators=dict(judgement.utilization),
        duration_s=trial.finished_at_s - trial.started_at_s,
    )
    return TrialRecord(
        trial.trial,
        trial.pattern.point_bpm or trial.pattern.bpm,
        seen,
        judgement.reasons,
        judgement.limited_by,
        judgement.attribution,
    )


def record_from(row: Mapping[str, Any]) -> TrialRecord:
    """A row of the table `trials`, as `Row.asDict(recursive=True)` gives it."""
    seen = Observation(
        load=row.get("load") or row["np"],
        verdict=Verdict(row["verdict"]),
        indicators=dict(row["utilization"]),
        duration_s=(row["finished_at"] - row["started_at"]).total_seconds(),
    )
    reasons = tuple(
        Reason(**{**reason, "resource": Resource(reason["resource"])}) for reason in row["reasons"]
    )
    limited_by = None if row["limited_by"] is None else Resource(row["limited_by"])
    evidence = row["attribution"] or ""
    return TrialRecord(
        row["trial"], row.get("point_bpm") or row["bpm"], seen, reasons, limited_by, evidence
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
    rows = tables.trials(run_id).collect()
    return [record_from(row.asDict(recursive=True)) for row in rows]


def differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs between two configurations, by file and key: `key was A and is B`.

    A budget may differ: raising it is what a run that used it up is resumed for.
    """
    return [
        f"{kind}.{key} was {then.get(kind, {}).get(key)} and is {now.get(kind, {}).get(key)}"
        for kind in sorted({*then, *now})
        for key in sorted({*then.get(kind, {}), *now.get(kind, {})})
        if not key.startswith("search.budget.")
        and then.get(kind, {}).get(key) != now.get(kind, {}).get(key)
    ]


def replay(
    line: Line, records: Sequence[TrialRecord]
) -> tuple[list[FinishedPoint], tuple[Observation, ...]]:
    """How far a search came: its finished points, and the trials of the one in progress.

    The search decides from the history alone, so what it decided is decided again.

    Raises:
        ConfigError: these trials are not what this line would have measured.
    """
    finished: list[FinishedPoint] = []
    used = 0
    while (bpm := line.next_bpm(finished)) is not None:
        history = tuple(r.observation for r in records if r.bpm == bpm)
        used += len(history)
        decision = line.searcher(bpm, finished).decide(history)
        if isinstance(decision, Measure):
            _require_all_used(used, records)
            return finished, history
        finished.append(FinishedPoint(bpm, decision, history))
    _require_all_used(used, records)
    return finished, ()


def _require_all_used(used: int, records: Sequence[TrialRecord]) -> None:
    if used != len(records):
        sizes = sorted({record.bpm for record in records})
        raise ConfigError(
            f"the run has {len(records)} trials at {', '.join(map(str, sizes))} B, and with this "
            f"goal and workload its search would have made only {used} of them; expected the plan "
            "that the run began with; run again without --resume"
        )

"""The answer of a run for programs: the file summary.json, and its JSON Schema.

The schema is generated from `RunSummary`. `python -m metrics.reporting.summary
docs/reference/summary.schema.json` writes the schema to this JSON file. A test fails if the JSON
file is out of date.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from metrics.columns import as_document, fields_of, restored
from metrics.common.errors import ConfigError
from metrics.judging.disk_proof import proof_of
from metrics.reporting.files import json_text, write_atomic
from metrics.reporting.impact import Impact
from metrics.tables.boundary import Boundary
from metrics.trial.trial import ALL_BROKERS, Trial, moved_s
from metrics.units import iso_utc

SCHEMA_VERSION = 1
DERIVED = (
    "mb_per_s_overloaded",
    "mb_per_s_per_broker_overloaded",
    "relative_width",
    *(each.name for each in fields_of(Boundary) if each.is_derived),
)


@dataclass(frozen=True)
class RunSummary:
    """The answer of a run.

    Attributes:
        run_id: name of the run in the tables, and of its folder.
        started_at, finished_at: ISO 8601, UTC.
        cluster, workload, goal: names of the configuration files.
        boundaries: the boundary points, one per message size, in the order of the workload.
        brokers: number of brokers; 0 if not known.
        status: `done`, `no conclusion`, `stopped by a guard`, `interrupted`, `terminated` or
            `failed`.
        exit_code: exit code of the command.
        error: the error message that the user saw, or None.
        caveat: a restriction that readers of the figures must know, or empty.
        environment: facts that a comparison of two runs needs, see `metrics.tables.rows`.
        replication_factor, consumer_groups: replication factor and number of consumer groups in the
            traffic pattern; a replication factor of 0 means that it is not known.
        trials: the trials of a run at fixed loads, as `trial_document` returns them; empty after a
            search.
        measurement: the measurement that the run makes, as in the table `runs`; empty in files of
            older versions.
        carries: whether the cluster sustains a fixed load; None without a conclusion, and after a
            search.
        answer: the answer about the fixed load in one line; empty after a search.
        owner_bounds: topic in which the cluster's owner sets bounds → the bounds that were valid at
            the end of the run.
        impact: the effect of the run on other clients; None before the first trial, and in files of
            older versions.
    """

    run_id: str
    started_at: str
    finished_at: str
    cluster: str
    workload: str
    goal: str
    boundaries: tuple[Boundary, ...]
    brokers: int = 0
    status: str = "done"
    exit_code: int = 0
    error: str | None = None
    caveat: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    replication_factor: int = 0
    consumer_groups: int = 0
    trials: tuple[Mapping[str, Any], ...] = ()
    measurement: str = ""
    carries: bool | None = None
    answer: str = ""
    owner_bounds: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    impact: Impact | None = None


def chosen_goal(boundaries: Sequence[Boundary], run_id: str, goal: str | None) -> str:
    """The name of the chosen goal of a run. If `goal` is None, the result is the run's only goal.

    Raises:
        ConfigError: the run has no goal with this name; or `goal` is None, although the run has
            several goals.
    """
    goals = list(dict.fromkeys(each.goal for each in boundaries))
    chosen = goals[0] if goal is None and len(goals) == 1 else goal
    if chosen is None or chosen not in goals:
        raise ConfigError(
            f"run {run_id} has the goals {', '.join(goals) or 'none'}, and --goal is "
            f"{goal or 'missing'}; expected one of these goals; name it with --goal"
        )
    return chosen


def by_goal(summary: RunSummary) -> list[tuple[str, RunSummary]]:
    """One summary for each combination of a goal and a state of the cluster, as (name, summary).

    The name is used in file names, so it has no spaces. The name is empty if there is only one
    summary.
    """
    found = list(dict.fromkeys((each.goal, each.state) for each in summary.boundaries))
    if len(found) < 2:
        return [("", summary)]
    several = len({goal for goal, _ in found}) > 1
    parts = []
    for goal, state in found:
        boundaries = tuple(b for b in summary.boundaries if (b.goal, b.state) == (goal, state))
        title = goal if state == ALL_BROKERS else f"{goal}, {state}"
        named = [goal] if several else []
        named += [] if state == ALL_BROKERS else [state.replace(" ", "-")]
        parts.append(("-".join(named), replace(summary, goal=title, boundaries=boundaries)))
    return parts


def trial_document(trial: Trial) -> dict[str, Any]:
    """A trial of a fixed load for summary.json. A value is None if it is not known.

    Sizes and rates are sizes and rates of the payload. MB is 10⁶ bytes. Latencies are measured from
    the intended send time.
    """
    evidence, client, pattern = trial.evidence, trial.evidence.client, trial.pattern
    proof = proof_of(trial)
    latencies = {
        f"latency_{name}": value if math.isfinite(value) else None
        for name, value in asdict(client.latency).items()
        if name != "p95_ms"
    }
    return {
        "trial": trial.number,
        "started_at": iso_utc(trial.started_at_s),
        "bpm": pattern.message_bytes,
        "np": pattern.producers,
        "axis": pattern.axis,
        "load": trial.load,
        "duration_s": client.duration_s,
        "closed_loop": pattern.producer.closed_loop,
        "offered_mb_per_s": client.offered_mb_per_s,
        "achieved_mb_per_s": client.achieved_mb_per_s,
        "verdict": trial.verdict.value,
        "reasons": [f"{reason.indicator}: {reason.text}" for reason in trial.reasons],
        "limited_by": None if trial.limited_by is None else trial.limited_by.value,
        "evidence": trial.attribution,
        "handler_idle_min": evidence.handler_idle_min,
        "handler_s_per_mb": evidence.handler_s_per_mb,
        "producer_cpu_s_per_mb": evidence.producer_cpu_s_per_mb,
        "broker_cpu_s_per_mb": evidence.broker_cpu_s_per_mb,
        "commit_mean_ms": client.counts.commit_mean_ms,
        "log_bytes_per_byte": evidence.log_bytes_per_byte,
        "broker_resident_bytes": evidence.broker_resident_bytes,
        "page_cache_bytes": evidence.page_cache_bytes,
        "leaders_back_s": trial.leaders_back_s,
        "recovery_s": trial.recovery_s,
        "retried_records": sum(client.counts.by_producer.retried.values()),
        "failed_records": client.counts.failed_total,
        "volume_bytes": pattern.phases.volume_bytes,
        "moved_s": moved_s(pattern, client),
        "taken_bytes": proof.taken_bytes,
        "proven_on_disk": proof.on_disk,
        "memory_bytes": proof.absorbed_bytes,
        "memory_full_s": proof.full_s,
        "proof_note": proof.note,
        **latencies,
    }


def write_summary(summary: RunSummary, path: Path) -> None:
    """Write a summary as strict JSON. The write is atomic.

    Raises:
        ValueError: a number is NaN or infinite, so nothing was written.
    """
    document = as_document(summary) | {"schema_version": SCHEMA_VERSION}
    document["boundaries"] = [
        as_document(boundary) | {name: getattr(boundary, name) for name in DERIVED}
        for boundary in summary.boundaries
    ]
    write_atomic(path, json_text(document))


def load_summary(path: Path) -> RunSummary:
    """Read a file that `write_summary` has written. Keys that only a newer version has are ignored.

    Raises:
        ConfigError: the file is missing or is not a summary.
    """
    try:
        document = json.loads(
            path.read_text(encoding="utf-8"), parse_float=_finite, parse_constant=_finite
        )
        return restored(RunSummary, document)
    except FileNotFoundError:
        raise ConfigError(
            f"{path} does not exist; expected the summary.json of a finished run, "
            "OUT/RUN_ID/summary.json; correct the path"
        ) from None
    except _WRONG as error:
        raise ConfigError(
            f"{path} is not the summary of a run ({type(error).__name__}: {error}); "
            "expected a file OUT/RUN_ID/summary.json that redline has written; correct the path"
        ) from error


_WRONG = (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not a finite number")
    return number


DRAFT = "https://json-schema.org/draft/2020-12/schema"


def summary_schema() -> dict[str, Any]:
    """The JSON Schema of summary.json in this version. Readers must ignore unknown keys."""
    schema = TypeAdapter(RunSummary).json_schema()
    for each in (schema, *schema.get("$defs", {}).values()):
        text = each.get("description", "")
        each["description"] = " ".join(text.split("\n\nAttributes:")[0].split())
    schema["properties"]["schema_version"] = {"const": SCHEMA_VERSION}
    schema["required"].append("schema_version")
    boundary = schema["$defs"]["Boundary"]
    names = {each.attribute: each.name for each in fields_of(Boundary)}
    boundary["properties"] = {names[key]: item for key, item in boundary["properties"].items()}
    boundary["required"] = [names[key] for key in boundary["required"]]
    for name in DERIVED:
        boundary["properties"].setdefault(
            name, {"description": "derived from other keys; null if not known"}
        )
    return {"$schema": DRAFT, **_without_titles(schema)}


def _without_titles(part: Any) -> Any:
    """Remove the titles from the schema, because a title only repeats the name of its key."""
    if isinstance(part, list):
        return [_without_titles(each) for each in part]
    if not isinstance(part, dict):
        return part
    return {
        key: _without_titles(value)
        for key, value in part.items()
        if not (key == "title" and isinstance(value, str))
    }


def schema_text() -> str:
    """The content of docs/reference/summary.schema.json."""
    return json.dumps(summary_schema(), indent=2, ensure_ascii=False) + "\n"


LIMIT, LOAD = "limit", "load"


def inferred_measurement(
    has_points: bool, trials: Sequence[Mapping[str, Any]] = (), status: str = ""
) -> str:
    """The name of a measurement, for a run or sweep of an older version. The name of the
    measurement is inferred from the results.

    Newer versions store the measurement in the table `runs` and in summary.json.

    Args:
        has_points: True if the run has boundary points.
        trials: the trials, as rows of the table `trials` or from summary.json; empty after a
            search.
        status: status of the run, as in the table `runs`.
    """
    if has_points:
        return LIMIT
    if any(row.get("leaders_back_s") is not None for row in trials):
        return "failover"
    volumes = {row.get("volume_bytes") for row in trials} - {None}
    if volumes:
        return "drain" if 0 in volumes else "fill"
    return LOAD if trials or status == "done" else LIMIT


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(schema_text(), encoding="utf-8")

"""The list of all runs in the folder `--out`, read from the files of each run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from metrics.columns import restored
from metrics.reporting.files import write_file
from metrics.reporting.limit_answer import answer_of
from metrics.reporting.summary import LIMIT, inferred_measurement
from metrics.reporting.templating import render
from metrics.tables.boundary import Boundary
from metrics.tables.rows import Outcome
from metrics.units import format_size, iso_utc

TAGS = "tags.json"
"""Name of a file in the run's folder. The file contains the run's tags as a JSON list of strings.
"""
INDEX = "index.html"

_FILES = {
    "sweep.json": "sweep",
    "compare.json": "compare",
    "nightly.json": "nightly",
    "summary.json": "run",
}
"""Name of a JSON file in a run's folder → the job that writes the file. If a folder has several of
these files, the first name in the list counts."""
_TEXT_KEYS = ("started_at", "status", "cluster", "workload", "goal", "error")
_PAGES = ("sweep.html", "report.html", "compare.html", "nightly.html")


@dataclass(frozen=True)
class KnownRun:
    """A run in the list of all runs, with a short form of its result, such as the limit.

    Attributes:
        run_id: name of the run's folder.
        job: `find-limit`, `traffic`, `sweep`, `compare` or `nightly`.
        started_at: start time (ISO 8601, UTC); empty if the time is not known.
        status: status of the run at its end; `running` or `killed` if the folder has no answer.
        cluster, workload, goal: name of the configuration file; empty if the run has several such
            files or no such file.
        answer: a short form of the run's result.
        page: path of the run's HTML page, relative to the folder of all runs; empty if there is no
            page.
        tags: tags that the user gave to the run.
    """

    run_id: str
    job: str
    started_at: str
    status: str
    cluster: str = ""
    workload: str = ""
    goal: str = ""
    answer: str = ""
    page: str = ""
    tags: tuple[str, ...] = ()


IsDriven = Callable[[Path], bool]
"""A function that returns True if a process is driving the run in a folder."""


def known_runs(out: Path, is_driven: IsDriven) -> list[KnownRun]:
    """All runs in a folder, newest first. A run with an unreadable file has the status
    `unreadable`.

    Args:
        out: the folder `--out`.
        is_driven: function that returns True for the folder of a run in progress, and False for a
            run whose driver was killed.
    """
    if not out.is_dir():
        return []
    folders = sorted(out.iterdir())
    found = [run for folder in folders if (run := _run_in(folder, is_driven)) is not None]
    return sorted(found, key=lambda run: (run.started_at, run.run_id), reverse=True)


def _run_in(folder: Path, is_driven: IsDriven) -> KnownRun | None:
    """The run in a folder; None if the folder does not belong to a run."""
    if not folder.is_dir():
        return None
    tags = tags_of(folder)
    page = next((f"{folder.name}/{page}" for page in _PAGES if (folder / page).exists()), "")
    for name, job in _FILES.items():
        file = folder / name
        if file.exists():
            return _read(folder.name, file, job, page, tags)
    if (folder / "run.log").exists() or (folder / "experiment.json").exists():
        status = "running" if is_driven(folder) else "killed"
        started_at = _start_time(folder.name)
        return KnownRun(folder.name, "", started_at, status, page=page, tags=tags)
    return None


def _start_time(run_id: str) -> str:
    """The start time that a run's id contains (ISO 8601, UTC); empty if the id contains no time."""
    try:
        begun = datetime.strptime(run_id[:15], "%Y%m%d-%H%M%S").replace(tzinfo=timezone.utc)
    except ValueError:
        return ""
    return iso_utc(begun.timestamp())


def tags_of(folder: Path) -> tuple[str, ...]:
    """The tags of a run; empty if their file is missing or does not contain a list."""
    try:
        tags = json.loads((folder / TAGS).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return ()
    return tuple(map(str, tags)) if isinstance(tags, list) else ()


def write_tags(folder: Path, tags: Sequence[str]) -> None:
    """Store the tags of a run in its folder.

    Raises:
        ConfigError: the folder is not writable.
    """
    text = json.dumps(list(tags), ensure_ascii=False) + "\n"
    write_file("the file of a run's tags", folder / TAGS, text)


def _read(run_id: str, file: Path, job: str, page: str, tags: tuple[str, ...]) -> KnownRun:
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        kind = _job_of(document) if job == "run" else job
        answer = _ANSWERS[kind](document)
        texts = [str(document.get(name) or "") for name in _TEXT_KEYS]
        started_at, status, cluster, workload, goal, error = texts
        return KnownRun(
            run_id, kind, started_at, status, cluster, workload, goal, answer or error, page, tags
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as wrong:
        text = f"{file.name}: {type(wrong).__name__}: {wrong}"
        return KnownRun(run_id, job, "", "unreadable", answer=text, page=page, tags=tags)


def _job_of(document: Mapping[str, Any]) -> str:
    measurement = document.get("measurement") or inferred_measurement(
        bool(document["boundaries"]), document.get("trials", ())
    )
    return "find-limit" if measurement == LIMIT else "traffic"


def _limits_answer(document: Mapping[str, Any]) -> str:
    limits = [restored(Boundary, each) for each in document["boundaries"]]
    by_goal: dict[str, list[str]] = {}
    for each in limits:
        answer = answer_of(each)
        if not each.gave_up:
            by_goal.setdefault(each.goal, []).append(f"{answer.size}: {answer.figure}")
    several = len({each.goal for each in limits}) > 1
    named = {goal: f"{goal}: " if several else "" for goal in by_goal}
    return "; ".join(f"{named[goal]}{', '.join(own)}" for goal, own in by_goal.items())


def _load_answer(document: Mapping[str, Any]) -> str:
    if document.get("answer"):
        return str(document["answer"])
    verdicts = [str(each["verdict"]) for each in document["trials"]]
    counted = (f"{verdicts.count(name)} {name}" for name in dict.fromkeys(verdicts))
    size = f"{format_size(document['trials'][0]['bpm'])}: " if verdicts else ""
    return f"{size}{', '.join(counted)}"


def _sweep_answer(document: Mapping[str, Any]) -> str:
    cases = len({json.dumps(each["settings"], sort_keys=True) for each in document["results"]})
    return f"{document['experiment']}: {cases} cases"


def _comparison_answer(document: Mapping[str, Any]) -> str:
    cases = ", ".join(
        f"{format_size(case['bpm'])}: {case['conclusion']}" for case in document["cases"]
    )
    labels = f"{document['b']['label']} against {document['a']['label']}" if cases else ""
    return f"{labels}: {cases}" if cases else ""


def _night_answer(document: Mapping[str, Any]) -> str:
    cases: dict[Outcome, list[str]] = {}
    for each in document["cases"]:
        cases.setdefault(Outcome(each["outcome"]), []).append(each["case"])
    found = [
        f"{len(names)} {outcome.value}" + (f" ({', '.join(names)})" if outcome.stands_out else "")
        for outcome in Outcome
        if (names := cases.get(outcome))
    ]
    return f"suite {document['suite']}, night {document['night']}: {', '.join(found)}"


_ANSWERS = {
    "find-limit": _limits_answer,
    "traffic": _load_answer,
    "sweep": _sweep_answer,
    "compare": _comparison_answer,
    "nightly": _night_answer,
}


def write_index(out: Path, runs: Sequence[KnownRun]) -> Path:
    """Write the HTML page of all runs, and return its path.

    Args:
        out: the folder of all runs.
        runs: all runs of the folder.

    Raises:
        ConfigError: the page cannot be written.
    """
    path = out / INDEX
    write_file("the page of all runs", path, render("index.html", runs=runs))
    return path


def table_rows(runs: Sequence[KnownRun]) -> Iterator[tuple[str, ...]]:
    """The rows of a table of runs; `COLUMNS` has the headings."""
    for each in runs:
        what = " ".join(filter(None, (each.cluster, each.workload, each.goal)))
        name = f"{each.run_id} [{', '.join(each.tags)}]" if each.tags else each.run_id
        yield name, each.job, each.started_at, each.status, what, each.answer


COLUMNS = ("run", "job", "started", "status", "cluster, workload, goal", "answer")

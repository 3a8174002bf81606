"""The runs that left a folder, whatever job they were of, read from the files they left there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from metrics.columns import restored
from metrics.reporting.files import write_file
from metrics.reporting.templating import render
from metrics.tables.boundary import Boundary
from metrics.tables.cases import Outcome
from metrics.units import format_mb_per_s, format_size, iso_utc

TAGS = "tags.json"
"""In a run's folder: what people called it, a list of words."""
INDEX = "index.html"
_UNREADABLE = "unreadable"

_FILES = {
    "sweep.json": "sweep",
    "compare.json": "compare",
    "nightly.json": "nightly",
    "summary.json": "run",
}
"""What a run leaves for programs → the job; of a run with several of them the first counts."""
_TOLD = ("started_at", "status", "cluster", "workload", "goal", "error")
_PAGES = ("sweep.html", "report.html", "compare.html", "nightly.html")


@dataclass(frozen=True)
class KnownRun:
    """A run and its answer in a line.

    Attributes:
        run_id: its folder's name.
        job: `find-limit`, `traffic`, `sweep`, `compare` or `nightly`.
        started_at: ISO 8601, UTC; empty where it is not known.
        status: how it ended; `running` or `killed` of a folder without an answer.
        cluster, workload, goal: names of its configuration; empty where it has several, or none.
        answer: in a few words.
        page: its page for people, relative to the folder of all runs; empty where it has none.
        tags: what people called it.
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
"""Whether a process drives the run of a folder."""


def known_runs(out: Path, is_driven: IsDriven) -> list[KnownRun]:
    """All runs of a folder, the newest first; a file that cannot be read is told, and hides none.

    Args:
        out: as runs had it by --out.
        is_driven: tells a run that goes on from one whose driver was killed.
    """
    if not out.is_dir():
        return []
    folders = sorted(out.iterdir())
    found = [run for folder in folders if (run := _run_in(folder, is_driven)) is not None]
    return sorted(found, key=lambda run: (run.started_at, run.run_id), reverse=True)


def _run_in(folder: Path, is_driven: IsDriven) -> KnownRun | None:
    """The run of a folder; None where the folder is none of a run's."""
    if not folder.is_dir():
        return None
    tags, page = tags_of(folder), _page_in(folder)
    for name, job in _FILES.items():
        file = folder / name
        if file.exists():
            return _read(folder.name, file, job, page, tags)
    if (folder / "run.log").exists() or (folder / "experiment.json").exists():
        status = "running" if is_driven(folder) else "killed"
        return KnownRun(folder.name, "", _begun(folder.name), status, page=page, tags=tags)
    return None


def _begun(run_id: str) -> str:
    """When a run began, ISO 8601, UTC, as far as its id tells; else empty."""
    try:
        begun = datetime.strptime(run_id[:15], "%Y%m%d-%H%M%S").replace(tzinfo=timezone.utc)
    except ValueError:
        return ""
    return iso_utc(begun.timestamp())


def _page_in(folder: Path) -> str:
    return next((f"{folder.name}/{page}" for page in _PAGES if (folder / page).exists()), "")


def tags_of(folder: Path) -> tuple[str, ...]:
    """What people called a run; none where the file is no list of words."""
    try:
        told = json.loads((folder / TAGS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ()
    return tuple(map(str, told)) if isinstance(told, list) else ()


def write_tags(folder: Path, tags: Sequence[str]) -> None:
    """Keep what people call a run.

    Raises:
        ConfigError: its folder cannot be written to.
    """
    text = json.dumps(list(tags), ensure_ascii=False) + "\n"
    write_file("the file of a run's tags", folder / TAGS, text)


def _read(run_id: str, file: Path, job: str, page: str, tags: tuple[str, ...]) -> KnownRun:
    try:
        told = json.loads(file.read_text(encoding="utf-8"))
        kind = _kind_of(told) if job == "run" else job
        answer = _ANSWERS[kind](told)
        texts = [str(told.get(name) or "") for name in _TOLD]
        started_at, status, cluster, workload, goal, error = texts
        return KnownRun(
            run_id, kind, started_at, status, cluster, workload, goal, answer or error, page, tags
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as wrong:
        text = f"{file.name}: {type(wrong).__name__}: {wrong}"
        return KnownRun(run_id, job, "", _UNREADABLE, answer=text, page=page, tags=tags)


def _kind_of(told: Mapping[str, Any]) -> str:
    return "traffic" if told.get("trials") else "find-limit"


def _limits(told: Mapping[str, Any]) -> str:
    limits = [restored(Boundary, each) for each in told["boundaries"]]
    kinds = dict.fromkeys((each.goal, each.state) for each in limits)
    parts = []
    for goal, state in kinds:
        own = [each for each in limits if (each.goal, each.state) == (goal, state)]
        words = ", ".join(_limit_words(each) for each in own if not each.gave_up)
        if words:
            parts.append(f"{goal}, {state}: {words}" if len(kinds) > 1 else words)
    return "; ".join(parts)


def _limit_words(limit: Boundary) -> str:
    at, (load, _) = format_size(limit.bpm), limit.loads
    if not load:
        return f"{at}: nothing sustained"
    if limit.along.grows_payload:
        return f"{at}: {format_mb_per_s(limit.mb_per_s)} MB/s"
    return f"{at}: {limit.along.amount(load)}"


def _held(told: Mapping[str, Any]) -> str:
    verdicts = [str(each["verdict"]) for each in told["trials"]]
    counted = (f"{verdicts.count(name)} {name}" for name in dict.fromkeys(verdicts))
    return f"{format_size(told['trials'][0]['bpm'])}: {', '.join(counted)}"


def _swept(told: Mapping[str, Any]) -> str:
    cases = len({json.dumps(each["settings"], sort_keys=True) for each in told["results"]})
    return f"{told['experiment']}: {cases} cases"


def _compared(told: Mapping[str, Any]) -> str:
    cases = ", ".join(f"{format_size(case['bpm'])}: {case['conclusion']}" for case in told["cases"])
    return f"{told['b']['label']} against {told['a']['label']}: {cases}" if cases else ""


def _night(told: Mapping[str, Any]) -> str:
    cases: dict[Outcome, list[str]] = {}
    for each in told["cases"]:
        cases.setdefault(Outcome(each["outcome"]), []).append(each["case"])
    found = [
        f"{len(names)} {outcome.value}" + (f" ({', '.join(names)})" if outcome.stands_out else "")
        for outcome in Outcome
        if (names := cases.get(outcome))
    ]
    return f"suite {told['suite']}, night {told['night']}: {', '.join(found)}"


_ANSWERS = {
    "find-limit": _limits,
    "traffic": _held,
    "sweep": _swept,
    "compare": _compared,
    "nightly": _night,
}


def as_documents(runs: Sequence[KnownRun]) -> list[dict[str, Any]]:
    """Runs for programs."""
    return [asdict(each) for each in runs]


def write_index(out: Path, runs: Sequence[KnownRun]) -> Path:
    """The page of all runs, anew; its path.

    Args:
        runs: all that there are in the folder.

    Raises:
        ConfigError: it cannot be written there.
    """
    path = out / INDEX
    write_file("the page of all runs", path, render("index.html", runs=runs))
    return path


def table_rows(runs: Sequence[KnownRun]) -> Iterator[tuple[str, ...]]:
    """A row of each run for people, under `COLUMNS`."""
    for each in runs:
        what = " ".join(filter(None, (each.cluster, each.workload, each.goal)))
        name = f"{each.run_id} [{', '.join(each.tags)}]" if each.tags else each.run_id
        yield name, each.job, each.started_at, each.status, what, each.answer


COLUMNS = ("run", "job", "started", "status", "cluster, workload, goal", "answer")

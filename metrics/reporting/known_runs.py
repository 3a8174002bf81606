"""The runs that left a folder, whatever job they were of, read from the files they left there."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from metrics.reporting.summary import write_atomic
from metrics.reporting.templating import render
from metrics.units import format_mb_per_s, format_size

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
_PAGES = ("sweep.html", "report.html")


@dataclass(frozen=True)
class KnownRun:
    """A run and its answer in a line.

    Attributes:
        run_id: its folder's name.
        job: `find-limit`, `traffic`, `sweep`, `compare` or `nightly`.
        started_at: ISO 8601, UTC; empty where it is not known.
        status: how it ended; `running or killed` of a folder without an answer.
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


def known_runs(out: Path) -> list[KnownRun]:
    """All runs of a folder, the newest first; a file that cannot be read is told, and hides none.

    Args:
        out: as runs had it by --out.
    """
    if not out.is_dir():
        return []
    found = [run for folder in sorted(out.iterdir()) if (run := _run_in(folder)) is not None]
    return sorted(found, key=lambda run: (run.started_at, run.run_id), reverse=True)


def _run_in(folder: Path) -> KnownRun | None:
    """The run of a folder; None where the folder is none of a run's."""
    if not folder.is_dir():
        return None
    tags, page = tags_of(folder), _page_in(folder)
    for name, job in _FILES.items():
        file = folder / name
        if file.exists():
            return _read(folder.name, file, job, page, tags)
    if (folder / "run.log").exists() or (folder / "experiment.json").exists():
        return KnownRun(folder.name, "", "", "running or killed", page=page, tags=tags)
    return None


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
    """Keep what people call a run."""
    write_atomic(folder / TAGS, json.dumps(list(tags), ensure_ascii=False) + "\n")


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
    return ", ".join(_limit_words(each) for each in told["boundaries"] if not each.get("gave_up"))


def _limit_words(each: Mapping[str, Any]) -> str:
    at = format_size(each["bpm"])
    if each.get("mb_per_s"):
        return f"{at}: {format_mb_per_s(each['mb_per_s'])} MB/s"
    return f"{at}: {each.get('np_sustained') or 'nothing'} sustained"


def _held(told: Mapping[str, Any]) -> str:
    verdicts = [str(each["verdict"]) for each in told["trials"]]
    counted = (f"{verdicts.count(name)} {name}" for name in dict.fromkeys(verdicts))
    return f"{format_size(told['trials'][0]['bpm'])}: {', '.join(counted)}"


def _swept(told: Mapping[str, Any]) -> str:
    cases = len({json.dumps(each["settings"], sort_keys=True) for each in told["results"]})
    return f"{told['experiment']}: {cases} cases"


def _compared(told: Mapping[str, Any]) -> str:
    return str(told.get("conclusion") or "")


def _night(told: Mapping[str, Any]) -> str:
    return f"suite {told.get('suite', '')}, night {told.get('night', '')}"


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


def write_index(out: Path) -> Path:
    """The page of all runs, anew; its path."""
    path = out / INDEX
    write_atomic(path, render("index.html", runs=known_runs(out)))
    return path


def table_rows(runs: Sequence[KnownRun]) -> Iterator[tuple[str, ...]]:
    """A row of each run for people, under `COLUMNS`."""
    for each in runs:
        what = " ".join(filter(None, (each.cluster, each.workload, each.goal)))
        name = f"{each.run_id} [{', '.join(each.tags)}]" if each.tags else each.run_id
        yield name, each.job, each.started_at, each.status, what, each.answer


COLUMNS = ("run", "job", "started", "status", "cluster, workload, goal", "answer")

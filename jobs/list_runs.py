"""`redline runs list|show|tag|delete`: what runs found, from the folders that they left.

The same as a script for schedulers: spark-submit --py-files WHEEL jobs/list_runs.py …
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import click

from jobs.console.events import Table, note
from jobs.console.printing import make_reporter
from jobs.entry import run
from jobs.options import RunId, json_option, out_option
from jobs.runs.run_lock import is_locked
from metrics.common.errors import ConfigError
from metrics.reporting.files import write_file
from metrics.reporting.known_runs import (
    COLUMNS,
    KnownRun,
    as_documents,
    known_runs,
    table_rows,
    tags_of,
    write_index,
    write_tags,
)

_RUN = click.argument("run_id", type=RunId())


@click.group("runs")
def runs() -> None:
    """List the runs of a folder, show one, tag it or delete it."""


@runs.command("list")
@out_option
@click.option("--tag", metavar="TAG", help="Only those that are called so.")
@json_option
def list_runs(out: Path, tag: str | None, json_file: Path | None) -> int:
    """List all runs, the newest first, and write OUT/index.html, their page."""
    every = known_runs(out, is_locked)
    found = [each for each in every if tag is None or tag in each.tags]
    if json_file is not None:
        text = json.dumps(as_documents(found), indent=2, ensure_ascii=False) + "\n"
        write_file("--json", json_file, text)
    with make_reporter() as reporter:
        if found:
            reporter.report(Table(f"Runs in {out}", COLUMNS, tuple(table_rows(found))))
            note(reporter, f"page: {write_index(out, every)}")
        else:
            called = "" if tag is None else f" with the tag {tag}"
            note(reporter, f"there is no run{called} in {out}")
    return 0


@runs.command("show")
@_RUN
@out_option
def show(run_id: str, out: Path) -> int:
    """Show a run: what it was, what it found, and where its files are."""
    one = _known(out, run_id)
    with make_reporter() as reporter:
        facts = {
            "job": one.job,
            "started": one.started_at,
            "status": one.status,
            "cluster": one.cluster,
            "workload": one.workload,
            "goal": one.goal,
            "answer": one.answer,
            "tags": ", ".join(one.tags),
            "page": str(out / one.page) if one.page else "",
        }
        rows = tuple((name, text) for name, text in facts.items() if text)
        reporter.report(Table(run_id, ("", ""), rows))
        for file in sorted((out / run_id).iterdir()):
            note(reporter, str(file))
    return 0


@runs.command("tag")
@_RUN
@click.argument("tags", nargs=-1, required=True, metavar="TAG...")
@out_option
@click.option("--remove", is_flag=True, help="Take the tags away.")
def tag_run(run_id: str, tags: tuple[str, ...], out: Path, remove: bool) -> int:
    """Call a run something, so that it is found again; `baseline` for example."""
    _known(out, run_id)
    had = tags_of(out / run_id)
    kept = [each for each in had if each not in tags]
    write_tags(out / run_id, kept if remove else [*kept, *dict.fromkeys(tags)])
    with make_reporter() as reporter:
        note(reporter, f"{run_id} is called {', '.join(tags_of(out / run_id)) or 'nothing'}")
    return 0


@runs.command("delete")
@_RUN
@out_option
@click.option("--yes", is_flag=True, help="Delete it; else it is only said what would go.")
def delete(run_id: str, out: Path, yes: bool) -> int:
    """Delete the folder of a run with all of its files; its rows in the Delta tables stay."""
    one = _known(out, run_id)
    folder = out / run_id
    files = [each for each in folder.rglob("*") if each.is_file()]
    with make_reporter() as reporter:
        if not yes:
            note(reporter, f"{folder} has {len(files)} files ({one.answer}); --yes deletes them")
            return 0
        try:
            shutil.rmtree(folder)
        except OSError as error:
            raise ConfigError(
                f"{folder} cannot be deleted ({error.strerror}); expected a folder that this user "
                "may delete; see what holds it"
            ) from error
        note(reporter, f"deleted {len(files)} files of {run_id}; its rows stay in the tables")
    return 0


def _known(out: Path, run_id: str) -> KnownRun:
    """A run of this id.

    Raises:
        ConfigError: there is none.
    """
    found = known_runs(out, is_locked)
    for each in found:
        if each.run_id == run_id:
            return each
    newest = ", ".join(each.run_id for each in found[:5])
    there = f"the newest of which are {newest}; name one of them" if newest else "it has none"
    raise ConfigError(
        f"the run {run_id} is not in {out}; expected one of its runs, {there}, or give its --out"
    )


if __name__ == "__main__":
    run(runs)

"""`redline runs list|show|tag|delete`: manages the folders of runs.

Schedulers can run this module as a script: spark-submit --py-files WHEEL jobs/list_runs.py …
"""

from __future__ import annotations

import shutil
from dataclasses import asdict
from pathlib import Path

import click

from jobs.console.events import Table, note
from jobs.console.printing import make_reporter
from jobs.entry import run
from jobs.options import RunId, json_option, out_option
from jobs.runs.run_lock import FILE, is_locked, run_lock
from metrics.common.errors import ConfigError, TryLaterError
from metrics.reporting.files import write_json_file
from metrics.reporting.known_runs import (
    COLUMNS,
    KnownRun,
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
@click.option("--tag", metavar="TAG", help="List only runs that have this tag.")
@json_option
def list_runs(out: Path, tag: str | None, json_file: Path | None) -> int:
    """List all runs, the newest first, and write their page, OUT/index.html."""
    every = known_runs(out, is_locked)
    found = [each for each in every if tag is None or tag in each.tags]
    write_json_file(json_file, [asdict(each) for each in found])
    with make_reporter() as reporter:
        if found:
            reporter.report(Table(f"Runs in {out}", COLUMNS, tuple(table_rows(found))))
            note(reporter, f"page: {write_index(out, every)}")
        else:
            tagged = "" if tag is None else f" with the tag {tag}"
            note(reporter, f"0 runs{tagged} in {out}")
    return 0


@runs.command("show")
@_RUN
@out_option
def show(run_id: str, out: Path) -> int:
    """Show a run: its job, its answer and its files."""
    known = _known_run(out, run_id)
    with make_reporter() as reporter:
        facts = {
            "job": known.job,
            "started": known.started_at,
            "status": known.status,
            "cluster": known.cluster,
            "workload": known.workload,
            "goal": known.goal,
            "answer": known.answer,
            "tags": ", ".join(known.tags),
            "page": str(out / known.page) if known.page else "",
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
@click.option("--remove", is_flag=True, help="Remove these tags instead of adding them.")
def tag_run(run_id: str, tags: tuple[str, ...], out: Path, remove: bool) -> int:
    """Tag a run, for example as `baseline`, for `redline runs list --tag`."""
    _known_run(out, run_id)
    had = tags_of(out / run_id)
    kept = [each for each in had if each not in tags]
    write_tags(out / run_id, kept if remove else [*kept, *dict.fromkeys(tags)])
    with make_reporter() as reporter:
        note(reporter, f"tags of {run_id}: {', '.join(tags_of(out / run_id)) or 'none'}")
    return 0


@runs.command("delete")
@_RUN
@out_option
@click.option(
    "--yes", is_flag=True, help="Delete the files. Without --yes, redline only counts the files."
)
def delete(run_id: str, out: Path, yes: bool) -> int:
    """Delete the folder of a run with all files. The run's rows in the Delta tables stay."""
    known = _known_run(out, run_id)
    folder = out / run_id
    files = [each for each in folder.rglob("*") if each.is_file()]
    with make_reporter() as reporter:
        if not yes:
            note(reporter, f"{len(files)} files in {folder} ({known.answer}); --yes deletes them")
            return 0
        if is_locked(folder):
            raise TryLaterError(
                f"the run {run_id} is active, because a process has locked {folder / FILE}; "
                "expected a run that has ended; wait for its end, or stop it (if no machine that "
                "shares the folder has an active run, delete this file)"
            )
        try:
            with run_lock(folder, "redline runs delete"):  # so that no run resumes in the meantime
                shutil.rmtree(folder)
        except OSError as error:
            raise ConfigError(
                f"{folder} cannot be deleted ({error.strerror}); expected a folder that this user "
                "may delete; correct its permissions"
            ) from error
        note(reporter, f"deleted {len(files)} files of {run_id}; the Delta tables keep its rows")
    return 0


def _known_run(out: Path, run_id: str) -> KnownRun:
    """The known run with this id.

    Raises:
        ConfigError: the folder has no run with this id.
    """
    found = known_runs(out, is_locked)
    for each in found:
        if each.run_id == run_id:
            return each
    newest = ", ".join(each.run_id for each in found[:5])
    there = f"a run of this folder (newest: {newest})" if newest else "a folder with runs"
    raise ConfigError(
        f"the run {run_id} is not in {out}; expected {there}; correct the id, or name the folder "
        "with --out"
    )


if __name__ == "__main__":
    run(runs)

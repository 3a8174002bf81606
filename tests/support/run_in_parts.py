"""A run in two parts that ends before any load, to see what becomes of the files in its folder."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from jobs.config import load
from jobs.console.events import Notice, RecordingReporter
from jobs.runs.context_factory import RunOrder
from jobs.runs.lifecycle import execute
from jobs.runs.limit import LimitRun
from jobs.runs.run_lock import is_locked
from metrics.common.errors import TryLaterError
from tests.support import no_appends


def parts_of_a_run(folder: Path, *, locks: bool) -> dict[str, Any]:
    """Execute a run in two parts, each of which logs a warning and ends before any load."""
    notices: list[str] = []
    for number in (1, 2):
        reporter = RecordingReporter()
        order = RunOrder(
            folder, "unused", locks=locks, reporter=reporter, run_id="r1", resumes=True
        )

        def end(_self: object, _stack: object, number: int = number) -> None:
            logging.getLogger("library").warning("part %s", number)
            assert is_locked(folder / "r1"), "an active run is not one that was killed"
            raise TryLaterError("enough seen")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("jobs.runs.lifecycle.ContextFactory.open", end)
            with pytest.raises(TryLaterError, match="enough seen"):
                execute(LimitRun(load("testbed", "demo", "default")), order)
        notices += [each.text for each in reporter.events if isinstance(each, Notice)]
    log = (folder / "r1" / "run.log").read_text()
    return {
        "locks": locks,
        "notices": notices,
        "log": [line.partition(" WARNING ")[2] for line in log.splitlines()],
        "files": sorted(path.name for path in (folder / "r1").iterdir()),
        "refused": no_appends.refused,
    }

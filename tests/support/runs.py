"""Searches for limits in the process of a test, and their answers."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from jobs.config import Configuration
from jobs.console.events import Event, RecordingReporter, TrialFinished
from jobs.headroom import headroom
from jobs.runs.context_factory import RunOrder
from jobs.runs.lifecycle import execute
from jobs.runs.limit import LimitRun
from tests.support.commands import answered

log = logging.getLogger(__name__)


class LoggingReporter(RecordingReporter):
    """A reporter that logs each trial."""

    def report(self, event: Event) -> None:
        super().report(event)
        if isinstance(event, TrialFinished):
            trial = event.trial
            log.warning(
                "%s, %d producers, idle %s: %s, held %s, %s",
                *(trial.state, trial.load, trial.evidence.handler_idle_min, trial.verdict),
                *(trial.held, [reason.text for reason in trial.judgement.reasons]),
            )


def limits_of(
    config: Configuration, folder: Path, run_id: str, reporter: RecordingReporter | None = None
) -> list[dict[str, Any]]:
    """Search the limits, and return the boundaries of the run's summary.json."""
    order = RunOrder(folder, reporter=reporter or LoggingReporter(), run_id=run_id)
    assert execute(LimitRun(config), order) == 0
    summary = json.loads((order.folder / "summary.json").read_text(encoding="utf-8"))
    found: list[dict[str, Any]] = summary["boundaries"]
    return found


def handlers_today(
    cluster: Path, run_id: str, folder: Path, window: str
) -> tuple[dict[str, Any], str]:
    """The row of the request handlers in an answer of `redline headroom`, and the output."""
    file = folder / "headroom.json"
    options = (f"--run={run_id}", f"--out={folder}", f"--window={window}", f"--json={file}")
    output = answered(headroom, f"--cluster={cluster}", *options)
    log.warning("%s", output)
    rows = json.loads(file.read_text(encoding="utf-8"))["rows"]
    return next(row for row in rows if row["resource"] == "request handlers"), output

"""`redline doctor`: checks whether a run would start, and names each problem with its remedy.

Schedulers can run this module as a script: spark-submit --py-files WHEEL jobs/doctor.py …
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from jobs.checks.finding import Finding, Severity, problems_of
from jobs.console.events import Level, Notice, Reporter, Table, note
from jobs.entry import run
from jobs.options import json_option, lock_option, pattern_options, place_options
from jobs.setup.version import __version__
from metrics.columns import as_document
from metrics.common.errors import ConfigError
from metrics.reporting.files import write_json_file
from metrics.units import format_counted, iso_utc

FOUND_WIDTH = 48
"""Maximum length of a warning or problem in the table [characters]. Below the table, the whole text
of each warning and problem is shown.
"""
_LOUD = {Severity.WARNING: Level.WARNING, Severity.PROBLEM: Level.ERROR}


@click.command("doctor")
@pattern_options
@click.option("--goal", default="default", show_default=True, metavar="NAME|FILE",
              help="The goal, which defines a sustained load: a name in conf/goals, or a "
                   "path.")  # fmt: skip
@place_options
@click.option("--start", "starts", is_flag=True,
              help="Start the testbed for the checks, and stop it afterwards.")  # fmt: skip
@click.option("--probe", "probes", is_flag=True,
              help="Write a record to each broker, in topics that are created as in a run and then "
                   "deleted.")  # fmt: skip
@json_option
@lock_option
def doctor(overrides: tuple[str, ...], json_file: Path | None, **given: Any) -> int:
    """Check without any load whether a run would start.

    The checks cover this machine, the configuration, the cluster with its permissions and metrics,
    and Spark with its executors. Without --probe the checks change nothing on the cluster. The exit
    code is 0 if a run with the same options would start, and 2 otherwise.
    """
    # Imported here, because --help and shell completion do not need these modules.
    from jobs.console.printing import make_reporter
    from jobs.features.doctor.examination import Examination
    from jobs.runs.options import RunOptions

    places = {name: given.pop(name) for name in ("out", "tables", "slots", "locks")}
    with make_reporter() as reporter:
        options = RunOptions(**places)
        findings = Examination(
            overrides=overrides, options=options, reporter=reporter, **given
        ).make()
        show(findings, reporter)
        write_json_file(json_file, document(findings, time.time()))
    return ConfigError.exit_code if problems_of(findings) else 0


def show(findings: Sequence[Finding], reporter: Reporter) -> None:
    """Show a table of all findings, and then one sentence for each warning and each problem."""
    rows = tuple((each.check, each.severity.value, _brief(each)) for each in findings)
    reporter.report(Table("Checks", ("check", "result", "found"), rows))
    for each in findings:
        if each.severity in _LOUD:
            is_named = each.sentence.startswith(each.check)  # the sentence already names the check
            text = each.sentence if is_named else f"{each.check}: {each.sentence}"
            reporter.report(Notice(_LOUD[each.severity], text))
    problems = len(problems_of(findings))
    if problems:
        note(reporter, f"a run cannot start because of {format_counted(problems, 'problem')}")
    else:
        note(reporter, "a run would start")


def document(findings: Sequence[Finding], at_s: float) -> dict[str, Any]:
    """The findings as a JSON document, as docs/doctor.md describes it.

    Args:
        at_s: time of the checks [s since the epoch].
    """
    return {
        "version": __version__,
        "at": iso_utc(at_s),
        "ready": not problems_of(findings),
        "findings": [as_document(each) for each in findings],
    }


def _brief(finding: Finding) -> str:
    text = finding.found
    if finding.severity not in _LOUD or len(text) <= FOUND_WIDTH:
        return text
    return f"{text[: FOUND_WIDTH - 1].rstrip()}…"


if __name__ == "__main__":
    run(doctor)

"""A night as JUnit XML, which every CI server shows: a test case for each case."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from metrics.reporting.nightly import CaseReport, NightReport
from metrics.reporting.summary import write_atomic
from metrics.tables.cases import Outcome


def write_junit(report: NightReport, path: Path) -> None:
    """Write the file.

    A regression is a failure; a case without history or one that was not measured is skipped;
    one without a valid figure is an error; all others pass, with their sentence as output.
    """
    suite = TestSuite(f"redline nightly {report.suite}")
    suite.timestamp = report.started_at
    for name in ("run_id", "night", "cluster", "workload", "goal", "status"):
        suite.add_property(name, str(getattr(report, name)))
    for case in report.cases:
        suite.add_testcase(_test_case(report, case))
    xml = JUnitXml()
    xml.add_testsuite(suite)
    buffer = BytesIO()
    xml.write(buffer, pretty=True)
    write_atomic(path, buffer.getvalue())


def _test_case(report: NightReport, case: CaseReport) -> TestCase:
    made = TestCase(case.case, f"{report.suite}.{case.kind}", _duration_s(case))
    made.system_out = case.text
    if case.outcome is Outcome.REGRESSION:
        made.result = [Failure(case.text, case.outcome.value)]
    elif case.outcome is Outcome.INVALID:
        made.result = [Error(case.text, case.outcome.value)]
    elif case.outcome in (Outcome.NO_HISTORY, Outcome.NOT_MEASURED):
        made.result = [Skipped(case.text, case.outcome.value)]
    return made


def _duration_s(case: CaseReport) -> float:
    return case.comparison.tonight.duration_s if case.comparison else 0.0

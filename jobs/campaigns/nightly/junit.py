"""A night as JUnit XML for CI servers, with a test case for each case."""

from __future__ import annotations

import re
from io import BytesIO
from pathlib import Path

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from metrics.reporting.files import write_file
from metrics.reporting.nightly import CaseReport, NightReport
from metrics.tables.cases import Outcome

_NO_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_junit(report: NightReport, path: Path) -> None:
    """Write the report as JUnit XML.

    A regression is a failure. A case without history, or one that was not measured, is skipped. A
    case without a valid figure is an error. All other cases pass, with their sentence as output.
    """
    suite = TestSuite(_plain(f"redline nightly {report.suite}"))
    suite.timestamp = _plain(report.started_at)
    for name in ("run_id", "night", "cluster", "workload", "goal", "status"):
        suite.add_property(name, _plain(str(getattr(report, name))))
    for case in report.cases:
        suite.add_testcase(_test_case(report, case))
    xml = JUnitXml()
    xml.add_testsuite(suite)
    buffer = BytesIO()
    xml.write(buffer, pretty=True)
    write_file("--junit", path, buffer.getvalue())


def _test_case(report: NightReport, case: CaseReport) -> TestCase:
    made = TestCase(_plain(case.case), _plain(f"{report.suite}.{case.kind}"), _duration_s(case))
    text = _plain(case.text)
    made.system_out = text
    if case.outcome is Outcome.REGRESSION:
        made.result = [Failure(text, case.outcome.value)]
    elif case.outcome is Outcome.INVALID:
        made.result = [Error(text, case.outcome.value)]
    elif case.outcome in (Outcome.NO_HISTORY, Outcome.NOT_MEASURED):
        made.result = [Skipped(text, case.outcome.value)]
    return made


def _plain(text: str) -> str:
    """The text without control characters, which XML cannot express."""
    return _NO_XML.sub("?", text)


def _duration_s(case: CaseReport) -> float:
    return case.comparison.tonight.duration_s if case.comparison else 0.0

"""The ready crontab: a command that cron can start, and what it mails."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from tests.support.cron import BARE_PATH, COMMAND_MAX, CRONTAB, CronInstallation, crontab

NIGHT_S = 240.0
"""A command that loads nothing, on a busy machine [s]."""


def test_the_entry_finds_its_programs_and_writes_where_its_user_may() -> None:
    cron = crontab(CRONTAB.read_text(encoding="utf-8"))
    assert cron.user == "redline"
    assert len(cron.written) <= COMMAND_MAX
    path = cron.environment["PATH"].split(":")
    assert {"/opt/redline/bin", *BARE_PATH.split(":")} <= set(path)
    assert Path(cron.environment["JAVA_HOME"]).is_absolute()
    assert cron.environment["PYSPARK_PYTHON"] == "/opt/redline/bin/python"
    assert "@" in cron.environment["MAILTO"]
    words = cron.submitted
    out = words[words.index("--out") + 1]
    assert f"; log={out}/$night.log;" in cron.command
    assert f"install -d -o {cron.user} -g {cron.user} {out}" in CRONTAB.read_text()
    assert cron.environment["REDLINE_CACHE"].startswith(f"{out}/")


@pytest.mark.parametrize(("suite", "code"), [("testbed", 0), ("nosuch", 2)])
def test_it_mails_nothing_but_failures(tmp_path: Path, suite: str, code: int) -> None:
    """A dry run by the command, started as cron starts it; e2e/test_cron.py has spark-submit."""
    installed = CronInstallation(tmp_path)
    words = ["redline", "nightly", "--suite", suite, "--night", "$night", "--dry-run"]
    done = installed.run(words, NIGHT_S)
    (log,) = installed.state.glob("*.log")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", log.stem)
    lines = log.read_text().splitlines()
    if code == 0:
        assert done.stdout == ""
        assert any(" plan cluster=" in line for line in lines)
        return
    first, *rest = done.stdout.splitlines()
    assert first == f"redline nightly {log.stem}: exit code {code}; the end of {log}:"
    assert rest == lines
    assert any(suite in line for line in lines)


def test_a_second_part_of_a_night_continues_its_log_and_a_log_that_cannot_be_written_is_mailed(
    tmp_path: Path,
) -> None:
    installed, now = CronInstallation(tmp_path), datetime.now(timezone.utc)
    for _ in range(2):
        assert installed.run(["echo", "$night"], NIGHT_S).stdout == ""
    (log, *others) = sorted(installed.state.glob("*.log"))
    if not others:  # no midnight in between
        assert log.read_text() == f"{log.stem}\n" * 2
    for day in (now, now + timedelta(days=1)):  # the test may run at midnight
        path = installed.state / f"{day:%Y-%m-%d}.log"
        path.unlink(missing_ok=True)
        path.mkdir()
    done = installed.run(["redline", "--version"], NIGHT_S)
    assert "exit code" in done.stdout
    assert str(installed.state) in done.stdout

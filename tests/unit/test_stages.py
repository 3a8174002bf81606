"""The stages of `make test`: tests beside them have idle priority, and no failure is lost."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from tests.bench.stages import Stage, run

pytestmark = pytest.mark.long  # a tool of developers

SCHEDULED = """
import os


def test_it() -> None:
    policy = os.sched_getscheduler(0) if hasattr(os, "SCHED_IDLE") else os.nice(0)
    print("as", policy)
    assert {holds}
"""


def a_test(folder: Path, name: str, holds: str = "True") -> tuple[str, ...]:
    """Arguments of pytest for a test of its own."""
    file = folder / f"test_{name}.py"
    file.write_text(SCHEDULED.format(holds=holds))
    return (str(file), "-q", "-s", "-p", "no:cacheprovider")


@pytest.mark.parametrize(
    ("alone", "beside", "code"), [("True", "True", 0), ("False", "True", 1), ("True", "False", 1)]
)
def test_a_failure_of_either_run_is_the_exit_code_of_both(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], alone: str, beside: str, code: int
) -> None:
    first, second = a_test(tmp_path, "first", alone), a_test(tmp_path, "second", beside)
    assert run([Stage(first, second)], tmp_path / "kept" / "beside") == code
    shown = capfd.readouterr().out
    assert shown.count(" passed") + shown.count(" failed") == 2, "both are shown"
    idle = os.SCHED_IDLE if hasattr(os, "SCHED_IDLE") else 19
    assert f"as {idle}\n" in shown
    usual = os.sched_getscheduler(0) if hasattr(os, "SCHED_IDLE") else psutil.Process().nice()
    assert f"as {usual}\n" in shown


def test_no_stage_follows_one_that_failed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    stages = [
        Stage(a_test(tmp_path, name, holds), a_test(tmp_path, f"{name}_beside"))
        for name, holds in (("a", "True"), ("b", "False"), ("c", "True"))
    ]
    assert run(stages, tmp_path / "beside") == 1
    shown = capfd.readouterr().out
    assert (shown.count("1 passed"), shown.count("1 failed")) == (3, 1)


def test_an_interrupt_ends_the_tests_that_run_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(pid: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tests.bench.stages.for_idle_time", interrupted)
    before = set(psutil.Process().children())
    waits = a_test(tmp_path, "waits", "__import__('time').sleep(600)")
    with pytest.raises(KeyboardInterrupt):
        run([Stage(waits, waits)], tmp_path / "beside")
    assert set(psutil.Process().children()) <= before

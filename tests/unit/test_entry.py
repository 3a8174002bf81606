"""Every way a command can end has its exit code and one sentence."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import click
import pytest

from jobs.entry import run
from jobs.testbed.channel import Inbox, channel_pair
from metrics.common.errors import (
    ConfigError,
    GuardStopError,
    NoConclusionError,
    RedlineError,
    TryLaterError,
)
from metrics.reporting import kept_script
from tests.support.processes import PATIENCE_S, becomes


def _command(action: Callable[[], object]) -> click.Command:
    @click.command()
    @click.option("--size", type=int)
    def job(size: int | None) -> object:
        """A job."""
        return action()

    return job


def _raiser(error: BaseException) -> Callable[[], object]:
    def raise_it() -> object:
        raise error

    return raise_it


def _ends(action: Callable[[], object], *args: str) -> int:
    with pytest.raises(SystemExit) as ended:
        run(_command(action), args)
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.fixture(autouse=True)
def _own_cache_and_signals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("REDLINE_CACHE", str(tmp_path))
    names = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {name: signal.getsignal(name) for name in names}
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)  # restored, too
    yield
    for name, handler in before.items():
        signal.signal(name, handler)


def test_an_error_is_one_sentence_and_its_code(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_script, "_folders", [])
    errors: dict[BaseException, int] = {
        ConfigError("no such file; expected one"): 2,
        NoConclusionError("no valid bracket"): 3,
        GuardStopError("disk is full"): 5,
        TryLaterError("another run holds the lock"): 75,
        RedlineError("something known"): 1,
        KeyboardInterrupt(): 130,
        click.Abort(): 130,
    }
    for error, code in errors.items():
        assert _ends(_raiser(error)) == code
        (shown,) = capsys.readouterr().err.strip().splitlines()
        assert (str(error) or "interrupted") in shown
    assert _ends(lambda: None) == _ends(lambda: None, "--help") == 0
    assert _ends(lambda: None, "--size", "big") == _ends(lambda: None, "--sise", "3") == 2
    assert "--size" in capsys.readouterr().err, "names the nearest option"
    assert kept_script._folders == [Path(os.environ["REDLINE_CACHE"]) / "charts"]


def test_an_unexpected_error_keeps_its_traceback_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _ends(_raiser(ZeroDivisionError("by nothing"))) == 1
    shown = capsys.readouterr().err
    assert "ZeroDivisionError: by nothing" in shown and str(tmp_path) in shown
    assert "Traceback" not in shown
    kept = tmp_path / "last-error.txt"
    assert "in raise_it" in kept.read_text()
    monkeypatch.setenv("REDLINE_CACHE", str(kept))  # no folder, so that nothing can be written
    assert _ends(_raiser(ZeroDivisionError("by nothing"))) == 1
    shown = capsys.readouterr().err
    assert "ZeroDivisionError: by nothing" in shown and "in raise_it" in shown
    assert f"File exists: '{kept}'" in shown


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_that_python_drops_in_a_finalizer_comes_again(
    number: signal.Signals, code: int
) -> None:
    dropped: list[str] = []

    def let_go(_: object) -> None:
        dropped.append("here")
        os.kill(os.getpid(), number)
        threading.Event().wait(PATIENCE_S)

    def action() -> None:
        class Held:
            pass

        held = Held()
        watched = weakref.ref(held, let_go)
        del held
        assert watched() is None
        threading.Event().wait(PATIENCE_S)

    assert _ends(action) == code
    assert dropped == ["here"]


def test_an_error_that_an_interrupt_causes_is_an_interrupt(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def break_something() -> object:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            signal.pause()
        except KeyboardInterrupt:
            raise ValueError("a half-read answer") from None
        return None

    assert _ends(break_something) == 130
    assert "unexpected" not in capsys.readouterr().err


def test_a_second_sigterm_does_not_break_the_end_that_the_first_one_began(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A process group gets a signal as a whole, and spark-submit's JVM forwards its own."""
    ended: list[str] = []

    def action() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            ended.append("in order")

    assert _ends(action) == 143
    assert ended == ["in order"]
    assert "terminated" in capsys.readouterr().err


def test_on_databricks_a_job_that_is_done_returns_and_another_one_exits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    run(_command(lambda: 0), [])
    with pytest.raises(SystemExit) as ended:
        run(_command(lambda: 4), [])
    assert ended.value.code == 4


@pytest.mark.parametrize("name", [signal.SIGHUP, signal.SIGINT])
def test_a_signal_that_the_parent_ignores_stays_ignored(name: signal.Signals) -> None:
    """`nohup` ignores SIGHUP, and a shell without job control ignores SIGINT in the background."""
    signal.signal(name, signal.SIG_IGN)

    def receive() -> None:
        os.kill(os.getpid(), name)

    assert _ends(receive) == 0
    assert signal.getsignal(name) is signal.SIG_IGN


def test_a_supervisor_of_a_testbed_ignores_what_its_parent_ignores() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    channel, inherited = channel_pair()
    inbox = Inbox(channel)
    try:
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGTERM)
        inbox.wait(1.0)
        assert inbox.terminations == 1, "SIGTERM alone"
    finally:
        inbox.close()
        channel.close()
        inherited.close()


_JOB = """
import os, signal, sys
from pathlib import Path
import click
from jobs import entry

folder = Path(sys.argv[1])

@click.command()
def job():
    (folder / "new").write_text(f"{os.getpid()} {len(getattr(entry, '_starters', list)())}")
    (folder / "new").rename(folder / "job")
    while True:
        signal.pause()

try:
    entry.run(job, [])
except SystemExit as ended:
    (folder / "code").write_text(str(ended.code))
"""
_LAUNCH = "$PYTHON $JOB $FOLDER"
_SCHEDULER = """
import os, subprocess
words = [os.environ[name] for name in ("PYTHON", "JOB", "FOLDER")]
subprocess.run(["sh", "-c", '"$@"; :', "sh", *words], start_new_session=True)
"""
SOON_S = 10.0
"""Longest time until a job ends after a process that started it: looks take turns of 1 s [s]."""


@contextmanager
def _launched(folder: Path, script: str) -> Iterator[tuple[int, int]]:
    """Run a script that starts the job, and write the id of a process that it names to `parent`.

    Yields that id, and the number of processes whose end ends the job.
    """
    (folder / "job.py").write_text(_JOB)
    names = {
        "PYTHON": sys.executable,
        "JOB": str(folder / "job.py"),
        "FOLDER": str(folder),
        "SCHEDULER": _SCHEDULER,
        "PYTHONPATH": str(Path.cwd()),
        "REDLINE_CACHE": str(folder),
    }
    shell = subprocess.Popen(
        ["bash", "-c", script],
        env={**os.environ, **names},
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    assert becomes((folder / "job").exists), "the job runs"
    job, starters = map(int, (folder / "job").read_text().split())
    try:
        yield int((folder / "parent").read_text()), starters
    finally:
        for pid in (shell.pid, job):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shell.wait()


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(f"echo $$ >$FOLDER/parent; {_LAUNCH}; :", id="a shell"),
        pytest.param(
            f'bash -c "{_LAUNCH}; :" & echo $! >$FOLDER/parent; wait', id="a shell in background"
        ),
        pytest.param(f"nohup bash -c '{_LAUNCH}; :' & echo $! >$FOLDER/parent; wait", id="nohup"),
        pytest.param(
            'echo $$ >$FOLDER/parent; exec $PYTHON -c "$SCHEDULER"', id="a scheduler of sessions"
        ),
    ],
)
def test_a_job_ends_once_a_process_that_started_it_is_killed(script: str, tmp_path: Path) -> None:
    with _launched(tmp_path, script) as (parent, _):
        os.kill(parent, signal.SIGKILL)
        assert becomes((tmp_path / "code").exists, SOON_S), "the job ends"
        assert becomes(lambda: (tmp_path / "code").read_text() == "143", SOON_S)


ON_A_TERMINAL = f"set -m; echo $$ >$FOLDER/parent; {_LAUNCH} & wait"
"""The shell sends SIGHUP at a hangup, and does not at the end of a job that it disowns."""


@pytest.mark.parametrize(
    "script",
    [
        *(f"echo $$ >$FOLDER/parent; {each} {_LAUNCH} & wait" for each in ("nohup", "setsid", "")),
        f"INNER='{ON_A_TERMINAL}' script -qec 'bash -c \"$INNER\"' /dev/null",
    ],
    ids=["nohup", "setsid", "background", "terminal"],
)
def test_a_detached_job_outlives_the_script_that_started_it(script: str, tmp_path: Path) -> None:
    with _launched(tmp_path, script) as (_, starters):
        assert starters == 0

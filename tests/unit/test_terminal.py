"""Output on a terminal: a live display, and the lines that stay at its end."""

from __future__ import annotations

import errno
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TextIO

import pytest
from rich.cells import cell_len
from rich.console import Console

from jobs.console.events import (
    Event,
    PhaseProgress,
    PhaseStarted,
    TrialProgress,
)
from jobs.console.live import Activity, activity_lines
from jobs.console.printing import PlainReporter, TerminalReporter, make_reporter
from tests.support.evidence import broker
from tests.support.processes import PATIENCE_S
from tests.support.rows import traffic
from tests.support.run_events import (
    ANSI,
    FINISHED,
    HIDE,
    RUN,
    SHOW,
    STARTED,
    Stream,
    plain,
    screen,
    terminal,
)

WIDE = traffic(20_000, 1_024, 25.0, load=20_000)


@pytest.mark.parametrize("width", [80, 120])
def test_the_terminal_shows_a_trial_under_its_heading(width: int) -> None:
    lines = screen(STARTED, FINISHED, width=width).splitlines()
    (trial,) = [line for line in lines if "OVERLOADED" in line]
    words = " ".join(trial.split())
    assert words == "3 10 kB 128 32.0 31.2 0.12 (2) 55 % OVERLOADED 4, 57 s"
    (heading,) = [line for line in lines if "verdict" in line]
    for column, value in (
        ("producers", "128"),
        ("offered", "32.0"),
        ("achieved", "31.2"),
        ("ISR", "%"),
    ):
        end = heading.index(column) + len(column)
        assert trial[:end].split()[-1] == value
    assert trial.index("OVERLOADED") == heading.index("verdict")
    assert "    └ request handlers of broker 2 idle 0.12, below 0.20" in lines


def test_a_new_size_has_a_heading_once() -> None:
    small = traffic(128, 100, 25.0, load=128)
    other = replace(STARTED, pattern=small)
    ended = replace(FINISHED, trial=replace(FINISHED.trial, pattern=small))
    shown = screen(STARTED, FINISHED, STARTED, FINISHED, other, ended)
    assert shown.count("Messages of 10 kB") == 1
    assert shown.count("Messages of 100 B") == 1


@pytest.mark.parametrize("width", [80, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    rate = 99_999e6 / WIDE.producers / WIDE.message_bytes
    pattern = traffic(WIDE.producers, WIDE.message_bytes, rate, load=WIDE.load)
    trial = replace(FINISHED.trial, number=999, pattern=pattern)
    wide = replace(FINISHED, trial=trial, duration_s=22_500)
    assert "99,999" in screen(wide, width=120)
    for line in screen(*RUN, wide, width=width).splitlines():
        assert cell_len(line) <= width


@pytest.mark.parametrize("width", [40, 80, 120])
def test_the_live_area_leaves_room_for_the_echo_of_ctrl_c(width: int) -> None:
    long = replace(STARTED, pattern=WIDE, reason="because " * 40)
    heard = TrialProgress("warming up", 6.0, 31.0, broker(1001, handler_idle=0.2))
    console = Console(file=Stream(), width=width)
    for event in (long, replace(long, duration_s=None), PhaseStarted("waiting " * 40)):
        activity = Activity(event, 0.0)
        for news in (heard, PhaseProgress("on " * 99)):
            shown = activity.progressed(news, 6.0)
            rendered = [console.render_lines(x) for x in activity_lines(shown, 6.0, width)]
            assert [len(lines) for lines in rendered] == [1] * len(rendered)
            last = "".join(segment.text for segment in rendered[-1][0]).rstrip()
            assert cell_len(last) <= width - 4


def test_the_live_area_shows_the_progress_of_the_trial() -> None:
    progress = TrialProgress("measuring", 6.0, 31.04, broker(2, handler_idle=0.204))
    activity = Activity(STARTED, 0.0).progressed(progress, 100.0)
    out = Stream()
    Console(file=out, width=100).print(*activity_lines(activity, 101.2, 100), sep="\n")
    text = out.getvalue()
    assert "trial 3, 10 kB, 128 producers" in text
    assert "measuring" in text
    assert "7 s of 14 s" in text
    assert "31.0 of 32.0 MB/s, lowest idle (broker) 0.20 (2)" in text
    assert "why: probing 128 to close from below" in text


def test_a_finished_phase_stays_with_its_time() -> None:
    times = iter([0.0, 0.0, 80.0, 80.0])
    out = Stream(tty=True)
    console = Console(file=out, force_terminal=True, width=80, highlight=False)
    reporter = TerminalReporter(console, Stream(tty=True), Stream(), lambda: next(times, 80.0))
    with reporter:
        reporter.report(PhaseStarted("starting Spark"))
    assert "✓ starting Spark  1 min 20 s" in ANSI.sub("", out.getvalue())


@pytest.mark.parametrize("event", [STARTED, PhaseStarted("starting Spark")])
@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_the_cursor_is_restored_after_any_end(event: Event, error: type[BaseException]) -> None:
    out = Stream(tty=True)
    before = set(threading.enumerate())

    def leave() -> None:
        with terminal(out) as reporter:
            reporter.report(event)
            assert HIDE in out.getvalue()
            raise error

    with pytest.raises(error):
        leave()
    text = out.getvalue()
    assert text.rfind(SHOW) > text.rfind(HIDE)
    assert "stopped after 0 s" in text
    assert "✓" not in text
    for thread in set(threading.enumerate()) - before:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def test_consent_is_requested_only_on_a_terminal_with_input() -> None:
    for answer, yes in (
        ("y\n", True),
        ("YES\n", True),
        ("\n", False),
        ("no\n", False),
        ("", False),
    ):
        stdin = Stream(tty=True)
        stdin.write(answer)
        stdin.seek(0)
        out = Stream(tty=True)
        console = Console(file=out, force_terminal=True, width=80)
        with TerminalReporter(console, Stream(tty=True), stdin) as reporter:
            reporter.report(PhaseStarted("looking"))
            assert reporter.confirm("Load cluster [prod]?") is yes
        assert "Load cluster [prod]? [y/N]" in ANSI.sub("", out.getvalue())
    assert not terminal(Stream(tty=True)).confirm("Load it?")
    assert not plain(Stream(), Stream()).confirm("Load it?")


@pytest.mark.parametrize(
    ("tty", "term", "encoding", "live"),
    [
        (True, "xterm-256color", "utf-8", True),
        (True, "xterm-256color", "UTF8", True),
        (True, "dumb", "utf-8", False),
        (True, None, "utf-8", False),
        (True, "xterm", "ascii", False),
        (False, "xterm", "utf-8", False),
    ],
)
def test_the_display_is_live_only_on_a_capable_terminal(
    monkeypatch: pytest.MonkeyPatch, tty: bool, term: str | None, encoding: str, live: bool
) -> None:
    monkeypatch.delenv("TERM", raising=False)
    if term is not None:
        monkeypatch.setenv("TERM", term)
    reporter = make_reporter(Stream(tty=tty, encoding=encoding), Stream())
    assert isinstance(reporter, TerminalReporter if live else PlainReporter)


@contextmanager
def pseudo_terminal() -> Iterator[tuple[TextIO, list[bytes]]]:
    """The end of a real terminal to write to, and the text that arrives at the other end."""
    master, slave = os.openpty()
    arrived: list[bytes] = []

    def drain() -> None:
        while True:
            try:
                chunk = os.read(master, 65536)
            except OSError as error:
                if error.errno == errno.EIO:  # how Linux says that the other end was closed
                    return
                raise
            arrived.append(chunk)

    reader = threading.Thread(target=drain)
    reader.start()
    try:
        with os.fdopen(slave, "w", encoding="utf-8") as out:
            yield out, arrived
    finally:
        reader.join(PATIENCE_S)
        os.close(master)


@pytest.mark.parametrize("no_color", [True, False])
def test_a_run_on_a_real_terminal(monkeypatch: pytest.MonkeyPatch, no_color: bool) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    with pseudo_terminal() as (out, arrived), make_reporter(out, out) as reporter:
        for event in RUN:
            reporter.report(event)
    text = b"".join(arrived).decode()
    assert text.count(HIDE) == text.count(SHOW) == 2
    colored = re.search(r"\x1b\[([0-9;]*;)?3[0-7]m", text) is not None
    assert colored is not no_color
    assert "Limits of testbed-3" in text

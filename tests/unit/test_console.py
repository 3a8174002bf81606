"""What people see: a live display on a terminal, plain lines elsewhere, and no more than that."""

from __future__ import annotations

import errno
import io
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TextIO

import pytest
from rich.cells import cell_len
from rich.console import Console

from jobs.console import PlainReporter, TerminalReporter, make_reporter
from jobs.display.live import Activity, activity_lines
from jobs.display.text import limit_evidence
from jobs.events import (
    Event,
    Level,
    Notice,
    PhaseProgress,
    PhaseStarted,
    Plan,
    PlanShown,
    PointFinished,
    RecordingReporter,
    Reporter,
    RunFinished,
    RunStarted,
    Table,
    TrialFinished,
    TrialProgress,
    TrialStarted,
    note,
    warn,
)
from metrics.evidence import Reason, Resource
from metrics.summary import RunSummary, make_boundary
from search.model import Bracket, Verdict

HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"
ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
PLAN = Plan(
    cluster="testbed-3",
    workload="100B-to-10kB",
    goal="default",
    brokers=3,
    message_bytes=(100, 10_000),
    producer="250 kB/s each, acks=1",
    resolution=0.05,
    trial_s=14,
    trials_estimated=12,
    duration_s=320,
    write_bytes_max=12.4e9,
    out=Path("out/run"),
    notes=("A small disk-bound cluster.",),
)
STARTED = TrialStarted(3, 10_000, 128, "np", 128, 32.0, "probing 128 to close from below", 14)
FINISHED = TrialFinished(
    number=3,
    bpm=10_000,
    np=128,
    axis="np",
    load=128,
    offered_mb_per_s=32.0,
    achieved_mb_per_s=31.2,
    idle_lowest=0.123,
    idle_broker=2,
    isr_changed_share=0.55,
    verdict=Verdict.OVERLOADED,
    reason="request handlers of broker 2 idle 0.12, below 0.20",
    duration_s=14.2,
    trials_left=4,
    time_left_s=80,
)
CLOSED = make_boundary(
    Bracket(120, 126),
    bpm=10_000,
    rate_records_per_s=25,
    brokers=3,
    trials=6,
    reasons=[Reason("request_handler_idle", "broker 2 idle 0.12, below 0.20", 0.12, 0.2, 2)],
    limited_by=Resource.REQUEST_HANDLERS,
)
OPEN = make_boundary(
    Bracket(95, None), bpm=100, rate_records_per_s=2500, brokers=3, trials=6, gave_up="load_cap hit"
)
SUMMARY = RunSummary(
    run_id="run-1",
    started_at="2026-11-21T11:46:32Z",
    finished_at="2026-11-21T11:51:40Z",
    cluster="testbed-3",
    workload="100B-to-10kB",
    goal="default",
    boundaries=(CLOSED, OPEN),
    brokers=3,
    status="no conclusion",
)
RUN: tuple[Event, ...] = (
    RunStarted("run-1", PLAN),
    PhaseStarted("starting the testbed"),
    PhaseProgress("2 of 3 brokers ready"),
    STARTED,
    TrialProgress("measuring", 6.0, 31.0, 0.2, 2),
    FINISHED,
    PointFinished(CLOSED),
    PointFinished(OPEN),
    RunFinished(SUMMARY, 308, (("summary", "out/run/summary.json"),)),
    Table("testbed", ("broker", "state"), (("1", "ready"), ("12", "fenced"))),
)


class Stream(io.StringIO):
    """A text stream that may pass for a terminal."""

    def __init__(self, *, tty: bool = False, encoding: str = "utf-8") -> None:
        super().__init__()
        self._tty, self._encoding = tty, encoding

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding

    def isatty(self) -> bool:
        return self._tty


def plain(out: TextIO, err: TextIO) -> PlainReporter:
    return PlainReporter(out, err, lambda: datetime(2026, 11, 21, 11, 46, 32, tzinfo=timezone.utc))


def terminal(out: Stream, width: int = 80, *, err: Stream | None = None) -> TerminalReporter:
    console = Console(
        file=out, force_terminal=True, width=width, highlight=False, emoji=False, no_color=True
    )
    return TerminalReporter(console, err or Stream(tty=True), Stream(), clock_s=lambda: 0.0)


def plain_run(*events: Event) -> list[str]:
    out = Stream()
    with plain(out, Stream()) as reporter:
        for event in events:
            reporter.report(event)
    return out.getvalue().splitlines()


def screen(*events: Event, width: int = 80) -> str:
    """What stays on a terminal, judged by the lines that are printed for good."""
    out = Stream(tty=True)
    with terminal(out, width) as reporter:
        for event in events:
            reporter.report(event)
    return ANSI.sub("", out.getvalue()).replace("\r", "\n")


def test_plain_lines_are_dated_and_hold_no_control_codes() -> None:
    lines = plain_run(*RUN)
    assert not [char for line in lines for char in line if not char.isprintable()]
    dated = [line for line in lines if line.startswith("2026-11-21T11:46:32Z ")]
    assert [line.split()[1] for line in dated] == [
        "run-started",
        "phase",
        "trial-started",
        "trial-finished",
        "point-finished",
        "point-finished",
        "run-finished",
        "testbed",
    ]


def test_a_plain_trial_is_one_line_of_keys_and_values() -> None:
    assert plain_run(FINISHED) == [
        (
            "2026-11-21T11:46:32Z trial-finished trial=3 size="
            '"10 kB" np=128 offered="32.0 MB/s" achieved="31.2 MB/s" idle=0.12 broker=2 isr="55 %" '
            'verdict=OVERLOADED took="14 s" trials_left=4 time_left="1 min 20 s" '
            'reason="request handlers of broker 2 idle 0.12, below 0.20"'
        )
    ]


def test_what_is_not_known_is_a_question_mark() -> None:
    unknown = replace(
        FINISHED,
        achieved_mb_per_s=None,
        idle_lowest=None,
        idle_broker=None,
        isr_changed_share=None,
        time_left_s=None,
        reason="",
    )
    (line,) = plain_run(unknown)
    for pair in ('achieved="? MB/s"', "idle=?", "broker=?", "isr=?", "time_left=?"):
        assert pair in line
    assert "reason" not in line
    assert "0 %" not in screen(unknown)


def test_text_from_elsewhere_stays_on_its_line() -> None:
    hostile = 'two\nlines "quoted" \x1b[31mred\x07 [bold]markup[/bold]'
    (line,) = plain_run(PhaseStarted(hostile))
    assert line.endswith("doing=\"two lines 'quoted' [31mred [bold]markup[/bold]\"")
    shown = screen(replace(FINISHED, reason=hostile))
    assert 'two lines "quoted" [31mred [bold]markup[/bold]' in shown


def test_a_log_that_cannot_encode_a_character_gets_another() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    with plain(stream, Stream()) as reporter:
        note(reporter, "ΔCount – fine")
    assert raw.getvalue() == b"2026-11-21T11:46:32Z note: ?Count ? fine\n"


def test_warnings_and_errors_go_to_the_error_stream() -> None:
    for make in (plain, lambda out, err: terminal(out, err=err)):
        out, err = Stream(), Stream()
        with make(out, err) as reporter:
            note(reporter, "first")
            warn(reporter, "second")
            reporter.report(Notice(Level.ERROR, "third"))
        assert "first" in out.getvalue()
        assert "second" not in out.getvalue()
        assert "warning: second" in err.getvalue()
        assert "error: third" in err.getvalue()


@pytest.mark.parametrize("render", [lambda: "\n".join(plain_run(*RUN)), lambda: screen(*RUN)])
def test_the_final_table_says_limit_bracket_and_what_bound_it(render: object) -> None:
    text = render()  # type: ignore[operator]
    assert "Limits of testbed-3 with 100B-to-10kB (goal default, 3 brokers)" in text
    limits = [line.split() for line in text.splitlines() if re.match(r" +(100 B|10 kB) +\d", line)]
    assert [
        "10",
        "kB",
        "120",
        "3,000",
        "30.0",
        "10.0",
        "120-126",
        "30.0-31.5",
        "4.8",
        "%",
    ] in limits
    assert ["100", "B", "95", "237,500", "23.8", "7.92", "95-?", "23.8-?", "open"] in limits
    assert "bound by request handlers: broker 2 idle 0.12, below 0.20" in text
    assert "no conclusion: load_cap hit" in text
    assert "no overload was seen" in text
    assert "out/run/summary.json" in text
    assert "no conclusion" in text


def test_the_plan_says_duration_and_bytes() -> None:
    for text in (plain_run(PlanShown(PLAN))[0], screen(PlanShown(PLAN), width=120)):
        assert "about 12 trials of 14 s, 5 min 20 s in all, at most 12 GB of payload" in text
        assert "messages of 100 B, 10 kB" in text
        assert "brackets within 5 %" in text
        assert "A small disk-bound cluster." in text


@pytest.mark.parametrize("width", [80, 120])
def test_the_terminal_shows_a_trial_under_its_heading(width: int) -> None:
    lines = screen(STARTED, FINISHED, width=width).splitlines()
    (trial,) = [line for line in lines if "OVERLOADED" in line]
    words = " ".join(trial.split())
    assert words == "3 10 kB 128 32.0 31.2 0.12 (2) 55 % OVERLOADED 4, 1 min 20 s"
    (heading,) = [line for line in lines if "verdict" in line]
    for column, value in (("offered", "32.0"), ("achieved", "31.2"), ("ISR", "%")):
        end = heading.index(column) + len(column)
        assert trial[:end].split()[-1] == value
    assert trial.index("OVERLOADED") == heading.index("verdict")
    assert "    └ request handlers of broker 2 idle 0.12, below 0.20" in lines


def test_a_new_size_has_a_heading_once() -> None:
    other = replace(STARTED, bpm=100)
    shown = screen(STARTED, FINISHED, STARTED, FINISHED, other, replace(FINISHED, bpm=100))
    assert shown.count("Messages of 10 kB") == 1
    assert shown.count("Messages of 100 B") == 1


@pytest.mark.parametrize("width", [80, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    wide = replace(
        FINISHED, number=999, np=20_000, bpm=1_024, offered_mb_per_s=99_999.0, time_left_s=90_000
    )
    for line in screen(*RUN, wide, width=width).splitlines():
        assert cell_len(line) <= width


@pytest.mark.parametrize("width", [40, 80, 120])
def test_the_live_area_leaves_room_for_the_echo_of_ctrl_c(width: int) -> None:
    long = replace(STARTED, np=20_000, reason="because " * 40)
    console = Console(file=Stream(), width=width)
    for event in (long, replace(long, duration_s=None), PhaseStarted("waiting " * 40)):
        activity = Activity(event, 0.0)
        for news in (TrialProgress("warming up", 6.0, 31.0, 0.2, 1001), PhaseProgress("on " * 99)):
            shown = activity.progressed(news, 6.0)
            rendered = [console.render_lines(x) for x in activity_lines(shown, 6.0, width)]
            assert [len(lines) for lines in rendered] == [1] * len(rendered)
            last = "".join(segment.text for segment in rendered[-1][0]).rstrip()
            assert cell_len(last) <= width - 4


def test_the_live_area_says_where_the_trial_stands() -> None:
    progress = TrialProgress("measuring", 6.0, 31.04, 0.204, 2)
    activity = Activity(STARTED, 0.0).progressed(progress, 100.0)
    out = Stream()
    Console(file=out, width=100).print(*activity_lines(activity, 101.2, 100), sep="\n")
    text = out.getvalue()
    assert "trial 3, 10 kB, np 128" in text
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
        reporter.report(PhaseStarted("starting the testbed"))
    assert "✓ starting the testbed  1 min 20 s" in ANSI.sub("", out.getvalue())


@pytest.mark.parametrize("event", [STARTED, PhaseStarted("starting the testbed")])
@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_however_it_is_left_the_cursor_comes_back(event: Event, error: type[BaseException]) -> None:
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
        thread.join(timeout=10)
        assert not thread.is_alive()


def test_asks_only_where_somebody_can_answer() -> None:
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
def test_live_only_where_the_terminal_can_show_it(
    monkeypatch: pytest.MonkeyPatch, tty: bool, term: str | None, encoding: str, live: bool
) -> None:
    monkeypatch.delenv("TERM", raising=False)
    if term is not None:
        monkeypatch.setenv("TERM", term)
    reporter = make_reporter(Stream(tty=tty, encoding=encoding), Stream())
    assert isinstance(reporter, TerminalReporter if live else PlainReporter)


@contextmanager
def pseudo_terminal() -> Iterator[tuple[TextIO, list[bytes]]]:
    """A real terminal's end to write to, and what arrives at the other."""
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
        reader.join(timeout=10)
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


def test_events_from_several_threads_keep_their_lines_whole() -> None:
    out = Stream()
    with plain(out, Stream()) as reporter:

        def talk() -> None:
            for _ in range(50):
                note(reporter, "word " * 20)

        threads = [threading.Thread(target=talk) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert set(out.getvalue().splitlines()) == {f"2026-11-21T11:46:32Z note:{' word' * 20}"}
    assert len(out.getvalue().splitlines()) == 200


def test_the_recording_reporter_keeps_events() -> None:
    recording = RecordingReporter(answer=True)
    reporter: Reporter = recording
    with reporter:
        reporter.report(STARTED)
        assert reporter.confirm("Load it?")
    assert recording.events == [STARTED]


def test_the_evidence_of_the_binding_resource_is_told() -> None:
    evidence = "disk: broker 2: flushes took 87% of their time in appends"
    told = replace(CLOSED, evidence=evidence, notes=("one overload at np 110 was outvoted",))
    assert limit_evidence(told) == [
        "one overload at np 110 was outvoted",
        "bound by disk: broker 2: flushes took 87% of their time in appends",
    ]

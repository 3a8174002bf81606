"""Output for people: lines of a log, and a live display on a terminal."""

from __future__ import annotations

import io
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from rich.cells import cell_len
from rich.console import Console
from syrupy.assertion import SnapshotAssertion

from jobs.console.events import (
    Level,
    Notice,
    PhaseProgress,
    PhaseStarted,
    PlanShown,
    RecordingReporter,
    TrialProgress,
    note,
    warn,
)
from jobs.console.printing import (
    Activity,
    PlainReporter,
    TerminalReporter,
    activity_lines,
    limit_title,
    make_reporter,
    point_words,
    table_lines,
)
from metrics.reporting.limit_answer import answer_of
from metrics.trial.client import ClientWindow
from metrics.trial.evidence import Judgement, Reason
from search.model import Verdict
from tests.support.evidence import START_S, broker
from tests.support.processes import PATIENCE_S
from tests.support.rows import traffic, trial
from tests.support.run_events import (
    ANSI,
    CLOSED,
    FINISHED,
    HIDE,
    OPEN,
    PLAN,
    RUN,
    SHOW,
    STARTED,
    SUMMARY,
    Stream,
    plain,
    plain_run,
    screen,
    terminal,
)

WIDE = traffic(20_000, 1_024, 25.0, load=20_000)
LIVE = re.compile(r"\s*$|[⠀-⣿] |  (offering|why:|[\d.]+ of) ")
"""Lines of the live area; time decides which of its states are drawn."""


def test_the_output_of_a_run(snapshot: SnapshotAssertion) -> None:
    events = (PlanShown(PLAN), *RUN)
    lines = plain_run(*events)
    assert not [char for line in lines for char in line if not char.isprintable()]
    assert "\n".join(lines) == snapshot(name="log")
    for width in (80, 120):
        lines = screen(*events, width=width).splitlines()
        assert max(map(cell_len, lines)) <= width
        still = [line.rstrip() for line in lines if not LIVE.match(line)]
        assert "\n".join(still) == snapshot(name=f"{width} columns")


def test_a_trial_has_its_goal_and_the_time_of_recovery() -> None:
    rested = replace(FINISHED, trial=replace(FINISHED.trial, recovery_s=2.0), side="B")
    words = "B: request handlers of broker 2 idle 0.12, below 0.20"
    (line,) = plain_run(rested)
    assert line.endswith(f'at_rest_after="2 s" reason="{words}"')
    assert f"└ {words}; recovered after 2 s" in " ".join(screen(rested, width=120).split())
    shown = [screen(replace(FINISHED, trials_left=left)) for left in (0, 1)]
    assert [" none" in each for each in shown] == [True, False]


def test_an_unknown_value_is_a_question_mark() -> None:
    lacking = trial(
        client=ClientWindow(START_S, START_S),
        brokers=(broker(1, handler_idle=None, isr_changed_share=None),),
        judgements={"default": Judgement(Verdict.INVALID, ())},
    )
    unknown = replace(FINISHED, trial=lacking)
    (line,) = plain_run(unknown)
    for pair in ('achieved="? MB/s"', "idle=?", "broker=?", "isr=?"):
        assert pair in line
    assert "reason" not in line
    assert "0 %" not in screen(unknown)
    without_brokers = replace(lacking, evidence=replace(lacking.evidence, brokers=()))
    assert plain_run(replace(unknown, trial=without_brokers)) == [line]


def test_text_from_elsewhere_stays_on_its_line() -> None:
    hostile = 'two\nlines "quoted" \x1b[31mred\x07 [bold]markup[/bold]'
    (line,) = plain_run(PhaseStarted(hostile))
    assert line.endswith("doing=\"two lines 'quoted' [31mred [bold]markup[/bold]\"")
    judged = Judgement(Verdict.OVERLOADED, (Reason("isr", hostile, 0.6, 0.5),))
    trial = replace(FINISHED.trial, judgements={"default": judged})
    assert f"two lines {hostile[10:18]} [31mred" in screen(replace(FINISHED, trial=trial))
    raw = io.BytesIO()
    with plain(io.TextIOWrapper(raw, encoding="ascii"), Stream()) as reporter:
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


def test_events_from_several_threads_keep_their_lines_whole() -> None:
    out = Stream()
    with plain(out, Stream()) as reporter, ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: note(reporter, "word " * 20), range(200)))
    assert out.getvalue().splitlines() == [f"2026-11-21T11:46:32Z note:{' word' * 20}"] * 200


def test_a_finished_size_is_one_line(snapshot: SnapshotAssertion) -> None:
    assert point_words(CLOSED) == snapshot
    assert point_words(CLOSED, "strict").startswith("10 kB, goal strict: 30.0 MB/s")


def test_a_doubtful_limit_is_named_everywhere(snapshot: SnapshotAssertion) -> None:
    doubtful = replace(CLOSED, load_low=60.0)
    caveat = answer_of(doubtful).caveat
    assert caveat == snapshot
    assert caveat in point_words(doubtful)
    assert limit_title(replace(SUMMARY, boundaries=(doubtful, OPEN))) == (
        "Limits of testbed-3 with 100B-to-10kB (goal default, 3 brokers); doubtful: 10 kB"
    )
    assert "doubtful" not in " ".join(answer_of(replace(doubtful, gave_up="used up")).lines)
    older = replace(doubtful, load_low=None, load_high=None, confidence=0.28)
    assert "28 %" in answer_of(older).caveat


def test_a_table_has_its_numbers_at_the_right_and_any_text_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = "word " * 60
    rows = [("1", "[bold]x[/bold]", words), ("1,200", ":smile:\n2", "")]
    lines = ["broker  state           why", f"     1  [bold]x[/bold]  {words}".rstrip()]
    assert table_lines(("broker", "state", "why"), rows) == [*lines, " 1,200  :smile: 2"]
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    unknown = table_lines(("broker", "idle"), [("1", "0.41"), ("22", "?")])
    assert unknown == ["broker  idle", "     1  0.41", "    22  ?"]
    assert table_lines(("broker", "state"), []) == ["broker  state"]


# --- a terminal -------------------------------------------------------------------


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


def test_the_live_area_shows_the_progress_of_the_trial(snapshot: SnapshotAssertion) -> None:
    progress = TrialProgress("measuring", 6.0, 31.04, broker(2, handler_idle=0.204))
    activity = Activity(STARTED, 0.0).progressed(progress, 100.0)
    out = Stream()
    Console(file=out, width=100).print(*activity_lines(activity, 101.2, 100), sep="\n")
    assert [line.rstrip() for line in out.getvalue().splitlines()] == snapshot


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_the_cursor_is_restored_after_any_end(error: type[BaseException]) -> None:
    out, before = Stream(tty=True), set(threading.enumerate())

    def leave() -> None:
        with terminal(out) as reporter:
            reporter.report(STARTED)
            assert HIDE in out.getvalue()
            raise error

    with pytest.raises(error):
        leave()
    text = out.getvalue()
    assert text.rfind(SHOW) > text.rfind(HIDE)
    assert "stopped after 0 s" in text and "✓" not in text
    for thread in set(threading.enumerate()) - before:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def test_consent_is_requested_only_on_a_terminal_with_input() -> None:
    answers = {"y\n": True, "YES\n": True, "\n": False, "no\n": False, "": False}
    for answer, yes in answers.items():
        stdin, out = Stream(tty=True), Stream(tty=True)
        stdin.write(answer)
        stdin.seek(0)
        console = Console(file=out, force_terminal=True, width=80)
        with TerminalReporter(console, Stream(tty=True), stdin) as reporter:
            reporter.report(PhaseStarted("looking"))
            assert reporter.confirm("Load cluster [prod]?") is yes
        assert "Load cluster [prod]? [y/N]" in ANSI.sub("", out.getvalue())
    assert not terminal(Stream(tty=True)).confirm("Load it?")
    assert not plain(Stream(), Stream()).confirm("Load it?")
    recording = RecordingReporter(answer=True)
    with recording:
        recording.report(STARTED)
        assert recording.confirm("Load it?")
    assert recording.events == [STARTED]


def test_the_display_is_live_only_on_a_capable_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    for tty, term, encoding, live in (
        (True, "xterm-256color", "utf-8", True),
        (True, "xterm-256color", "UTF8", True),
        (True, "dumb", "utf-8", False),
        (True, None, "utf-8", False),
        (True, "xterm", "ascii", False),
        (False, "xterm", "utf-8", False),
    ):
        monkeypatch.setenv("TERM", term or "")
        if term is None:
            monkeypatch.delenv("TERM")
        reporter = make_reporter(Stream(tty=tty, encoding=encoding), Stream())
        assert isinstance(reporter, TerminalReporter if live else PlainReporter), (term, encoding)
    monkeypatch.setenv("TERM", "xterm-256color")
    for no_color in ("", "1"):
        monkeypatch.setenv("NO_COLOR", no_color)
        out = Stream(tty=True, encoding="utf-8")
        with make_reporter(out, out) as reporter:
            for event in RUN:
                reporter.report(event)
        assert bool(re.search(r"\x1b\[([0-9;]*;)?3[0-7]m", out.getvalue())) is not bool(no_color)

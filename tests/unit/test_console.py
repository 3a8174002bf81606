"""Output for people: plain lines where there is no terminal."""

from __future__ import annotations

import io
import threading
from dataclasses import replace

import pytest
from syrupy.assertion import SnapshotAssertion

from jobs.console.events import (
    Level,
    Notice,
    PhaseStarted,
    PlanShown,
    RecordingReporter,
    Reporter,
    note,
    warn,
)
from jobs.console.text import limit_title, point_words, table_lines
from metrics.reporting.limit_answer import answer_of
from metrics.trial.client import ClientWindow
from metrics.trial.judgement import Judgement, Reason
from search.model import Verdict
from tests.support.evidence import START_S, broker
from tests.support.rows import trial
from tests.support.run_events import (
    CLOSED,
    FINISHED,
    OPEN,
    PLAN,
    RUN,
    STARTED,
    SUMMARY,
    Stream,
    plain,
    plain_run,
    screen,
    terminal,
)


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
            '"10 kB" producers=128 offered="32.0 MB/s" achieved="31.2 MB/s" idle=0.12 broker=2 '
            'isr="55 %" '
            'verdict=OVERLOADED took="14 s" trials_left=4 time_left="57 s" '
            'reason="request handlers of broker 2 idle 0.12, below 0.20"'
        )
    ]


def test_a_trial_has_its_goal_and_the_time_of_recovery() -> None:
    rested = replace(FINISHED, trial=replace(FINISHED.trial, recovery_s=2.0), side="B")
    words = "B: request handlers of broker 2 idle 0.12, below 0.20"
    (line,) = plain_run(rested)
    assert line.endswith(f'at_rest_after="2 s" reason="{words}"')
    assert f"└ {words}; at rest again after 2 s" in " ".join(screen(rested, width=120).split())
    assert " none" in screen(replace(FINISHED, trials_left=0))


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
    shown = screen(replace(FINISHED, trial=trial))
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
def test_the_final_lines_are_the_answers_and_then_why(render: object) -> None:
    text = render()  # type: ignore[operator]
    assert "Limits of testbed-3 with 100B-to-10kB (goal default, 3 brokers)" in text
    joined = " ".join(text.split())
    assert "10 kB 30.0 MB/s, 3,000 messages/s; 28.6 to 31.8 MB/s (2,8" in joined
    assert "a broker: 10.0 MB/s (1,000 messages/s)" in joined
    assert "latency p50 3.10 ms, p99 12.0 ms, p99.9 140 ms" in joined
    assert "bound by request handlers: broker 2 idle 0.12, below 0.20" in text
    assert "100 B at least 23.8 MB/s, 237,500 messages/s" in joined
    assert "search ended: load_cap hit" in joined
    assert joined.index("100 B at least") < joined.index(" Why 10 kB 30.0 MB/s (120 producers)")
    assert "out/run/summary.json" in text
    assert "no conclusion" in text


def test_the_plan_states_duration_and_bytes() -> None:
    for text in (plain_run(PlanShown(PLAN))[0], screen(PlanShown(PLAN), width=120)):
        assert "about 12 trials of 14 s, 5 min 20 s in all, at most 12 GB written" in text
        assert "messages of 100 B, 10 kB" in text
        assert "brackets within 5 %" in text
        assert "A small disk-bound cluster." in text


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


def test_the_binding_resource_is_one_line_above_the_notes() -> None:
    evidence = (
        "disk: broker 2: request handlers idle 0.07, and flushes took 87% of their time (0.5 ms "
        "each); produce took 20.0 ms, 18.0 of it local, 1.5 queued; all 3 overloads say so"
    )
    limit = replace(
        CLOSED,
        limited_by="disk",
        evidence=evidence,
        notes=("one overload at 110 producers was outvoted",),
    )
    answer = answer_of(limit)
    assert answer.bound == "bound by disk: broker 2: flushes took 87% of the handlers' time"
    assert answer.why[-1] == "one overload at 110 producers was outvoted"


@pytest.mark.parametrize(
    ("resource", "evidence", "line"),
    [
        ("disk", "broker 1: flushes took 9% of their time (1.0 ms each); x",
         "bound by disk: broker 1: flushes took 9% of the handlers' time"),
        ("CPU", "broker 2: request handlers idle 0.10 on a machine 97% busy, of which 2 cores",
         "bound by CPU: broker 2: request handlers idle 0.10 on a machine 97% busy"),
        ("heap", ("broker 1: request handlers idle 0.00, and garbage collection stopped all "
         "threads for 31% of the time, with never less than 90% of the heap in use; produce took"),
         "bound by heap: broker 1: garbage collection stopped all threads for 31% of the time"),
        ("request handlers", "broker 3: request handlers idle 0.05 with CPU to spare and no wait",
         "bound by request handlers: broker 3: request handlers idle 0.05"),
        ("network", "broker 1: Kafka's bytes filled 93% of the 16 Mbit/s interface (15 in, 2 out)",
         "bound by network: broker 1: Kafka's bytes filled 93% of the 16 Mbit/s interface"),
        ("replication", ("broker 2: followers fell behind: ISR changes or under-replicated "
         "partitions in 90% of the samples, the replicas on broker 3 by up to 60 records"),
         ("bound by replication: broker 2: ISR changes or under-replicated partitions in 90% of "
         "the samples")),
        ("unknown", "the cluster shows no broker metrics",
         "bound by an unknown resource: the cluster shows no broker metrics"),
    ],
)  # fmt: skip
def test_the_line_has_the_reading_that_shows_the_resource(
    resource: str, evidence: str, line: str
) -> None:
    limit = replace(CLOSED, limited_by=resource, evidence=f"{resource}: {evidence}")
    assert answer_of(limit).bound == line


def test_without_evidence_the_first_reason_stands_beside_the_resource() -> None:
    reasons = ("request_handler_idle: broker 2 idle 0.12, below 0.20", "isr: flapping")
    limit = replace(CLOSED, limited_by=None, evidence="", overload_reasons=reasons)
    assert answer_of(limit).bound == "bound by an unknown resource: broker 2 idle 0.12, below 0.20"


def test_a_finished_size_is_one_line(snapshot: SnapshotAssertion) -> None:
    assert point_words(CLOSED) == snapshot
    assert point_words(CLOSED, "strict").startswith("10 kB, goal strict: 30.0 MB/s")


def test_a_doubtful_limit_is_named_everywhere(snapshot: SnapshotAssertion) -> None:
    doubtful = replace(CLOSED, load_low=60.0)
    caveat = answer_of(doubtful).caveat
    assert caveat == snapshot
    for figure in ("60 to 128 producers", "53 %", "20 %", "search.interval_max"):
        assert figure in caveat
    assert caveat in point_words(doubtful)
    assert limit_title(replace(SUMMARY, boundaries=(doubtful, OPEN))) == (
        "Limits of testbed-3 with 100B-to-10kB (goal default, 3 brokers); doubtful: 10 kB"
    )
    assert "doubtful" not in " ".join(answer_of(replace(doubtful, gave_up="used up")).lines)
    older = replace(doubtful, load_low=None, load_high=None, confidence=0.28)
    assert "28 %" in answer_of(older).caveat


def test_a_table_has_its_numbers_at_the_right_and_is_never_wrapped() -> None:
    words = "word " * 60
    rows = [("1", "ready", words), ("1,200", "fenced", "")]
    assert table_lines(("broker", "state", "why"), rows) == [
        "broker  state   why",
        f"     1  ready   {words}".rstrip(),
        " 1,200  fenced",
    ]
    assert table_lines(("broker", "state"), []) == ["broker  state"]
    unknown = table_lines(("broker", "idle"), [("1", "0.41"), ("22", "?")])
    assert unknown == ["broker  idle", "     1  0.41", "    22  ?"]


def test_markup_in_a_cell_is_text() -> None:
    assert table_lines(("what",), [("[bold]x[/bold] :smile:",)]) == [
        "what",
        "[bold]x[/bold] :smile:",
    ]


def test_a_table_in_a_notebooks_kernel_is_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    assert table_lines(("a", "b"), [("1", "2")]) == ["a  b", "1  2"]


def test_markup_in_a_heading_is_text() -> None:
    assert table_lines(("[bold]x[/bold]", ":smile:"), [("1", "2")])[0] == "[bold]x[/bold]  :smile:"


def test_a_cell_with_a_line_break_is_one_line() -> None:
    assert table_lines(("a",), [("1\n2",)]) == ["a", "1 2"]

"""The sentences of a report, and its page, which escapes them and loads nothing."""

from __future__ import annotations

import math
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from jobs.console.events import RunFinished, Table
from jobs.console.printing import PlainReporter
from metrics.columns import row_of
from metrics.reporting.limit_answer import headline
from metrics.reporting.report_page import (
    BROKERS_MAX,
    HEIGHT,
    LATENCY,
    WIDTH,
    WINDOWS_MAX,
    WORDS,
    build_report,
    panels_of,
    report_page,
)
from metrics.reporting.summary import RunSummary
from metrics.reporting.summary_tables import summary_of
from metrics.reporting.templating import render
from metrics.reporting.trial_charts import throughput_latency_spec
from metrics.tables.boundary import BoundaryRow
from metrics.tables.schema import RunRow
from metrics.trial.adding import LatencySlice
from metrics.trial.client import ClientWindow
from metrics.trial.evidence import Judgement, Reason
from metrics.trial.sockets import KernelBuffers, SocketCounts
from metrics.windows.series import SeriesPoint
from metrics.windows.use import Resource
from search.model import Verdict
from tests.support.evidence import HOST, START_S, client
from tests.support.page_text import PageText
from tests.support.report_rows import (
    IDLE,
    RUN_ID,
    overloaded,
    summary_of_sizes,
    sustained,
    trial_at,
    trials_of_sizes,
)
from tests.support.rows import trial
from tests.support.vega_lite import fits_schema

GLOSSARY = Path(__file__).parents[2] / "docs" / "glossary.md"
SETTINGS: dict[str, dict[str, Any]] = {
    "workload": {"producer.acks": "all", "message_bytes": [1000]},
    "cluster": {"a": "b"},
}
ONE = summary_of_sizes([1000])
POINT = ONE.boundaries[0]


def report_of(summary: RunSummary, *sizes: int) -> dict[str, Any]:
    return build_report(summary, trials_of_sizes(sizes), SETTINGS)


def text_of(summary: RunSummary, *sizes: int) -> str:
    return PageText(report_page(report_of(summary, *sizes))).text


def test_the_sentence_for_all_sizes(snapshot: SnapshotAssertion) -> None:
    points = [
        replace(POINT, message_bytes=size, mb_per_s=mb_per_s, limited_by=bound)
        for size, mb_per_s, bound in ((100, 9.0, "CPU"), (1000, 12.0, "disk"), (5000, 11.0, "disk"))
    ]
    assert headline(points[:2], 3) == snapshot(name="two resources")
    open_point = replace(points[2], gave_up="used up")
    assert headline([points[1], open_point], 3) == snapshot(name="one size without an answer")
    doubtful = replace(points[0], load_low=4.0, load_high=60.0, interval_max=0.2)
    assert headline([doubtful, points[1]], 3).endswith("disk at 1 kB. Doubtful: 100 B.")
    assert headline(points[:1], 3) == ""
    assert headline([open_point, open_point], 3) == ""


def test_the_headroom_counts_to_the_threshold_of_the_goal() -> None:
    goal = {"name": "default", "indicators.request_handler_idle_min": 0.2}
    for settings, handlers in (({**SETTINGS, "goal": goal}, 0.21), (SETTINGS, 0.41)):
        (part,) = build_report(ONE, trials_of_sizes([1000]), settings)["parts"]
        headrooms = {use.resource: use.headroom for use in part.bindings[0].uses}
        assert headrooms["request handlers"] == pytest.approx(handlers)
        assert "quota" not in headrooms, "its use is unknown"


def test_a_trial_that_was_not_made_has_no_figures() -> None:
    refused = Judgement(Verdict.INVALID, (Reason("not_at_rest", "it was not at rest", 1.0, 0.0),))
    made = trial_at(1, 1000, 63, {"default": refused}, brokers=0)
    window = ClientWindow(START_S, START_S)
    trial = replace(made, evidence=replace(made.evidence, client=window, end_offsets=None))
    page = report_page(build_report(ONE, [trial], {}))
    assert "1 1 kB 63 ? ? ? ? – ? ? INVALID it was not at rest" in PageText(page).text
    assert 'data-value="nan"' not in page


def test_the_last_agreeing_trial_at_a_load_is_the_side_of_the_bracket() -> None:
    invalid = Judgement(Verdict.INVALID, (Reason("metrics", "no samples", 0.0, 0.0),))
    verdicts = [overloaded(), overloaded(), sustained(), invalid]
    trials = [
        trial_at(i, 1000, 63, {"default": judged}) for i, judged in enumerate(verdicts, start=1)
    ]
    rows = build_report(ONE, trials, {})["trials"]
    assert [bool(row.sides) for row in rows] == [False, True, False, False]


def test_goals_have_their_own_answers_and_sides() -> None:
    strict = summary_of_sizes([1000], "strict", Resource.CPU).boundaries
    sides = {"sustained": 50, "overloaded": 58}
    fields_of = {f"{axis}_{side}": n for axis in ("np", "load") for side, n in sides.items()}
    low = replace(strict[0], **fields_of)  # type: ignore[arg-type]
    both = replace(ONE, goal="strict,default", boundaries=(low, POINT))
    judged = {"strict": overloaded(Resource.CPU), "default": sustained()}
    trials = [
        trial_at(1, 1000, 63, {"strict": overloaded(), "default": overloaded()}),
        trial_at(2, 1000, 58, judged),
        trial_at(3, 1000, 50, {"strict": sustained(), "default": sustained()}),
    ]
    report = build_report(both, trials, {})
    assert [part.goal for part in report["parts"]] == ["strict", "default"]
    assert [part.bindings[0].trials for part in report["parts"]] == [(3, 2), (2, 1)]
    sides_of_both = (("overloaded side", "strict"), ("sustained side", "default"))
    assert report["trials"][1].sides == sides_of_both
    assert report["trials"][1].verdict == "OVERLOADED / SUSTAINED"
    text = PageText(report_page(report)).text
    assert "Goal strict" in text
    assert "sustained side, default" in text


def test_a_run_of_fixed_loads_is_no_failed_search() -> None:
    held = replace(ONE, boundaries=())
    report = report_of(held, 1000)
    assert report["title"] == "Traffic held on testbed with demo"
    assert report["held"] == "Fixed loads were held in 2 trials: 1 OVERLOADED, 1 SUSTAINED."
    answered = replace(held, carries=False, answer="no: 5.00 MB/s for 10 min, because of it")
    text = text_of(answered, 1000)
    assert text.index("No: 5.00 MB/s for 10 min, because of it.") < text.index("Fixed loads were")
    shown = StringIO()
    PlainReporter(shown, shown).report(RunFinished(answered, 60.0, (("report", "p"),)))
    assert shown.getvalue().splitlines()[1:3] == ["", answered.answer]
    text = text_of(replace(held, status="failed", error="no broker"))
    assert "No limit was found at any message size" in text
    assert "without a complete answer: failed. No broker." in text
    assert "The run is in progress" in text_of(replace(ONE, status="running"), 1000)


def test_the_tables_alone_give_the_summary() -> None:
    names = ("testbed", "demo", "default")
    run = RunRow(
        RUN_ID, "started", 1795261592.0, *names, 3, caveat=ONE.caveat,
        environment=ONE.environment,
        config='{"workload": {"topic.replication_factor": 2, "consumers.groups": 0}}',
    )  # fmt: skip
    end = replace(run, event="finished", at_s=1795261900.0, status="done", exit_code=0)
    older = BoundaryRow(RUN_ID, 1.0, *names[:2], replace(POINT, np_sustained=1))
    newer = row_of(BoundaryRow(RUN_ID, 2.0, *names[:2], POINT))
    assert summary_of([row_of(end), row_of(run)], [newer, row_of(older)]) == ONE
    running = summary_of([row_of(run)], [])
    assert (running.status, running.finished_at, running.boundaries) == ("running", "", ())
    unwritten = newer | dict.fromkeys(("axis", "evidence", "notes", "confidence"))
    (boundary,) = summary_of([row_of(end)], [unwritten]).boundaries
    assert (boundary.axis, boundary.evidence, boundary.notes) == ("np", "", ())


def test_the_page_holds_it_all_and_loads_nothing(snapshot: SnapshotAssertion) -> None:
    page = report_page(report_of(ONE, 1000))
    shown = PageText(page)
    assert "\n".join(shown.lines) == snapshot
    assert all(each == "data:," or each.startswith("#") for each in shown.references)
    assert "default-src 'none'" in page
    known = replace(
        POINT, load_low=55.2, load_high=61.8, load_estimate=59.2, interval_max=0.1,
        latency_p50_ms=3.1, latency_p99_ms=12.0, latency_p999_ms=140.0,
    )  # fmt: skip
    text = text_of(replace(ONE, boundaries=(known,)), 1000)
    assert "55 to 62 doubtful 59.2 3.10 / 12.0 / 140" in text
    report = report_of(summary_of_sizes([100, 1000, 10_000]), 100, 1000, 10_000)
    text = PageText(report_page(report)).text
    beside = report["parts"][0].answers[0].beside
    parts = (beside, "The line joins", "Headroom is the unused", "All trials of the run")
    places = [text.index(words) for words in parts]
    assert places == sorted(places)
    glossary = GLOSSARY.read_text("utf-8").replace("`", "")
    assert all(f"| {word} | {meaning} |\n" in glossary for word, meaning in WORDS.items())


def test_each_trial_that_acknowledged_something_is_a_mark_of_throughput_against_latency() -> None:
    nothing = trial(99, client=client(acked_records=0, acked_bytes=0))
    made = trials_of_sizes([1000, 10_000])
    spec = throughput_latency_spec([*made, nothing])
    assert spec is not None
    fits_schema(spec)
    (rows,) = spec["datasets"].values()
    seen = [each.evidence.client for each in made]
    assert [(row["trial"], row["achieved"], row["p99"]) for row in rows] == [
        (each.number, one.achieved_mb_per_s, one.latency.p99_ms)
        for each, one in zip(made, seen, strict=True)
    ]
    assert {row["verdict"] for row in rows} == {"SUSTAINED", "OVERLOADED"}
    assert {row["size"] for row in rows} == {"1 kB", "10 kB"}
    assert throughput_latency_spec([nothing]) is None


def test_names_cannot_break_out_of_a_page() -> None:
    evil = "</script><script>alert(1)</script><b>"
    bad = replace(ONE, cluster=evil, error=evil, status="failed", caveat=evil)
    bad = replace(bad, boundaries=(replace(POINT, evidence=evil, notes=(evil,)),))
    page = report_page(build_report(bad, trials_of_sizes([1000]), {"workload": {evil: evil}}))
    table = Table(evil, (evil,), ((evil,),))
    answer = answer_page(title=evil, sentences=[evil], tables=[table])
    for text in (page, answer):
        assert "<script>alert" not in text
        assert "<b>" not in text.partition("<script>")[0]


@pytest.mark.computes
def test_a_large_run_on_many_brokers_stays_below_two_megabytes() -> None:
    sizes = [100 * (index + 1) for index in range(30)]
    trials = trials_of_sizes(sizes * 4, brokers=100)
    for number, made in enumerate(trials):
        judged = made.judgements["default"]
        many = replace(judged, reasons=judged.reasons * 100)
        trials[number] = replace(made, judgements={"default": many})
    report = build_report(summary_of_sizes(sizes), trials, SETTINGS)
    assert len(report["trials"]) == 240
    assert {len(trial.windows) for trial in report["trials"]} == {WINDOWS_MAX // 240}
    page = report_page(report)
    assert page.count(f"<li>{IDLE.text}</li><li>and 92 more</li>") == len(trials) / 2
    assert len(page.encode()) < 2_000_000


def test_a_trial_shows_hosts_and_connections_and_a_closed_loop_no_offered_rate() -> None:
    trials = trials_of_sizes([1000])
    sockets = SocketCounts(8, 8, 10, rtt_min_us=50_000, rtt_sum_us=520_000, busy_us=100)
    sockets.in_flight_max_bytes, sockets.receiver_limited_us = 128_000, 40
    host = KernelBuffers("gen-1", (4_096, 131_072, 6_291_456), (4_096, 16_384, 4_194_304), 1, 2)
    seen = replace(trials[0].evidence.client, producer_sockets={3: sockets}, kernel_buffers=(host,))
    closed = replace(trials[0].pattern.producer, rate_records_per_s=math.inf)
    first = replace(
        trials[0],
        pattern=replace(trials[0].pattern, producer=closed),
        evidence=replace(
            trials[0].evidence, client=seen, hosts=(HOST,), broker_sockets={3: SocketCounts(9)}
        ),
    )
    text = PageText(report_page(build_report(ONE, [first, *trials[1:]], SETTINGS))).text
    assert "h brokers 30 %" in text and "sda 20 % 0.10 eth0 50.0 10.0 0.00 % 0.01 %" in text
    assert "Producers' connections, measured by the kernel of the generator" in text
    assert "Clients' connections, measured by the kernel of the brokers" in text
    assert "Consumers' connections" not in text
    assert "3 8 50.0 52.0 128 kB 0 B 0 B ? ? 0 ? 40 % ? 0 %" in text, "the cells of broker 3"
    assert "Socket buffers of gen-1: receive up to 6.3 MB by tuning" in text
    assert "closed loop" in text
    assert "in a closed loop from the actual one" in text


# --- the page of a comparison or of a night ---------------------------------------

RUN = {"started_at": "2026-11-23T07:00:00Z", "status": "done", "error": None, "caveat": ""}
PAGE = {
    "run": RUN,
    "title": "num.io.threads=2 against num.io.threads=1, with 1kB",
    "about": "comparison 20261123-070000-ab12",
    "sentences": ["B takes 20 % less"],
    "tables": [Table("what differs", ("what", "A", "B"), (("num.io.threads", "2", "1"),))],
    "facts": [("broker.version", "4.1.2")],
    "file": "compare.json",
}


def answer_page(**changes: Any) -> str:
    return render("answer.html", **PAGE | changes)


def test_the_answer_of_a_comparison_comes_first_and_its_page_loads_nothing(
    snapshot: SnapshotAssertion,
) -> None:
    page = answer_page()
    assert '<p class="lead">B takes 20 % less.</p>' in page
    assert "http" not in page.replace("http-equiv", "")
    assert PageText(page).lines == snapshot(name="done")
    ended = answer_page(
        run=RUN | {"status": "no conclusion", "error": "too few pairs"}, sentences=[]
    )
    assert PageText(ended).lines == snapshot(name="no conclusion")


def point(elapsed_s: float, value: float, broker: int = 1) -> SeriesPoint:
    return SeriesPoint("idle", broker, elapsed_s, value)


def seen(*slices: LatencySlice) -> dict[int, ClientWindow]:
    """The window of trial 1, of 8 s."""
    return {1: replace(client(), end_s=START_S + 8, latency_over_time=slices)}


def test_a_panel_reaches_from_the_warm_up_to_the_end_and_from_0_to_the_highest_value() -> None:
    points = [point(-2.0, 0.0), point(3.0, 0.5), point(8.0, 1.0), point(4.0, 0.25, broker=2)]
    (panel,) = panels_of({1: points}, seen())[1]
    assert panel.top == "1.00"
    assert panel.window == (0.2 * WIDTH, 0.8 * WIDTH)
    first, second = dict(panel.lines).items()
    assert first == ("broker 1", f"0,{HEIGHT - 2} {WIDTH / 2:.0f},{HEIGHT / 2:.0f} {WIDTH},2")
    assert second[0] == "broker 2"


def test_points_without_a_trial_and_more_than_a_dozen_brokers_are_left_out() -> None:
    found = panels_of({1: [point(2.0, 0.0)], 2: [point(1.0, 5.0)]}, seen())
    assert list(found) == [1]
    (panel,) = found[1]
    assert panel.lines == (("broker 1", f"{WIDTH / 4:.0f},{HEIGHT - 2}"),), "zeros have a place"
    (panel,) = panels_of({1: [point(1.0, 1.0, broker=each) for each in range(100)]}, seen())[1]
    assert list(panel.names) == [f"broker {each}" for each in range(BROKERS_MAX)]


def test_latency_comes_before_the_brokers_readings_over_the_same_time() -> None:
    first = LatencySlice(0.0, 4.0, 10, 5.0, 10.0, 12.0)
    slices = (first, LatencySlice(4.0, 4.0, 9, 10.0, 20.0, 25.0))
    latency, idle = panels_of({1: [point(-2.0, 0.5), point(8.0, 0.5)]}, seen(*slices))[1]
    assert (latency.title, latency.top, latency.names) == (LATENCY, "20.00", ("p99", "p50"))
    assert latency.window == idle.window == (0.2 * WIDTH, 0.8 * WIDTH)
    p99, p50 = dict(latency.lines).values()
    middles = f"{0.4 * WIDTH:.0f},{HEIGHT / 2:.0f} {0.8 * WIDTH:.0f},2"
    assert p99 == middles, "in the slices' middles"
    assert p50.endswith(f"{HEIGHT / 2:.0f}")
    (alone,) = panels_of({}, seen(*slices))[1]
    assert alone.title == LATENCY, "also where no broker showed metrics"


@pytest.mark.computes
def test_the_page_draws_them_with_the_evidence_and_without_a_script() -> None:
    trials = trials_of_sizes([1000])
    series = panels_of({1: [point(1.0, 0.5), point(2.0, 0.25)]}, seen())
    page = report_page(build_report(ONE, trials, {}, series=series))
    assert page.count("<polyline") == 1
    assert 'aria-label="Trial 1 over time"' in page
    assert "idle, up to 0.50" in page
    assert '<span class="line-0 round-0">broker 1</span>' in page, "the broker of each line"
    assert "<polyline" not in report_page(build_report(ONE, trials, {}))

"""The sentences of a report, and its page, which escapes them and loads nothing.

The notebooks hold no outputs and no logic, and their charts can be drawn.
"""

from __future__ import annotations

import ast
import importlib
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import altair as alt
import nbformat
import pytest
from syrupy.assertion import SnapshotAssertion

from jobs import notebook
from jobs.console.events import RunFinished, Table
from jobs.console.printing import PlainReporter
from jobs.notebook import parameter
from metrics.columns import row_of
from metrics.common.errors import ConfigError
from metrics.features.plan.charts import answer_table, brokers_chart
from metrics.planning.provisioning import Demand, MeasuredLimit, provision
from metrics.reporting.history_charts import (
    headroom_charts,
    history_charts,
    lines_chart,
    nights_charts,
)
from metrics.reporting.limit_answer import headline
from metrics.reporting.notebook_display import chart_output, paragraph, table_html
from metrics.reporting.report_page import (
    BROKERS_MAX,
    HEIGHT,
    LATENCY,
    WIDTH,
    WINDOWS_MAX,
    build_report,
    panels_of,
    report_page,
)
from metrics.reporting.summary import RunSummary
from metrics.reporting.summary_tables import summary_of
from metrics.reporting.templating import render
from metrics.reporting.trial_charts import (
    brokers_use_chart,
    latency_chart,
    limits_use_chart,
    series_chart,
    throughput_latency_spec,
)
from metrics.tables.boundary import BoundaryRow
from metrics.tables.schema import RunRow
from metrics.trial.adding import LatencySlice
from metrics.trial.client import ClientWindow
from metrics.trial.evidence import Judgement, Reason
from metrics.trial.sockets import KernelBuffers, SocketCounts
from metrics.windows.series import SERIES, SeriesPoint
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
    assert report["title"] == "Fixed load on testbed with demo"
    assert report["held"] == "Fixed loads were offered in 2 trials: 1 OVERLOADED, 1 SUSTAINED."
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
    words = re.findall(r"<dt id=.word-.*?>(.*?)</dt><dd>(.*?)</dd>", report_page(report))
    assert len(words) > 10
    assert all(f"| {word} | {meaning} |\n" in glossary for word, meaning in words)


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
    assert "Socket buffers of gen-1: receive up to 6.3 MB if tuned by the kernel" in text
    assert "closed loop" in text
    assert "in a closed loop, they begin at the actual send time" in text


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


ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
LINES_MAX = 14
"""Lines of the longest cell, which has parameters; more is logic that belongs into a module."""
BLOCKS = (
    ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.For, ast.While,
    ast.If, ast.Try, ast.With,
)  # fmt: skip


def test_all_notebooks_exist() -> None:
    names = ["boundary", "experiments", "provisioning", "regressions", "trial"]
    assert [path.stem for path in NOTEBOOKS] == names


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: str(path.stem))
def book(request: pytest.FixtureRequest) -> Any:
    read: Any = nbformat.read(request.param, as_version=4)  # type: ignore[no-untyped-call]
    nbformat.validate(read)
    return read


def _code(book: Any) -> Iterator[Any]:
    return (cell for cell in book.cells if cell.cell_type == "code")


def test_notebooks_hold_no_output_and_no_path_of_a_machine(book: Any) -> None:
    for cell in _code(book):
        assert cell.outputs == []
        assert cell.execution_count is None
        assert set(cell.metadata) <= {"tags"}
    assert book.metadata.kernelspec.name == "python3"
    assert set(book.metadata) == {"kernelspec", "language_info"}
    assert set(book.metadata.language_info) == {"name"}
    text = "".join(cell.source for cell in book.cells)
    assert not re.search(r"(?<![\w.])/(home|work|root|tmp|Users|opt|mnt)\b", text)


def test_a_cell_holds_no_logic(book: Any) -> None:
    for cell in _code(book):
        tree = ast.parse(cell.source)
        assert not [node for node in ast.walk(tree) if isinstance(node, BLOCKS)], cell.source
        assert len(cell.source.splitlines()) <= LINES_MAX, cell.source
        assert not re.search(r"_jvm|sparkContext|\.rdd\b|_jdf", cell.source), "not on Connect"


def test_a_notebook_begins_with_its_question_and_its_parameters(book: Any) -> None:
    first, second = book.cells[:2]
    assert first.cell_type == "markdown"
    assert first.source.startswith("# ") and "?" in first.source.splitlines()[0]
    assert second.metadata.tags == ["parameters"]
    assert 'where = parameter("tables"' in second.source


PACKAGES = ("search", "metrics", "jobs", "conf")


def _unresolved(source: str) -> list[str]:
    """The imports of the project in a cell that do not exist."""
    missing = []
    for node in ast.walk(ast.parse(source)):
        wanted: list[tuple[str, str | None]]
        if isinstance(node, ast.Import):
            wanted = [(alias.name, None) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            wanted = [(node.module or "", alias.name) for alias in node.names]
        else:
            continue
        missing += [
            f"{module}: {name or 'itself'}"
            for module, name in wanted
            if module.partition(".")[0] in PACKAGES and not _is_there(module, name)
        ]
    return missing


def _is_there(module: str, name: str | None) -> bool:
    try:
        found = importlib.import_module(module)
        if name is not None and not hasattr(found, name):
            importlib.import_module(f"{module}.{name}")
    except ModuleNotFoundError:
        return False
    return True


def test_every_import_of_the_project_exists(book: Any) -> None:
    cells = [cell.source for cell in _code(book)]
    assert any("from jobs.notebook import" in source for source in cells)
    assert [each for source in cells for each in _unresolved(source)] == []
    wrong = "from metrics.tables.views import GONE\nimport search.gone, os\nfrom jobs import gone"
    assert len(_unresolved(wrong)) == 3


class Widgets:
    """The widgets of Databricks that parameters use."""

    def __init__(self, **values: str) -> None:
        self.values, self.labels = values, dict[str, str]()

    def text(self, name: str, default: str, label: str) -> None:
        self.values.setdefault(name, default)
        self.labels[name] = label

    def get(self, name: str) -> str:
        return self.values[name]


def test_a_parameter_is_the_widgets_value_in_the_type_of_its_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    widgets = Widgets(growth="0.25", trial=" 7 ", run_id="a b")
    host = {"dbutils": SimpleNamespace(widgets=widgets)}
    assert parameter("growth", 0.5, "Growth") == 0.5, "without widgets"
    monkeypatch.setattr(notebook, "_given", host.get)
    assert parameter("growth", 0.5, "Growth until then") == 0.25
    assert parameter("trial", 0, "Trial") == 7
    assert parameter("run_id", "", "Run") == "a b"
    assert parameter("offline", 0.2, "Offline") == 0.2
    assert widgets.labels["growth"] == "Growth until then"
    widgets.values["trial"] = "last"
    with pytest.raises(ConfigError, match=r"'last'.*expected a number such as 0; correct"):
        parameter("trial", 0, "Trial")


def test_a_table_shows_nulls_numbers_lists_and_escaped_text() -> None:
    html = table_html(
        ("name", "value"),
        [("a<b", 1234.5), (["x", "y & z"], 0.012345), (None, None), ("n", float("nan"))],
    )
    assert "a&lt;b" in html and "x<br>y &amp; z" in html
    assert ">1,234<" in html and ">0.01235<" in html
    assert html.count(">–<") == 3
    assert "text-align:right" in html
    assert "No rows." in table_html(("name",), [])


def test_a_chart_is_a_frame_that_loads_nothing_and_a_picture() -> None:
    points = [
        SeriesPoint(series.title, b, float(s), 0.5 * b)
        for b in (1, 2)
        for s in range(-3, 9)
        for series in SERIES
    ]
    shown = chart_output(series_chart(points, 8.0))._repr_mimebundle_()
    assert shown["image/png"].startswith(b"\x89PNG")
    assert shown["text/html"].startswith("<iframe srcdoc=")
    assert not re.search(r"(src|href)=(&quot;|&#x27;|\")https?:", shown["text/html"])
    assert paragraph("a < b")._repr_html_() == "<p>a &lt; b</p>"
    assert "nothing to draw" in chart_output()._repr_html_()
    rows = [{"x": "</script><b>", "y": 1}]
    chart = alt.Chart(alt.InlineData(values=rows)).mark_point().encode(x="x:N", y="y:Q")
    assert "\\u003c/script" in chart_output(chart)._repr_html_(), "a word cannot end the script"


def _drawn(*charts: Any) -> str:
    """The charts as SVG, so that warnings and errors of the drawing show."""
    import vl_convert

    return "".join(vl_convert.vegalite_to_svg(chart.to_dict()) for chart in charts)


def test_the_use_of_resources_names_each_and_frames_the_limiting_one() -> None:
    row = {
        "bpm": 1_000, "broker_id": 1, "resource": "disk", "utilization": 0.875, "is_limit": True,
        "saturation": 1.2, "saturation_unit": "threads waiting", "errors": None, "errors_unit": "",
    }  # fmt: skip
    unknown = row | {"resource": "quota", "utilization": None, "is_limit": False}
    by_size = _drawn(limits_use_chart([row, unknown]))
    assert "1 kB" in by_size and "88%" in by_size and ">?<" in by_size
    assert "broker 1" in _drawn(brokers_use_chart([row]))
    framed = 'stroke="#1b1f24"'
    assert framed in by_size and framed not in _drawn(limits_use_chart([unknown]))


def test_latencies_leave_out_missing_quantiles() -> None:
    trial = {"trial": 3} | dict.fromkeys(
        [f"latency_{name}_ms" for name in ("p50", "p95", "p99", "p999", "max")], 12.5
    )
    assert "p999" in _drawn(latency_chart([trial]))
    assert "p999" not in _drawn(latency_chart([trial | {"latency_p999_ms": None}]))


BASE = {
    "cluster": "c", "workload": "w", "goal": "g", "axis": "np", "bpm": 100, "run_id": "r",
    "mb_per_s_per_broker": 5.0, "mb_per_s_per_broker_overloaded": 5.5, "limited_by": "disk",
    "mps": 100.0, "mps_overloaded": 110.0, "moved": None, "change": None, "at_ms": 1.7e12,
    "mb_per_s_per_broker_low": None, "mb_per_s_per_broker_high": None, "doubtful": None,
    "latency_p50_ms": None, "latency_p99_ms": None, "latency_p999_ms": None,
}  # fmt: skip
KNOWN = BASE | {
    "mb_per_s_per_broker_low": 4.5, "mb_per_s_per_broker_high": 5.75, "doubtful": True,
    "latency_p50_ms": 3.0, "latency_p99_ms": 12.0, "latency_p999_ms": 140.0,
}  # fmt: skip


def test_histories_are_a_chart_for_each_series_with_the_bracket_per_broker() -> None:
    later = {"at_ms": 1.7e12 + 1e8, "moved": "fell", "change": -0.5}
    charts = history_charts([BASE, BASE | later, BASE | {"goal": "strict"}])
    titles = [chart.to_dict()["title"]["text"] for chart in charts]
    assert titles == ["c with w, goal g", "c with w, goal strict"]
    (values,) = charts[0].to_dict()["datasets"].values()
    assert [value["high"] for value in values] == pytest.approx([5.5, 5.5])
    assert [value["moved"] for value in values] == ["first", "fell"]
    assert "fell" in _drawn(*charts)
    (chart,) = history_charts([BASE | {"axis": "message_bytes"}])
    (values,) = chart.to_dict()["datasets"].values()
    assert [value["high"] for value in values] == [None], "the other side has another size"
    assert history_charts([]) == []


def test_the_newest_lines_and_the_nights_are_drawn() -> None:
    lines = lines_chart([BASE, KNOWN | {"bpm": 1_000}])
    assert "c, w, g" in _drawn(lines)
    assert "4.50 to 5.75" in _drawn(lines) and "p99.9 140 ms" in _drawn(lines)
    (values,) = lines.to_dict()["datasets"].values()
    assert [(each["bar_low"], each["bar_high"]) for each in values] == [(5.0, 5.5), (4.5, 5.75)]
    assert [each["is_doubtful"] for each in values] == [False, True]
    bar = lines.to_dict()["layer"][0]["encoding"]
    assert (bar["y"]["field"], bar["y2"]["field"]) == ("bar_low", "bar_high")
    night = {
        "suite": "s", "cluster": "c", "case": "limit-1kB", "night": "n1", "run_id": "r",
        "at_ms": 1.7e12, "value": 40.0, "measure": "np", "outcome": "regression",
        "change": -0.2, "text": "less",
    }  # fmt: skip
    charts = nights_charts(
        [night, night | {"case": "other"}, night | {"cluster": "d"}, night | {"outcome": None}]
    )
    assert len(charts) == 3
    drawn = _drawn(*charts)
    assert "s: c: limit-1kB" in drawn and "regression" in drawn and "not judged" in drawn


LIMITS = [MeasuredLimit(1_000, 60.0, "disk", 3, 1)]


def test_the_provision_states_its_assumptions_and_marks_the_given_share() -> None:
    demand = Demand(600.0, 1_000, 3, 2, offline=0.2)
    html = answer_table(provision(LIMITS, demand), demand)._repr_html_()
    assert ">13<" in html and "measured with 1 consumer groups and planned with 2" in html
    low = [replace(LIMITS[0], mb_per_s_low=50.0)]
    sure = answer_table(provision(low, demand), demand)._repr_html_()
    assert ">15<" in sure and ">13<" in sure and "50.0 MB/s" in sure
    drawn = _drawn(brokers_chart(LIMITS, demand))
    assert drawn.count(">13<") == 3
    assert "Share offline" in drawn


def test_a_chart_of_headroom_shows_both_kinds_of_limits_and_a_cluster_without_room() -> None:
    """A night of 60 times beside a day of 1.2 leaves the day readable; b has its own chart."""
    row = {
        "cluster": "a", "at_ms": 1e12, "times": 1.2, "times_low": 1.1, "times_high": 1.3,
        "broker_id": 3, "resource": "request handlers", "is_estimate": False, "run_id": "run-1",
    }  # fmt: skip
    night = {**row, "times": 60.0, "times_low": 50.0, "times_high": 70.0, "is_estimate": True}
    full = {**row, "times": 0.0, "times_low": 0.0, "times_high": 0.0}
    chart, other = headroom_charts([row, night, full, {**row, "cluster": "b"}])
    for part in ("Headroom of b", "broker 3, request handlers", '"low": 1.1'):
        assert part in other.to_json()
    drawn = chart.to_dict()
    _, point, dashed = drawn["layer"]
    assert point["encoding"]["y"]["scale"] == {
        "type": "log", "nice": False, "domain": [0.1, 70.0]
    }  # fmt: skip
    assert point["encoding"]["shape"]["legend"]["title"] == "Limit"
    sets = drawn["datasets"]
    assert sets[dashed["data"]["name"]] == [{"times": 1.0}]
    shown = [each["shown times"] for each in sets[point["data"]["name"]]]
    assert shown == [1.2, 60.0, 0.1]
    assert "0.5<" in _drawn(chart) and "NaN" not in _drawn(chart)
    assert other.to_dict()["layer"][1]["encoding"]["shape"]["legend"] is None

"""The notebooks hold no outputs and no logic, and their charts can be drawn."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import altair as alt
import nbformat
import pytest

from jobs import notebook
from jobs.notebook import parameter
from metrics.common.errors import ConfigError
from metrics.features.plan.charts import answer_table, brokers_chart
from metrics.planning.provisioning import Demand, MeasuredLimit, provision
from metrics.reporting.history_charts import (
    headroom_charts,
    history_charts,
    lines_chart,
    nights_charts,
)
from metrics.reporting.notebook_display import chart_output, paragraph, table_html
from metrics.reporting.trial_charts import (
    brokers_use_chart,
    latency_chart,
    limits_use_chart,
    series_chart,
)
from metrics.windows.series import SERIES, SeriesPoint

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
    with pytest.raises(ConfigError, match=r"'last'.*expected a number such as 0; correct it"):
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

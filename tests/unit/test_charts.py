"""The boundary chart: one specification, a page that loads nothing, a picture.

The script and the renderer of charts are made once; callers wait until they are ready.
"""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import vl_convert
from syrupy.assertion import SnapshotAssertion

from metrics.reporting import drawing, kept_script
from metrics.reporting.boundary_chart import boundary_spec, write_chart
from metrics.reporting.chart_style import RESOURCE_COLORS
from metrics.reporting.summary import RunSummary
from metrics.tables.boundary import Boundary, make_boundary
from metrics.traffic.axes import NP
from metrics.trial.evidence import Reason
from metrics.windows.use import Resource
from search.model import Bracket
from tests.support.page_text import PageText
from tests.support.processes import PATIENCE_S
from tests.support.report_rows import summary_of_sizes
from tests.support.rows import traffic
from tests.support.vega_lite import fits_schema

SIZES = (100, 200, 500, 1000, 2000, 10_000, 50_000, 100_000)


def boundary(
    message_bytes: int,
    sustained: int = 95,
    overloaded: int | None = 100,
    limited_by: Resource = Resource.DISK,
    text: str = "broker 2 idle 0.12, below 0.20",
) -> Boundary:
    return make_boundary(
        Bracket(sustained, overloaded),
        NP,
        traffic(1, message_bytes, 250_000 / message_bytes, brokers=3),
        trials=6,
        reasons=[Reason("request_handler_idle", text, 0.12, 0.2, 2)] if overloaded else [],
        limited_by=limited_by if overloaded else None,
        gave_up=None if overloaded else "load_cap reached",
    )


def summary(*boundaries: Boundary, cluster: str = "testbed-3") -> RunSummary:
    caveat = "Small disk-bound testbed, not hardware figures."
    return replace(summary_of_sizes([]), cluster=cluster, caveat=caveat, boundaries=boundaries)


KNOWN = replace(
    boundary(1000), load_low=80.5, load_high=120.0, interval_max=0.4, latency_p50_ms=3.1,
    latency_p99_ms=12.0, latency_p999_ms=140.0,
)  # fmt: skip
CASES = {
    "one": summary(boundary(1000)),
    "two, one open": summary(boundary(100), boundary(1000, 95, None)),
    "eight": summary(*[boundary(message_bytes) for message_bytes in SIZES]),
    "one size sustains nothing": summary(boundary(100, 0, 1), boundary(1000)),
    "nothing sustained": summary(boundary(100, 0, 1)),
    "nothing known": summary(boundary(100, 0, None)),
    "an interval": summary(KNOWN, boundary(10_000)),
    "an interval from zero": summary(replace(KNOWN, load_low=0.0)),
}


@cache
def spec_of(name: str) -> dict[str, Any]:
    """The specification of a case, made once, as Altair takes a third of a second."""
    return boundary_spec(CASES[name])


def rows(spec: dict[str, Any], panel: int = 0) -> list[dict[str, Any]]:
    """The data of a panel; Altair keeps it beside the panels, by name."""
    data = spec["hconcat"][panel].get("data") or spec["data"]
    found: list[dict[str, Any]] = spec["datasets"][data["name"]]
    return found


def layers_of(spec: dict[str, Any], mark: str, panel: int = 0) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = spec["hconcat"][panel]["layer"]
    return [each for each in found if each["mark"]["type"] == mark]


@pytest.mark.parametrize("name", ["eight", "nothing sustained", "an interval from zero"])
def test_a_chart_is_drawn_as_two_files(name: str, tmp_path: Path) -> None:
    html, png = tmp_path / "boundary.html", tmp_path / "boundary.png"
    assert write_chart(summary(), html, png) == ()
    assert list(tmp_path.iterdir()) == [], "nothing is drawn without a boundary"
    assert write_chart(CASES[name], html, png) == (html, png)
    picture = png.read_bytes()
    assert picture.startswith(b"\x89PNG\r\n")
    width, height = (int.from_bytes(picture[i : i + 4], "big") for i in (16, 20))
    assert width > 900
    assert height > 700
    assert "vegaEmbed(" in html.read_text(encoding="utf-8")
    fits_schema(spec_of(name))


def page_of(found: RunSummary, folder: Path) -> str:
    html = folder / "boundary.html"
    write_chart(found, html, folder / "boundary.png")
    return html.read_text(encoding="utf-8")


def test_the_page_loads_nothing_and_shows_the_specification_of_the_picture(tmp_path: Path) -> None:
    text = page_of(CASES["eight"], tmp_path)
    page = PageText(text)
    assert page.references == ["data:,"]
    assert not {"iframe", "img", "object", "embed"} & set(page.tags)
    assert "@import" not in text.split("</style>")[0]
    assert len(text) < 2_000_000
    found = re.search(r"^const SPECS = (.*);$", text, re.MULTILINE)
    assert found is not None
    assert json.loads(found[1]) == [spec_of("eight")]


def test_the_page_states_each_limit_in_a_sentence(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    assert PageText(page_of(CASES["two, one open"], tmp_path)).lines == snapshot


def test_names_cannot_break_out_of_the_page(tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script>"
    text = page_of(summary(boundary(100, text=f"{evil}<b>"), cluster=evil), tmp_path)
    assert "<script>alert" not in text
    assert "<b>" not in text.split("<tbody>")[1].split("</tbody>")[0]
    assert text.count("</script>") == 2


def test_the_data_is_the_bracket_below_the_title_beside_the_legend() -> None:
    (row,) = rows(spec_of("one"))
    expected = {"mb_lower": 95 * 0.25 / 3, "mb_upper": 100 * 0.25 / 3}
    expected |= {"mps_lower": 95 * 250, "mps_upper": 100 * 250}
    assert {name: row[name] for name in expected} == pytest.approx(expected)
    assert row["load"] == "95 producers sustained, 100 overloaded"
    assert row["bound"] == "disk"
    assert "idle 0.12" in row["evidence"]
    missing = rows(spec_of("two, one open"))[1]
    assert missing["mb_upper"] is None, "stated and not drawn"
    assert (missing["bound"], missing["width"]) == ("no overload seen", "open")
    title = spec_of("one")["title"]
    assert title["text"] == "Throughput limit of testbed-3 with demo"
    days, caveat = title["subtitle"][:2]
    assert days == "3 brokers, goal default, 2026-11-21"
    assert caveat == "Small disk-bound testbed, not hardware figures."
    mixed = summary(boundary(100, limited_by=Resource.CPU), boundary(1000), boundary(2000, 9, None))
    scale = boundary_spec(mixed)["hconcat"][0]["layer"][2]["encoding"]["color"]["scale"]
    assert scale["domain"] == ["CPU", "disk", "no overload seen"], "only marks that occur"
    assert len(set(scale["range"])) == 3


def test_the_bar_is_the_interval_and_the_tooltip_has_it_with_the_latencies() -> None:
    spec = spec_of("an interval")
    known, unknown = rows(spec)
    assert (known["mb_low"], known["mb_high"]) == pytest.approx((80.5 / 12, 10.0))
    assert (known["mps_low"], known["mps_high"]) == pytest.approx((80.5 * 250, 120 * 250))
    assert known["interval"] == "80 to 120 producers"
    assert known["latency"] == "p50 3.10 ms, p99 12.0 ms, p99.9 140 ms"
    assert (unknown["mb_low"], unknown["interval"], unknown["latency"]) == (None, "?", "?")
    ends = [each["encoding"]["y2"]["field"] for each in layers_of(spec, "rule")]
    assert ends == ["mb_upper", "mb_high"]
    tooltips = [each["encoding"].get("tooltip", ()) for each in layers_of(spec, "point")]
    shown = [{tip["field"] for tip in tips} for tips in tooltips if tips]
    assert [{"interval", "latency"} <= fields for fields in shown] == [True, True]
    fits_schema(spec)
    picture = vl_convert.vegalite_to_svg(spec)
    assert len(re.findall(r"at 90 %: 80 to 120 producers", picture)) == 2  # one in each panel


def test_a_doubtful_limit_is_a_hollow_mark() -> None:
    doubtful = replace(KNOWN, interval_max=0.2)
    both = rows(boundary_spec(summary(doubtful, KNOWN)))
    assert [row["is_hollow"] for row in both] == [True, False]
    assert rows(spec_of("two, one open"))[1]["is_hollow"]
    drawn = [vl_convert.vegalite_to_svg(boundary_spec(summary(b))) for b in (doubtful, KNOWN)]
    for look in (f'stroke="{RESOURCE_COLORS["disk"]}" stroke-width="2"', 'fill="white"'):
        marks = rf'<path[^>]*description="point"[^>]*{look}'
        assert [len(re.findall(marks, svg)) for svg in drawn] == [2, 0]  # one in each panel


def test_zero_is_on_the_payload_axis_but_never_on_a_logarithm() -> None:
    spec = spec_of("one size sustains nothing")
    assert rows(spec)[0]["mb_upper"] == pytest.approx(0.25 / 3)
    assert [row["bpm"] for row in rows(spec, 0)] == [100, 1000]
    assert [row["bpm"] for row in rows(spec, 1)] == [1000]
    assert len(spec_of("nothing sustained")["hconcat"]) == 1


@pytest.mark.parametrize("name", CASES)
def test_all_points_lie_inside_their_axes(name: str) -> None:
    spec = spec_of(name)
    for index, panel in enumerate(spec["hconcat"]):
        unit = ("mb", "mps")[index]
        encoding = panel["layer"][1]["encoding"]
        low, high = encoding["y"]["scale"]["domain"]
        left, right = encoding["x"]["scale"]["domain"]
        for row in rows(spec, index):
            assert left < row["bpm"] < right
            assert low <= row[f"{unit}_lower"] < high
            for end in ("upper", "low", "high"):
                assert row[f"{unit}_{end}"] is None or low <= row[f"{unit}_{end}"] < high


class Drawn:
    """A replacement of vl-convert that makes the script when the test allows it."""

    def __init__(self) -> None:
        self.begun, self.may_go_on = threading.Event(), threading.Event()
        self.scripts = self.pictures = 0

    def javascript_bundle(self, exports: str) -> str:
        self.scripts += 1
        self.begun.set()
        assert self.may_go_on.wait(PATIENCE_S)
        return f"vega = 1; {exports} '</script>'"

    def vegalite_to_png(self, spec: Mapping[str, object], scale: float) -> bytes:
        self.pictures += 1
        return b"a picture"


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Iterator[Drawn]:
    """The replacement of vl-convert, before the script is made."""
    stands_in = Drawn()
    monkeypatch.setattr(drawing, "vl_convert", stands_in)
    monkeypatch.setattr(kept_script, "_folders", [])
    drawing._vega.cache_clear()
    yield stands_in
    drawing._vega.cache_clear()


def wait_until_prepared() -> None:
    """Wait until the thread that `prepare` started has ended."""
    for thread in threading.enumerate():
        if thread.name == "redline-drawing":
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


def test_a_caller_waits_for_a_script_that_is_being_made(
    drawn: Drawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []
    monkeypatch.setattr(drawing, "import_module", loaded.append)
    drawing.prepare()
    assert drawn.begun.wait(PATIENCE_S)
    found: list[str] = []
    page = threading.Thread(target=lambda: found.append(drawing.vega()))
    page.start()
    page.join(0.1)
    assert page.is_alive()
    drawn.may_go_on.set()
    page.join(PATIENCE_S)
    wait_until_prepared()
    assert loaded == ["altair"]
    assert found == ["vega = 1; window.vegaEmbed = vegaEmbed; '<\\/script>'"]
    assert (drawn.scripts, drawn.pictures) == (1, 1)


def test_a_failure_is_logged_and_raised_again_by_the_page(
    drawn: Drawn, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def breaks(exports: str) -> str:
        raise ValueError("no script engine")

    monkeypatch.setattr(drawn, "javascript_bundle", breaks)
    with caplog.at_level(logging.DEBUG, logger=drawing.log.name):
        drawing.prepare()
        wait_until_prepared()
    assert caplog.messages == ["vl-convert cannot be loaded in advance: no script engine"]
    with pytest.raises(ValueError, match="no script engine"):
        drawing.vega()


def test_without_vl_convert_nothing_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "vl_convert", None)
    drawing.prepare()
    assert "redline-drawing" not in {thread.name for thread in threading.enumerate()}


def made_anew(drawn: Drawn) -> tuple[str, int]:
    """The script of a new process, and how many scripts were made until now."""
    drawn.may_go_on.set()
    drawing._vega.cache_clear()
    return drawing.vega(), drawn.scripts


def test_a_script_is_made_once_for_all_processes_of_a_release(
    drawn: Drawn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept_script.keep_in(tmp_path / "charts")
    kept_script.keep_in(tmp_path / "others")
    first = made_anew(drawn)
    assert first == ("vega = 1; window.vegaEmbed = vegaEmbed; '<\\/script>'", 1)
    assert made_anew(drawn) == first
    (file,) = (tmp_path / "charts").iterdir()
    assert not (tmp_path / "others").exists()
    for number, damaged in enumerate((file.read_bytes()[:-1], b"\xff"), 2):
        file.write_bytes(damaged)
        assert made_anew(drawn) == made_anew(drawn) == (first[0], number)
    for number, release in enumerate(("99.0", None), 4):
        monkeypatch.setattr(kept_script, "_release", lambda release=release: release)
        assert made_anew(drawn)[1] == number
    assert len(list((tmp_path / "charts").iterdir())) == 2


def test_a_folder_that_cannot_be_written_costs_only_time(
    drawn: Drawn, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    kept_script.keep_in(tmp_path / "file" / "charts")
    with caplog.at_level(logging.DEBUG, logger=kept_script.log.name):
        script, _ = made_anew(drawn)
    assert made_anew(drawn) == (script, 2)
    assert "cannot be stored in" in caplog.text

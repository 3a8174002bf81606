"""Whatever others answer or have written: it is read, or refused in a sentence, and soon.

The few hundred examples of `make test` are the same each time; `make test-long` tries thousands.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.config.exporter_rules import load_rules
from jobs.config.profile import load_rate_profile
from jobs.config.suite import load_suite
from jobs.engine.network.frames import FrameReader
from jobs.engine.producing.asking import init_answer, leaders_in
from jobs.engine.producing.protocol import decode_produce_response
from jobs.runs.nightly.junit import write_junit
from jobs.testbed.profile import load_profile
from metrics.columns import row_of
from metrics.reporting.known_runs import known_runs, write_index
from metrics.reporting.nightly import CaseReport, NightReport
from metrics.reporting.notebook_display import table_html
from metrics.sources.exposition import numbers_of, parse_series
from metrics.tables.cases import Outcome
from metrics.tables.trials import trial_from
from tests.support.edges import CONF, nasty, soon, values
from tests.support.rows import trial

FEW, MANY = 60, 2_000
usual = settings(max_examples=FEW, suppress_health_check=[HealthCheck.function_scoped_fixture])
thorough = settings(usual, max_examples=MANY)

# --- rows of other versions -----------------------------------------------------

ROW = row_of(trial(1))
_NEEDED = {"run_id", "trial", "started_at", "np", "bpm"}
"""What a row of a trial cannot do without."""


def check_row(gone: list[int], nulls: list[int], more: dict[str, Any]) -> None:
    """A row that lacks columns, has null in others, and has some that we do not know."""
    names = sorted(ROW)
    row = {name: ROW[name] for name in names}
    for place in gone:
        row.pop(names[place % len(names)], None)
    for place in nulls:
        row[names[place % len(names)]] = None
    soon(lambda: trial_from({**{f"later_{key}": each for key, each in more.items()}, **row}),
         ValueError)  # fmt: skip


# --- what brokers send ----------------------------------------------------------

_MALFORMED = (ValueError, struct.error, IndexError, OverflowError, MemoryError, TypeError)


def check_frames(data: bytes, cuts: list[int]) -> None:
    """A stream of bytes, in whatever pieces, ends in frames or in an error."""
    reader, begin = FrameReader(), 0

    def read() -> None:
        nonlocal begin
        for end in [*sorted(cut % (len(data) + 1) for cut in cuts), len(data)]:
            for frame in reader.feed(data[begin:end]):
                soon(partial(decode_produce_response, frame), *_MALFORMED)
                soon(partial(leaders_in, frame), *_MALFORMED)
                soon(partial(init_answer, frame), *_MALFORMED)
            begin = end

    soon(read, *_MALFORMED)


frames = st.binary(max_size=120) | st.lists(
    st.tuples(st.integers(-8, 40), st.binary(max_size=40)), max_size=4
).map(lambda parts: b"".join(struct.pack(">i", size) + rest for size, rest in parts))

# --- what exporters answer ------------------------------------------------------


def check_exposition(text: str) -> None:
    rules = load_rules("kafka-kraft")

    def read() -> None:
        for series, _ in numbers_of(text):
            parse_series(series)
            rules.match(series)

    soon(read)


lines = st.lists(
    st.sampled_from(["kafka_server_x{", 'a="b"', 'a="', "} 1", " 1", "NaN", "\\", "# HELP", "{}"])
    | st.text(max_size=8)
).map("".join)

# --- files of other kinds -------------------------------------------------------

OTHER_LOADERS: dict[str, Callable[[str], object]] = {
    "suites": load_suite,
    "profiles": load_rate_profile,
    "prometheus": load_rules,
    "testbed": load_profile,
}
OTHER_FILES = [
    (kind, path) for kind in OTHER_LOADERS for path in sorted((CONF / kind).glob("*.yaml"))
]


@st.composite
def damaged_files(draw: st.DrawFn) -> tuple[str, str]:
    """One of these files with a line changed."""
    kind, path = draw(st.sampled_from(OTHER_FILES))
    text = path.read_text(encoding="utf-8").splitlines()
    at = draw(st.integers(0, len(text) - 1))
    key, colon, _ = text[at].partition(":")
    text[at] = draw(st.sampled_from(["", f"{key}{colon} "])) + draw(nasty)
    return kind, "\n".join(text) + "\n"


def check_other_file(folder: Path, damaged: tuple[str, str]) -> None:
    kind, text = damaged
    file = folder / "damaged.yaml"
    file.write_text(text, encoding="utf-8", errors="surrogatepass")
    soon(lambda: OTHER_LOADERS[kind](str(file)))


# --- what programs read of us ---------------------------------------------------


def check_junit(folder: Path, text: str) -> None:
    """Whatever a case says, a CI server can read."""
    case = CaseReport(text, "limit", 1000, Outcome.INVALID, text)
    night = NightReport(text, text, text, text, text, text, "2026-11-21T00:00:00Z",
                        "2026-11-21T00:10:00Z", text, 3, (case,), text)  # fmt: skip
    write_junit(night, folder / "junit.xml")
    read = ElementTree.parse(folder / "junit.xml")
    assert len(list(read.iter("testcase"))) == 1


class Tags(HTMLParser):
    """Keeps the tags of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)


def check_table(text: str, value: Any) -> None:
    """Whatever stands in a cell, it brings no tag of its own."""
    parser = Tags()
    parser.feed(table_html((text, "b"), [(text, value)], text))
    assert parser.tags <= {"div", "table", "thead", "tbody", "tr", "th", "td", "p", "br"}


def check_known_runs(folder: Path, name: str, document: Any) -> None:
    """A folder of runs with a file of whatever content is listed."""
    run = folder / "run-1"
    run.mkdir(parents=True, exist_ok=True)
    for each in run.iterdir():
        each.unlink()
    (run / name).write_text(json.dumps(document))
    assert [each.run_id for each in known_runs(folder)] == ["run-1"]
    write_index(folder)


hostile = st.text(max_size=30) | st.sampled_from(
    ["</script><script>alert(1)</script>", "<img src=x onerror=y>", "\x1b[31m", "]]>", "\ud800",
     "\x00", "&amp;", '"', "'"]
)  # fmt: skip
results = st.sampled_from(["summary.json", "sweep.json", "compare.json", "nightly.json"])
places = st.lists(st.integers(0, 10_000), max_size=30)
answers = st.dictionaries(
    st.sampled_from(["boundaries", "trials", "bpm", "verdict", "status", "started_at", "cases",
                     "effects", "rows", "results", "error", "cluster"]), values, max_size=6,
)  # fmt: skip


@given(gone=places, nulls=places, more=st.dictionaries(st.text(max_size=5), values, max_size=3))
@usual
def test_rows_of_other_versions_are_read(
    gone: list[int], nulls: list[int], more: dict[str, Any]
) -> None:
    check_row(gone, nulls, more)


@given(data=frames, cuts=st.lists(st.integers(0, 200), max_size=5))
@usual
def test_whatever_a_broker_sends_ends(data: bytes, cuts: list[int]) -> None:
    check_frames(data, cuts)


@given(text=lines)
@usual
def test_whatever_an_exporter_answers_is_read(text: str) -> None:
    check_exposition(text)


@given(damaged=damaged_files())
@usual
def test_files_of_other_kinds_are_told(tmp_path: Path, damaged: tuple[str, str]) -> None:
    check_other_file(tmp_path, damaged)


@given(text=hostile, value=values | hostile, name=results, document=values | answers)
@usual
def test_what_is_shown_is_well_formed(
    tmp_path: Path, text: str, value: Any, name: str, document: Any
) -> None:
    check_junit(tmp_path, text)
    check_table(text, value)
    check_known_runs(tmp_path / "out", name, document)


@pytest.mark.long
@given(gone=places, nulls=places, more=st.dictionaries(st.text(max_size=5), values, max_size=3))
@thorough
def test_thousands_of_rows_are_read(
    gone: list[int], nulls: list[int], more: dict[str, Any]
) -> None:
    check_row(gone, nulls, more)


@pytest.mark.long
@given(data=frames, cuts=st.lists(st.integers(0, 200), max_size=5))
@thorough
def test_thousands_of_answers_end(data: bytes, cuts: list[int]) -> None:
    check_frames(data, cuts)


@pytest.mark.long
@given(text=lines)
@thorough
def test_thousands_of_expositions_are_read(text: str) -> None:
    check_exposition(text)


@pytest.mark.long
@given(damaged=damaged_files())
@thorough
def test_thousands_of_files_of_other_kinds_are_told(
    tmp_path: Path, damaged: tuple[str, str]
) -> None:
    check_other_file(tmp_path, damaged)


@pytest.mark.long
@given(text=hostile, value=values | hostile, name=results, document=values | answers)
@thorough
def test_thousands_of_texts_are_shown_well_formed(
    tmp_path: Path, text: str, value: Any, name: str, document: Any
) -> None:
    check_junit(tmp_path, text)
    check_table(text, value)
    check_known_runs(tmp_path / "out", name, document)

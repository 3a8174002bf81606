"""Any answer or file of other programs is read, or refused in one sentence, soon.

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
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.config.files import load_rate_profile
from jobs.config.loading import load_cluster, load_workload
from jobs.config.metrics_registry import load_rules
from jobs.engine.consuming.stream import FetchStream
from jobs.engine.network.transport import FrameReader, correlation_id_of
from jobs.engine.producing.protocol import (
    FindLeaders,
    InitProducerId,
    decode_answer,
    decode_produce_response,
)
from jobs.features.nightly.night_run import write_junit
from jobs.features.nightly.suite import load_suite
from jobs.runs.run_lock import is_locked
from jobs.testbed.profile import load_profile
from metrics.columns import row_of
from metrics.features.nightly.judging import CaseReport
from metrics.reporting.known_runs import known_runs, write_index
from metrics.reporting.notebook_display import table_html
from metrics.sources.exposition import Poll, is_cut_off, kind_of, parse_series, series_of
from metrics.sources.series_choice import choose
from metrics.tables.rows import Outcome, trial_from
from tests.support.answers import (
    PARTITIONS,
    Notes,
    encoded_batch,
    metadata,
    produced,
    producer_id,
    response,
)
from tests.support.nights import head_of_night
from tests.support.robustness import (
    CONF,
    assert_ends_soon,
    few_or_many,
    unusual_texts,
    unusual_values,
)
from tests.support.rows import trial

usual = few_or_many(60, 2_000)

# --- rows of other versions -----------------------------------------------------

ROW = row_of(trial(1))
places = st.lists(st.integers(0, 10_000), max_size=30)
more_columns = st.dictionaries(st.text(max_size=5), unusual_values, max_size=3)


@usual
def test_rows_of_other_versions_are_read(examples: int) -> None:
    """A row may lack columns, have null in others, and have some unknown ones."""
    names = sorted(ROW)

    @settings(max_examples=examples)
    @given(places, places, more_columns)
    def check(gone: list[int], nulls: list[int], more: dict[str, Any]) -> None:
        row = {name: ROW[name] for name in names}
        for place in gone:
            row.pop(names[place % len(names)], None)
        for place in nulls:
            row[names[place % len(names)]] = None
        columns = {**{f"later_{key}": each for key, each in more.items()}, **row}
        assert_ends_soon(lambda: trial_from(columns), ValueError)

    check()


# --- bytes of brokers ----------------------------------------------------------

ANSWERS = (
    produced({0: 0, 3: 6}),
    metadata({0: 1, 1: 2}),
    producer_id(),
    response({4: encoded_batch(10, 3) + encoded_batch(13, 1), 9: b"", 5: encoded_batch(0, 2)}),
    response({1: b""}, {1: 6}, error_code=71),
)


def check_stream(data: bytes, cuts: list[int], read: Callable[[bytes], object]) -> None:
    """Read a stream in any pieces: it ends in answers or in a RedlineError, soon."""
    ends = [*sorted(cut % (len(data) + 1) for cut in cuts), len(data)]

    def read_all() -> None:
        begin = 0
        for end in ends:
            read(data[begin:end])
            begin = end

    assert_ends_soon(read_all)


def _read_frames(reader: FrameReader, decode: Callable[[memoryview], object], data: bytes) -> None:
    for frame in reader.feed(data):
        decode(frame)


@st.composite
def damaged_answers(draw: st.DrawFn) -> bytes:
    """Two answers of brokers in which some bytes are changed, missing or repeated."""
    data = bytearray(b"".join(draw(st.tuples(*[st.sampled_from(ANSWERS)] * 2))))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data) - 1))
        how = draw(st.sampled_from(["byte", "number", "length", "length", "gone", "more"]))
        if how == "byte":
            data[at] = draw(st.integers(0, 255))
        elif how == "number":  # of a count or a length, most likely
            data[at : at + 4] = struct.pack(
                ">i", draw(st.sampled_from([-(2**31), -6, -2, -1, 0, 1, 2**16, 2**31 - 1]))
            )
        elif how == "length":  # of a name
            data[at : at + 2] = struct.pack(">h", draw(st.sampled_from([-32768, -6, -4, -1, 0, 9])))
        elif how == "gone":
            del data[at : at + draw(st.integers(1, 9))]
            data = data or bytearray(1)
        else:
            data[at:at] = draw(st.binary(max_size=9))
    return bytes(data)


frames = (
    damaged_answers()
    | st.binary(max_size=120)
    | st.lists(st.tuples(st.integers(-8, 40), st.binary(max_size=40)), max_size=4).map(
        lambda parts: b"".join(struct.pack(">i", size) + rest for size, rest in parts)
    )
)


@pytest.mark.computes
@few_or_many(300, 10_000)
def test_any_bytes_of_a_broker_end_in_answers_or_an_error(examples: int) -> None:
    @settings(max_examples=examples)
    @given(frames, st.lists(st.integers(0, 200), max_size=5))
    def check(data: bytes, cuts: list[int]) -> None:
        control: list[Any] = [
            partial(decode_answer, request=request, partitions=PARTITIONS, versions={})
            for request in (FindLeaders(), InitProducerId())
        ]
        for decode in (decode_produce_response, correlation_id_of, *control):
            reader = FrameReader()
            check_stream(data, cuts, partial(_read_frames, reader, decode))
        fetches = FetchStream(Notes(), PARTITIONS, check_crcs=True)
        check_stream(data, cuts, lambda piece: fetches.feed(memoryview(piece), 1.0))

    check()


# --- answers of exporters ------------------------------------------------------


lines = st.lists(
    st.sampled_from(["kafka_server_x{", 'a="b"', 'a="', "} 1", " 1", "NaN", "\\", "# HELP", "{}"])
    | st.sampled_from(
        [
            "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent",
            "kafka_server_socket_server_metrics_listener_",
            "_networkprocessor_0_incoming_byte",
            'kafka_server_BrokerTopicMetrics_Count{name="BytesInPerSec"',
            'java_lang_G1_CollectionTime{type="GarbageCollector"',
            "_total",
            "_objectname=",
            " 5e11\n",
            " 0.98\n",
        ]
    )
    | st.text(max_size=8)
).map("".join)


@usual
def test_any_answer_of_an_exporter_is_read(examples: int) -> None:
    rules = load_rules("kafka-kraft")

    def read(text: str) -> None:
        for line in text.split("\n"):
            series = series_of(line)
            parse_series(series)
            rules.match(series)
        found = choose([Poll(0.0, text), Poll(1.0, text)])
        assert all(found.rules.match(line) is None for line in ("", "# a", "x"))
        assert found.texts.keys() <= found.selectors.keys()
        assert is_cut_off(text) in {True, False} and kind_of(text).startswith("the page ")

    @settings(max_examples=examples)
    @given(lines)
    def check(text: str) -> None:
        assert_ends_soon(lambda: read(text))

    check()


# --- files of other kinds -------------------------------------------------------

OMB = (Path(__file__).parents[1] / "data/omb/standard.yaml").read_text(encoding="utf-8")
PROPERTIES = """\
bootstrap.servers: a:9092,b:9092
security.protocol: SASL_SSL
sasl.mechanism: SCRAM-SHA-512
sasl.jaas.config: org.x.ScramLoginModule required username="a" password="b";
ssl.truststore.type: PEM
ssl.truststore.location: /etc/ca.pem
"""


def load_properties(file: str) -> object:
    """Read a cluster file that takes everything from a client.properties."""
    cluster = Path(file).with_name("cluster.yaml")
    cluster.write_text(f"client_properties: {json.dumps(file)}\n", encoding="utf-8")
    return load_cluster(str(cluster))


OTHER_LOADERS: dict[str, Callable[[str], object]] = {
    "suites": load_suite,
    "profiles": load_rate_profile,
    "prometheus": load_rules,
    "testbed": load_profile,
    "omb": lambda file: load_workload(f"omb:{file}"),
    "properties": load_properties,
}
OTHER_FILES = [
    *((kind, path.read_text(encoding="utf-8")) for kind in OTHER_LOADERS
      for path in sorted((CONF / kind).glob("*.yaml"))),
    ("omb", OMB),
    ("properties", PROPERTIES),
]  # fmt: skip


@st.composite
def damaged_files(draw: st.DrawFn) -> tuple[str, str]:
    """One of these files with a line changed."""
    kind, whole = draw(st.sampled_from(OTHER_FILES))
    text = whole.splitlines()
    at = draw(st.integers(0, len(text) - 1))
    key, colon, _ = text[at].partition(":")
    text[at] = draw(st.sampled_from(["", f"{key}{colon} "])) + draw(unusual_texts)
    return kind, "\n".join(text) + "\n"


@usual
def test_files_of_other_kinds_are_reported(tmp_path: Path, examples: int) -> None:
    file = tmp_path / "damaged.yaml"

    @settings(max_examples=examples)
    @given(damaged_files())
    def check(damaged: tuple[str, str]) -> None:
        kind, text = damaged
        file.write_text(text, encoding="utf-8", errors="surrogatepass")
        assert_ends_soon(lambda: OTHER_LOADERS[kind](str(file)))

    check()


# --- files for other programs ---------------------------------------------------


def check_junit(folder: Path, text: str) -> None:
    """Write a report of a case with any text: a CI server can read it."""
    case = CaseReport(text, "limit", 1000, Outcome.INVALID, text)
    named = dict.fromkeys(("run_id", "night", "suite", "cluster", "workload", "goal"), text)
    write_junit(head_of_night(**named, status=text), [case], folder / "junit.xml")
    read = ElementTree.parse(folder / "junit.xml")
    assert len(list(read.iter("testcase"))) == 1


class Tags(HTMLParser):
    """A parser that keeps the tags of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)


def check_table(text: str, value: Any) -> None:
    """Write a table with any text in a cell: the text adds no tag."""
    parser = Tags()
    parser.feed(table_html((text, "b"), [(text, value)], text))
    assert parser.tags <= {"div", "table", "thead", "tbody", "tr", "th", "td", "p", "br"}


def check_known_runs(folder: Path, name: str, document: Any) -> None:
    """List a folder of runs that has a file with any content."""
    run = folder / "run-1"
    run.mkdir(parents=True, exist_ok=True)
    for each in run.iterdir():
        each.unlink()
    (run / name).write_text(json.dumps(document))
    assert [each.run_id for each in known_runs(folder, is_locked)] == ["run-1"]
    write_index(folder, known_runs(folder, is_locked))


hostile = st.text(max_size=30) | st.sampled_from(
    ["</script><script>alert(1)</script>", "<img src=x onerror=y>", "\x1b[31m", "]]>", "\ud800",
     "\x00", "&amp;", '"', "'"]
)  # fmt: skip
results = st.sampled_from(["summary.json", "sweep.json", "compare.json", "nightly.json"])
answers = st.dictionaries(
    st.sampled_from(["boundaries", "trials", "bpm", "verdict", "status", "started_at", "cases",
                     "effects", "rows", "results", "error", "cluster"]), unusual_values, max_size=6,
)  # fmt: skip


@pytest.mark.computes
@usual
def test_any_text_is_shown_well_formed(tmp_path: Path, examples: int) -> None:
    @settings(max_examples=examples)
    @given(hostile, unusual_values | hostile, results, unusual_values | answers)
    def check(text: str, value: Any, name: str, document: Any) -> None:
        check_junit(tmp_path, text)
        check_table(text, value)
        check_known_runs(tmp_path / "out", name, document)

    check()

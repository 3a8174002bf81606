"""Whatever stands in a file, an option or a message: an answer, or one sentence, and soon.

The few hundred examples of `make test` are the same each time; `make test-long` tries 20,000.
"""

from __future__ import annotations

import json
import string
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.config.experiment import load_sweep
from jobs.config.loading import load_cluster, load_goal, load_workload
from jobs.plan import plan
from jobs.trials.driver_line import _NONSENSE, TrialLine, _message
from metrics.reporting.summary import RunSummary, load_summary, write_summary
from metrics.tables.boundary import make_boundary
from metrics.traffic.axes import NP
from search.errors import RedlineError
from search.model import Bracket
from tests.support.rows import traffic

SLOW_S = 2.0
"""An answer that takes longer of a core is none that a scheduler waits for [s]."""
FEW, MANY = 60, 4_000
CONF = Path(__file__).parents[2] / "conf"
LOADERS: dict[str, Callable[[str], object]] = {
    "clusters": load_cluster,
    "workloads": load_workload,
    "goals": load_goal,
    "experiments": load_sweep,
}
FILES = [(folder, path) for folder in LOADERS for path in sorted((CONF / folder).glob("*.yaml"))]

nasty = st.sampled_from(
    ["", "null", "~", "[]", "{}", "[[]]", ".nan", "-.inf", "1e400", "-1", "0", "9" * 400, "true",
     "!!bool maybe", "!!timestamp foo", "!!binary x", "&a [*a]", "*b", "'", '"', '"\\ud800"',
     '"\\0"', "\x00", "2026-11-22", "0x1F", "1_000", "é", "- x", "a: b", "? x", "|", ">", "%YAML",
     "[" * 300, "{" * 300, "<<: *x", "../../etc", "env:HOME", "file:/", "\u2028", "\t"]
)  # fmt: skip
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner,
                                                                max_size=3),
    max_leaves=6,
)  # fmt: skip


def soon(deed: Callable[[], object], *excused: type[Exception]) -> None:
    """It ends with an answer or one of our sentences, and soon."""
    expected: tuple[type[Exception], ...] = (RedlineError, *excused)
    begun_s, said = time.thread_time(), "an answer"
    try:
        deed()
    except expected as error:
        said = str(error) or type(error).__name__
    assert said.strip()
    assert time.thread_time() - begun_s < SLOW_S


@st.composite
def damaged_files(draw: st.DrawFn) -> tuple[str, str]:
    """A file of conf with one or two of its lines changed."""
    folder, path = draw(st.sampled_from(FILES))
    lines = path.read_text(encoding="utf-8").splitlines()
    for _ in range(draw(st.integers(1, 2))):
        at = draw(st.integers(0, len(lines) - 1))
        key, colon, _value = lines[at].partition(":")
        how = draw(st.sampled_from(["value", "value", "value", "key", "gone", "twice", "line"]))
        new = draw(nasty)
        lines[at : at + 1] = {
            "value": [f"{key}{colon} {new}"],
            "key": [f"{new}{lines[at][len(key) :]}"],
            "gone": [],
            "twice": [lines[at], lines[at]],
            "line": [new],
        }[how] or [""]
    return folder, "\n".join(lines) + "\n"


def check_file(folder: Path, damaged: tuple[str, str]) -> None:
    kind, text = damaged
    file = folder / "damaged.yaml"
    file.write_text(text, encoding="utf-8", errors="surrogatepass")
    soon(lambda: LOADERS[kind](str(file)))


def check_option(key: str, value: str) -> None:
    soon(lambda: load_workload("1kB", [f"workload.{key}={value}"]))


SUMMARY = RunSummary(
    "run-1", "a", "b", "c", "w", "default",
    (make_boundary(Bracket(720, 756), NP, traffic(1, 1_000, 250.0, brokers=3), trials=4),),
    3, replication_factor=3, environment={"broker.version": "4.1.2"},
)  # fmt: skip


def check_summary(folder: Path, choices: list[int], value: Any) -> None:
    """A summary in which one value is another: it plans, or says what is wrong."""
    write_summary(SUMMARY, folder / "summary.json")
    document = json.loads((folder / "summary.json").read_text())
    whole = {"": document}
    place: Any = whole
    key: Any = ""
    for choice in choices:
        below = place[key]
        if not isinstance(below, dict | list) or not below:
            break
        keys = list(below) if isinstance(below, dict) else list(range(len(below)))
        place, key = below, keys[choice % len(keys)]
    place[key] = value
    (folder / "summary.json").write_text(json.dumps(whole[""]))
    soon(lambda: load_summary(folder / "summary.json"))
    options = ["--run", str(folder), "--mb-per-s", "600", "--message-bytes", "1000"]
    done = CliRunner().invoke(plan, options, standalone_mode=False)
    assert done.exception is None or isinstance(done.exception, RedlineError), done.exception


def check_message(text: bytes) -> None:
    line = TrialLine("127.0.0.1", 1, 1, lambda work: work())

    def hear() -> None:
        line.hear(0, _message(text))

    soon(hear, *_NONSENSE)


KEYS = [
    "producer.linger_ms", "message_bytes", "producer", "topic.config.a.b", "payload.kind", "name",
    "notes", "trial.measure_s", "np", "consumers", "x", "..", "producer.acks",
]  # fmt: skip
usual = settings(max_examples=FEW, suppress_health_check=[HealthCheck.function_scoped_fixture])
thorough = settings(usual, max_examples=MANY)


@given(damaged=damaged_files())
@usual
def test_damaged_files_are_told(tmp_path: Path, damaged: tuple[str, str]) -> None:
    check_file(tmp_path, damaged)


@given(key=st.sampled_from(KEYS), value=nasty | st.text(string.printable, max_size=30))
@usual
def test_any_value_of_an_option_is_taken_or_told(key: str, value: str) -> None:
    check_option(key, value)


@given(choices=st.lists(st.integers(0, 60), min_size=1, max_size=4), value=values)
@usual
def test_damaged_summaries_are_told(tmp_path: Path, choices: list[int], value: Any) -> None:
    check_summary(tmp_path, choices, value)


@given(text=st.binary(max_size=200) | values.map(lambda value: json.dumps(value).encode()))
@usual
def test_any_message_to_the_driver_is_taken_or_is_nonsense(text: bytes) -> None:
    check_message(text)


@pytest.mark.long
@given(damaged=damaged_files())
@settings(thorough, max_examples=2 * MANY)
def test_thousands_of_damaged_files_are_told(tmp_path: Path, damaged: tuple[str, str]) -> None:
    check_file(tmp_path, damaged)


@pytest.mark.long
@given(key=st.sampled_from(KEYS), value=nasty | st.text(string.printable, max_size=30))
@thorough
def test_thousands_of_values_are_taken_or_told(key: str, value: str) -> None:
    check_option(key, value)


@pytest.mark.long
@given(choices=st.lists(st.integers(0, 60), min_size=1, max_size=4), value=values)
@thorough
def test_thousands_of_summaries_are_told(tmp_path: Path, choices: list[int], value: Any) -> None:
    check_summary(tmp_path, choices, value)


@pytest.mark.long
@given(text=st.binary(max_size=200) | values.map(lambda value: json.dumps(value).encode()))
@thorough
def test_thousands_of_messages_are_taken_or_nonsense(text: bytes) -> None:
    check_message(text)

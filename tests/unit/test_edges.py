"""Any content of a file, an option or a message gets an answer or one sentence, soon.

The few hundred examples of `make test` are the same each time; `make test-long` tries 20,000.
"""

from __future__ import annotations

import json
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.campaigns.sweep.cases import load_sweep
from jobs.config.loading import load_cluster, load_goal, load_workload
from jobs.plan import plan
from jobs.trials.control_server import _MALFORMED, TaskChannel, _message
from metrics.common.errors import RedlineError
from metrics.reporting.summary import load_summary, write_summary
from tests.support.robustness import CONF, SUMMARY, assert_ends_soon, unusual_texts, unusual_values

FEW, MANY = 60, 4_000
LOADERS: dict[str, Callable[[str], object]] = {
    "clusters": load_cluster,
    "workloads": load_workload,
    "goals": load_goal,
    "experiments": load_sweep,
}
FILES = [(folder, path) for folder in LOADERS for path in sorted((CONF / folder).glob("*.yaml"))]


@st.composite
def damaged_files(draw: st.DrawFn) -> tuple[str, str]:
    """A file of conf with one or two of its lines changed."""
    folder, path = draw(st.sampled_from(FILES))
    lines = path.read_text(encoding="utf-8").splitlines()
    for _ in range(draw(st.integers(1, 2))):
        at = draw(st.integers(0, len(lines) - 1))
        key, colon, _value = lines[at].partition(":")
        how = draw(st.sampled_from(["value", "value", "value", "key", "gone", "twice", "line"]))
        new = draw(unusual_texts)
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
    assert_ends_soon(lambda: LOADERS[kind](str(file)))


def check_option(key: str, value: str) -> None:
    assert_ends_soon(lambda: load_workload("1kB", [f"workload.{key}={value}"]))


def check_summary(folder: Path, choices: list[int], value: Any) -> None:
    """Plan with a summary in which one value is replaced: the plan works or names the problem."""
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
    assert_ends_soon(lambda: load_summary(folder / "summary.json"))
    options = ["--run", str(folder), "--mb-per-s", "600", "--message-bytes", "1000"]
    done = CliRunner().invoke(plan, options, standalone_mode=False)
    assert done.exception is None or isinstance(done.exception, RedlineError), done.exception


def check_message(text: bytes) -> None:
    channel = TaskChannel("127.0.0.1", 1, 1, lambda work: work())

    def hear() -> None:
        channel.receive(0, _message(text))

    assert_ends_soon(hear, *_MALFORMED)


KEYS = [
    "producer.linger_ms", "message_bytes", "producer", "topic.config.a.b", "payload.kind", "name",
    "notes", "trial.measure_s", "np", "consumers", "x", "..", "producer.acks",
]  # fmt: skip
usual = settings(max_examples=FEW, suppress_health_check=[HealthCheck.function_scoped_fixture])
thorough = settings(usual, max_examples=MANY)


@pytest.mark.computes
@given(damaged=damaged_files())
@usual
def test_damaged_files_are_read_or_refused(tmp_path: Path, damaged: tuple[str, str]) -> None:
    check_file(tmp_path, damaged)


@given(key=st.sampled_from(KEYS), value=unusual_texts | st.text(string.printable, max_size=30))
@usual
def test_any_value_of_an_option_is_taken_or_refused(key: str, value: str) -> None:
    check_option(key, value)


@pytest.mark.computes
@given(choices=st.lists(st.integers(0, 60), min_size=1, max_size=4), value=unusual_values)
@usual
def test_damaged_summaries_are_read_or_refused(
    tmp_path: Path, choices: list[int], value: Any
) -> None:
    check_summary(tmp_path, choices, value)


@given(text=st.binary(max_size=200) | unusual_values.map(lambda value: json.dumps(value).encode()))
@usual
def test_any_message_to_the_driver_is_taken_or_malformed(text: bytes) -> None:
    check_message(text)


@pytest.mark.long
@given(damaged=damaged_files())
@settings(thorough, max_examples=2 * MANY)
def test_thousands_of_damaged_files_are_read_or_refused(
    tmp_path: Path, damaged: tuple[str, str]
) -> None:
    check_file(tmp_path, damaged)


@pytest.mark.long
@given(key=st.sampled_from(KEYS), value=unusual_texts | st.text(string.printable, max_size=30))
@thorough
def test_thousands_of_values_are_taken_or_refused(key: str, value: str) -> None:
    check_option(key, value)


@pytest.mark.long
@given(choices=st.lists(st.integers(0, 60), min_size=1, max_size=4), value=unusual_values)
@thorough
def test_thousands_of_damaged_summaries_are_read_or_refused(
    tmp_path: Path, choices: list[int], value: Any
) -> None:
    check_summary(tmp_path, choices, value)


@pytest.mark.long
@given(text=st.binary(max_size=200) | unusual_values.map(lambda value: json.dumps(value).encode()))
@thorough
def test_thousands_of_messages_are_taken_or_malformed(text: bytes) -> None:
    check_message(text)

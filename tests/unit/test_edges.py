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
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.config.loading import load_cluster, load_goal, load_workload
from jobs.features.sweep.cases import load_sweep
from jobs.plan import plan
from jobs.trials.control_server import _MALFORMED, TaskChannel, _message
from metrics.common.errors import RedlineError
from metrics.reporting.summary import load_summary, write_summary
from tests.support.robustness import (
    CONF,
    SUMMARY,
    assert_ends_soon,
    few_or_many,
    unusual_texts,
    unusual_values,
)

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


KEYS = [
    "producer.linger_ms", "message_bytes", "producer", "topic.config.a.b", "payload.kind", "name",
    "notes", "trial.measure_s", "np", "consumers", "x", "..", "producer.acks",
]  # fmt: skip


@pytest.mark.computes
@few_or_many(60, 8_000)
def test_damaged_files_are_read_or_refused(tmp_path: Path, examples: int) -> None:
    file = tmp_path / "damaged.yaml"

    @settings(max_examples=examples)
    @given(damaged_files())
    def check(damaged: tuple[str, str]) -> None:
        kind, text = damaged
        file.write_text(text, encoding="utf-8", errors="surrogatepass")
        assert_ends_soon(lambda: LOADERS[kind](str(file)))

    check()


@few_or_many(60, 4_000)
def test_any_value_of_an_option_is_taken_or_refused(examples: int) -> None:
    @settings(max_examples=examples)
    @given(st.sampled_from(KEYS), unusual_texts | st.text(string.printable, max_size=30))
    def check(key: str, value: str) -> None:
        assert_ends_soon(lambda: load_workload("1kB", [f"workload.{key}={value}"]))

    check()


@pytest.mark.computes
@few_or_many(60, 4_000)
def test_damaged_summaries_are_read_or_refused(tmp_path: Path, examples: int) -> None:
    """Plan with a summary in which one value is replaced: the plan works or names the problem."""
    summary = tmp_path / "summary.json"
    write_summary(SUMMARY, summary)
    whole = summary.read_text()
    options = ["--run", str(tmp_path), "--mb-per-s", "600", "--message-bytes", "1000"]

    @settings(max_examples=examples)
    @given(st.lists(st.integers(0, 60), min_size=1, max_size=4), unusual_values)
    def check(choices: list[int], value: Any) -> None:
        summary.write_text(json.dumps(replaced(json.loads(whole), choices, value)))
        assert_ends_soon(lambda: load_summary(summary))
        done = CliRunner().invoke(plan, options, standalone_mode=False)
        assert done.exception is None or isinstance(done.exception, RedlineError), done.exception

    check()


def replaced(document: Any, choices: list[int], value: Any) -> Any:
    """A document in which the value at a place is another one."""
    whole: dict[str, Any] = {"": document}
    place: Any = whole
    key: Any = ""
    for choice in choices:
        below = place[key]
        if not isinstance(below, dict | list) or not below:
            break
        keys = list(below) if isinstance(below, dict) else list(range(len(below)))
        place, key = below, keys[choice % len(keys)]
    place[key] = value
    return whole[""]


@few_or_many(60, 4_000)
def test_any_message_to_the_driver_is_taken_or_malformed(examples: int) -> None:
    @settings(max_examples=examples)
    @given(st.binary(max_size=200) | unusual_values.map(lambda value: json.dumps(value).encode()))
    def check(text: bytes) -> None:
        channel = TaskChannel("127.0.0.1", 1, 1, lambda work: work())
        assert_ends_soon(lambda: channel.receive(0, _message(text)), *_MALFORMED)

    check()

"""Any command line ends with a documented exit code, soon, and without a traceback.

The few hundred examples of `make test` are the same each time; `make test-long` tries thousands.
"""

from __future__ import annotations

import contextlib
import io
import json
import string
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.cli import redline
from jobs.entry import UNEXPECTED, _code_of
from metrics.common.errors import ConfigError
from metrics.reporting.summary import write_summary
from metrics.tables.store import TableStore
from tests.support.robustness import SLOW_S, SUMMARY, few_or_many, unusual_texts

few_or_many_commands = few_or_many(80, 3_000)
DOCUMENTED = {0, 2, 3, 4, 5, 75}
"""All exit codes except those of signals, and 1, which is an unexpected error."""

words = st.one_of(
    unusual_texts,
    st.text(max_size=12),
    st.text(string.printable, max_size=12),
    st.sampled_from(
        ["run-1", "../run-1", "run-1/..", "run-1`", "x' OR '1'='1", "nan", "inf", "-1", "1e-300",
         "1e308", "0", "0.5", "1", "1000", "9" * 30, "--", "-", "/dev/full", "/dev/stdout",
         "--json", "--goal", "default", "\udcff", "capacity", "quotas", "alerts"]
    ),
).map(lambda word: word.replace("\0", ""))  # no system passes NUL  # fmt: skip
OPTIONS = {
    "plan": ["--run", "--limit", "--sweep", "--goal", "--mb-per-s", "--gb-per-day",
             "--message-bytes", "--replication-factor", "--consumer-groups", "--growth",
             "--offline", "--headroom", "--link-mbit-per-s", "--json"],
    "runs list": ["--out", "--tag", "--json"],
    "runs show": ["--out"],
    "runs tag": ["--remove", "--out"],
    "runs delete": ["--out"],
    "export": ["--as", "--goal", "--message-bytes", "--safety", "--disk-mb", "--tenants",
               "--bootstrap-server", "--rules", "--to"],
    "report": ["--tables", "--to"],
    "find-limit": ["--resume", "--goal", "--slots"],
    "cleanup": ["--cluster", "--run", "--older-than", "--set"],
    "nightly": ["--suite", "--night", "--budget"],
    "sweep": ["--resume", "--set"],
    "traffic": ["--np", "--trials", "--duration", "--profile"],
    "compare": ["--a", "--b", "--workload", "--goal", "--pairs", "--steady-pairs", "--min-effect",
                "--budget-s", "--json", "--set"],
    "init": ["--servers", "--protocol", "--mechanism", "--cafile", "--metrics", "--metrics-port"],
    "testbed down": ["--name"],
    "testbed status": [],
    "nonsense": [],
}  # fmt: skip
NO_LOAD_OPTIONS = {
    "find-limit": ["--dry-run", "--cluster", "nowhere"],
    "cleanup": ["--cluster", "nowhere"],
    "nightly": ["--dry-run", "--cluster", "nowhere"],
    "sweep": ["--dry-run", "nowhere"],
    "traffic": ["--dry-run", "--cluster", "nowhere"],
    "report": ["no/such/run"],
    "compare": ["--dry-run"],
    "init": ["cluster.yaml", "--force"],
}
"""The options that end a command before it starts anything."""

VALID_OPTIONS = {
    "plan": ["--run", "out/run-1", "--mb-per-s", "600", "--message-bytes", "1000"],
    "export": ["--as", "quotas"],
    "runs tag": ["baseline"],
    "compare": ["--a", "kafka=3.9.2", "--b", "kafka=4.1.2"],
    "init": ["--servers", "a:9092", "--protocol", "PLAINTEXT", "--metrics", "none"],
}
"""The options with which a job succeeds; a later option takes precedence."""


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    """A job with some of its options, and words that are mostly invalid."""
    job = draw(st.sampled_from(sorted(OPTIONS)))
    line = job.split()
    line += VALID_OPTIONS.get(job, []) if draw(st.booleans()) else []
    if job == "compare" and draw(st.booleans()):
        line += draw(st.tuples(*[st.just("run-1") | words] * 2))
    if job in ("runs show", "runs tag", "runs delete", "export"):
        line.append(draw(st.just("run-1") | words))
    for option in draw(st.lists(st.sampled_from(OPTIONS[job] or ["--x"]), max_size=4)):
        line += [option, draw(words)]
    line += [draw(words)] if draw(st.integers(0, 4)) == 0 else []
    return [*line, *NO_LOAD_OPTIONS.get(job, [])]


def check_command(folder: Path, line: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a command: it ends with a documented code, soon, and changes only its folder."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("REDLINE_CACHE", str(folder / "cache"))
    monkeypatch.setattr(sys, "stdin", io.StringIO())  # no answer to a question
    if not (folder / "out" / "run-1").exists():
        write_summary(SUMMARY, folder / "out" / "run-1" / "summary.json")
    shown, begun_s = io.StringIO(), time.thread_time()
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
        code = _code_of(redline, line, [])
    assert code != UNEXPECTED, f"{line}: {shown.getvalue()}"
    assert code in DOCUMENTED, f"{line}: {code}"
    assert code == 0 or shown.getvalue().strip(), f"{line}: no output"
    assert time.thread_time() - begun_s < SLOW_S, line


@few_or_many_commands
def test_command_lines_end_with_a_documented_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, examples: int
) -> None:
    @settings(max_examples=examples)
    @given(command_lines())
    def check(line: list[str]) -> None:
        check_command(tmp_path, line, monkeypatch)

    check()


# --- the place of the tables ----------------------------------------------------


class NoSpark:
    """A Spark session that keeps the texts of queries."""

    def __init__(self) -> None:
        self.queries: list[str] = []

    def sql(self, text: str) -> None:
        self.queries.append(text)


@few_or_many_commands
def test_no_place_of_tables_injects_a_query(examples: int) -> None:
    """Open tables at a place: it is one quoted name in a query, or refused."""

    @settings(max_examples=examples)
    @given(st.text(string.printable, max_size=20) | words)
    def check(base: str) -> None:
        try:
            store = TableStore(NoSpark(), base)  # type: ignore[arg-type]
        except ConfigError:
            return
        name = store._sql_name("runs")
        inner = name.removeprefix("delta.").split("`.`")
        assert name.endswith("`") and inner[0].startswith("`"), name
        for part in inner:
            bare = part.removeprefix("`") if part is inner[0] else part
            bare = bare.removesuffix("`") if part is inner[-1] else bare
            assert "`" not in bare.replace("``", ""), name

    check()


def test_the_commands_of_this_file_have_their_options() -> None:
    """Unknown options would all end as bad usage, and the tests above would check nothing."""
    for job, options in OPTIONS.items():
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
            code = _code_of(redline, [*job.split(), "--help"], [])
        assert code == (2 if job == "nonsense" else 0)
        assert [each for each in options if each not in shown.getvalue()] == [], job


def test_a_command_in_this_environment_can_succeed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = ["plan", "--run", "out/run-1", "--mb-per-s", "600", "--message-bytes", "1000",
            "--json", "plan.json"]  # fmt: skip
    check_command(tmp_path, line, monkeypatch)
    assert json.loads((tmp_path / "plan.json").read_text())["answer"]

"""The messages of the command on common mistakes of new users.

Answers of a version that did not record measurements: a sweep of times, and a limit.
"""

from __future__ import annotations

import io
import re
import shutil
import socket
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from syrupy.assertion import SnapshotAssertion

from jobs.cli import redline
from jobs.cluster.connect import connect
from jobs.console.events import Level, Notice, RecordingReporter
from jobs.console.printing import PlainReporter
from jobs.features.sweep import sweep_run
from jobs.features.sweep.cases import finished as of_older
from jobs.features.sweep.cases import load_sweep
from jobs.features.sweep.sweep_run import SweepRun
from metrics.common.errors import ConfigError, TryLaterError
from metrics.reporting.known_runs import known_runs
from metrics.reporting.report_page import is_held
from metrics.reporting.summary import load_summary
from tests.support.commands import ROOT
from tests.support.report_rows import summary_of_sizes
from tests.support.sweeps import load_answer, sweeping

WORKLOAD = """\
message_bytes: [1000]
producer: {rate_bytes_per_s: 100000}
topic: {replication_factor: 2}
trial: {warmup_s: 2, measure_s: 6}
"""


def refusal(*arguments: str) -> str:
    """The message with which a command is refused."""
    done = CliRunner().invoke(redline, list(arguments))
    assert isinstance(done.exception, ConfigError), done.output
    assert done.exception.exit_code == 2
    return str(done.exception)


def plan(*arguments: str) -> str:
    """The plan of a search."""
    done = CliRunner().invoke(redline, ["find-limit", "--dry-run", *arguments])
    assert done.exit_code == 0, done.exception or done.output
    return done.output


def test_kafkas_name_of_a_property_is_taken_with_its_dots() -> None:
    assert "linger 7 ms" in plan("--set", "workload.producer.linger.ms=7")
    compressed = plan("--set", "workload.producer.compression.type=lz4")
    assert "compression lz4, replication factor" in " ".join(compressed.split())
    for key in ("max.in.flight.requests.per.connection", "max_in_flight_requests_per_connection"):
        assert "compression" not in plan("--set", f"workload.producer.{key}=1")


def test_a_mistake_is_named_by_its_option_or_file(tmp_path: Path) -> None:
    suite = tmp_path / "suite.yaml"
    suite.write_text("description: nothing")
    sides = ["--a", "link=none", "--b", "link.delay=1ms", "--b", "num.io.threads=2"]
    for command, *parts in (
        (["find-limit", "--dry-run", "--set", "workload.producer.lingr.ms=5"],
         "--set workload.producer.lingr_ms: producer.lingr_ms is an unknown key",
         "linger_ms; rename it"),
        (["compare", "--a", "foo", "--b", "kafka=4.3.1", "--dry-run"],
         "--a foo is neither a setting nor a cluster"),
        (["compare", *sides], "--b is given 2 times",
         "write --b link.delay=1ms,num.io.threads=2"),
        (["nightly", "--suite", str(suite), "--dry-run"], "",
         "cases is missing; expected a list with at least one"),
    ):  # fmt: skip
        message = refusal(*command)
        assert message.startswith(parts[0])
        assert all(part in message for part in parts) and "--cluster" not in message


def test_a_file_of_kafkas_client_properties_is_no_cluster_in_any_folder(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    given = tmp_path / "client.properties"
    given.write_text("security.protocol=SASL_SSL")
    message = refusal("find-limit", "--dry-run", "--cluster", str(given), "--workload", "1kB")
    assert message.replace(str(given), "FILE") == snapshot


def test_a_misspelled_key_is_one_mistake(tmp_path: Path) -> None:
    file = tmp_path / "w.yaml"
    file.write_text(WORKLOAD.replace("warmup_s", "warm_up_s"))
    message = refusal("find-limit", "--dry-run", "--workload", str(file))
    assert message == (
        f"{file}, line 4: trial.warm_up_s is an unknown key; the nearest known key is warmup_s; "
        "rename it"
    )
    file.write_text(WORKLOAD.replace("warmup_s: 2, ", ""))
    message = refusal("find-limit", "--dry-run", "--workload", str(file))
    assert "trial.warmup_s is missing; expected a number of seconds" in message


def test_two_mistakes_are_two_lines_of_a_log(tmp_path: Path) -> None:
    file, out = tmp_path / "w.yaml", io.StringIO()
    file.write_text(WORKLOAD.replace("measure_s", "measur_s").replace("rate_b", "rte_b"))
    message = refusal("find-limit", "--dry-run", "--workload", str(file))
    at = datetime(2026, 11, 23, tzinfo=timezone.utc)
    PlainReporter(out, out, lambda: at).report(Notice(Level.ERROR, message))
    lines = zip(out.getvalue().splitlines(), ("rate_bytes_per_s", "measure_s"), strict=True)
    for line, key in lines:
        assert line.startswith("2026-11-23T00:00:00Z error: ") and f"{key}; rename it" in line


def test_a_cluster_that_does_not_answer_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # not listening, so connections are refused
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        refused = re.escape(f"{address} accepts no connection")
        with pytest.raises(TryLaterError, match=refused) as caught:
            connect([address], cluster="orders")
    assert str(caught.value).startswith("cluster orders: none of its bootstrap_servers can be")


def test_an_existing_cluster_needs_a_workload(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    cluster = tmp_path / "prod.yaml"
    cluster.write_text("bootstrap_servers: ['broker:9092']\nmetrics: {client_only: true}")
    message = refusal("find-limit", "--dry-run", "--cluster", str(cluster))
    assert message.replace(str(cluster), "FILE") == snapshot


OLDER = ROOT / "tests" / "data" / "older-sweep"
RUNS = ROOT / "tests" / "data" / "older-runs"


def test_a_run_without_a_measurement_is_a_search_or_a_held_load() -> None:
    limit, load = (
        load_summary(OLDER / name / "summary.json") for name in ("of-a-limit", "s1-c01-r1")
    )
    assert (limit.measurement, load.measurement) == ("", "")
    assert (is_held(limit), is_held(load)) == (False, True)
    assert "longer" in load_answer(OLDER / "sweep.json").sentences[0]
    jobs = {each.run_id: each.job for each in known_runs(OLDER, lambda _: False)}
    assert jobs == {"of-a-limit": "find-limit", "s1-c01-r1": "traffic", "s1-c02-r1": "traffic"}


def resumed(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[str]]:
    """The older sweep after its end, and the runs that were still to be made."""
    shutil.copytree(OLDER, folder / "s1", dirs_exist_ok=True)
    (folder / "acks.yaml").write_text(text, encoding="utf-8")
    begun: list[str] = []

    def executed(_body: Any, run: Any, *_: Any) -> None:
        begun.append(run.run_id)
        run.folder.mkdir()

    def finished(path: Path) -> Any:
        return replace(summary_of_sizes([]), trials=()) if path.name in begun else of_older(path)

    monkeypatch.setattr(sweep_run, "open_cluster", lambda *_: None)
    monkeypatch.setattr(SweepRun, "_open_spark", lambda *_: None)
    monkeypatch.setattr(sweep_run, "execute", executed)
    monkeypatch.setattr(sweep_run, "finished", finished)
    under_way = sweeping(load_sweep(str(folder / "acks.yaml")), folder, RecordingReporter())
    under_way.run()
    return under_way, sorted(begun)


def test_an_older_sweep_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (OLDER / "acks.yaml").read_text(encoding="utf-8")
    under_way, begun = resumed(tmp_path, text, monkeypatch)
    assert begun == ["s1-c01-r2", "s1-c01-r3", "s1-c02-r2", "s1-c02-r3"]
    before = load_answer(OLDER / "sweep.json").results
    kept = {each.run_id: each.value for each in before if each.repeat == 1}
    assert {each.run_id: each.value for each in under_way.results} == kept


def test_a_sweep_is_resumed_after_runs_of_two_earlier_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The first is of commit 2053f56, the second of 13ccb174; their experiment.json is the same.
    shutil.copytree(RUNS, tmp_path / "s1")
    under_way, begun = resumed(tmp_path, (OLDER / "acks.yaml").read_text("utf-8"), monkeypatch)
    assert begun == ["s1-c01-r3", "s1-c02-r3"]
    found = {each.run_id: each.value for each in under_way.results if each.repeat == 2}
    assert found == {"s1-c01-r2": 8.1, "s1-c02-r2": 12.3}


def test_an_older_sweep_is_not_resumed_with_another_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (OLDER / "acks.yaml").read_text(encoding="utf-8")
    with pytest.raises(ConfigError, match="began with another experiment"):
        resumed(tmp_path, text.replace("load: 8", "load: 9"), monkeypatch)

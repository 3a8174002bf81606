"""`redline find-limit` on a real testbed, from the command line to the Delta tables."""

from __future__ import annotations

import json
import re
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from jobs.config.loading import load_goal
from metrics.comparing.cause import release_of
from metrics.reporting.limit_answer import latency_words
from metrics.tables.store import TableStore
from metrics.units import format_mb_per_s
from tests.support.commands import SUBMITTED_FIND_LIMIT, RunningCommand, await_ends, listening_ports
from tests.support.finished_run import BROKERS, COMBINED, QUICK, Run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START_S = 150.0
"""Deadline for a testbed, a Spark session and the warm-up, on two busy cores [s]."""
TRIAL_S = 60.0
TOLERANT_IDLE_MIN = load_goal("tolerant").indicators.request_handler_idle_min


def test_it_ends_well_says_the_limits_and_draws_them(run: Run) -> None:
    assert run.code == 0, run.text
    for goal in ("default", "tolerant"):
        assert (
            f"Limits of calibrated with calibrated (goal {goal}, {len(BROKERS)} brokers)"
            in run.text
        )
    assert "Traceback" not in run.text

    shared = "each broker that is also a controller (node 1, 2) is known to ±"
    assert shared in run.summary["caveat"]

    for goal in ("default", "tolerant"):
        assert (run.folder / f"boundary-{goal}.png").read_bytes().startswith(b"\x89PNG")
        assert "<html" in (run.folder / f"boundary-{goal}.html").read_text()
        assert f"Goal {goal}" in (run.folder / "report.html").read_text()


def test_the_summary_has_each_limit_with_its_interval_and_its_latencies(run: Run) -> None:
    names = {"run_id", "started_at", "finished_at", "cluster", "workload", "goal", "boundaries"}
    assert names <= run.summary.keys()
    assert [point["goal"] for point in run.summary["boundaries"]] == ["default", "tolerant"]
    for point in run.summary["boundaries"]:
        assert point["bpm"] == 1_000
        assert 0 < point["np_sustained"] < point["np_overloaded"]
        assert point["mb_per_s"] == pytest.approx(point["mps"] * 1_000 / 1e6)
        assert point["mb_per_s_per_broker"] == pytest.approx(point["mb_per_s"] / len(BROKERS))
        assert point["overload_reasons"]
        width = 1 - point["np_sustained"] / point["np_overloaded"]
        assert width <= 0.2 or point["np_overloaded"] - point["np_sustained"] == 1

    for point in run.summary["boundaries"]:
        low, high = point["np_low"], point["np_high"]
        assert 0 < low < high
        assert low < point["np_overloaded"] and high > point["np_sustained"]
        each = point["mb_per_s"] / point["np_sustained"]
        assert point["mb_per_s_low"] == pytest.approx(each * low)
        assert point["mb_per_s_high"] == pytest.approx(each * high)
        p50, p99, p999 = (point[f"latency_{name}_ms"] for name in ("p50", "p99", "p999"))
        assert 0 < p50 <= p99 <= p999
        assert low < point["np_estimate"] < high
        assert point["mb_per_s_estimate"] == pytest.approx(each * point["np_estimate"])
        span = " to ".join(format_mb_per_s(point[f"mb_per_s_{end}"]) for end in ("low", "high"))
        assert f"{span} MB/s" in run.text
        report = (run.folder / "report.html").read_text(encoding="utf-8")
        for words in (latency_words(p50, p99, p999), f"{span} MB/s"):
            assert words in report
        assert latency_words(p50, p99, p999) in run.text


def test_it_finds_the_limit_that_was_planted(run: Run) -> None:
    for point, idle_min in zip(run.summary["boundaries"], (0.2, TOLERANT_IDLE_MIN), strict=True):
        # Each broker has 4 handlers; a producer fills a batch every 0.512 s. A request takes a
        # little more than its 60 ms even on a busy machine, and never less.
        stated = len(BROKERS) * 4 * (1 - idle_min) / 0.060 * 0.512
        assert 0.9 * stated < point["np_planted"] <= stated
        assert point["np_sustained"] <= 1.05 * point["np_planted"]
        assert point["np_overloaded"] >= 0.95 * point["np_planted"]
        assert 0.75 * point["np_planted"] < point["np_estimate"] < point["np_planted"] / 0.75
    assert "Planted limits of these brokers, and found limits" in run.text
    assert re.search(r"found +off by +estimate +off by +limit at 90 %", run.text)


def test_every_trial_is_in_the_tables_with_its_evidence(run: Run, spark: SparkSession) -> None:
    tables = TableStore(spark, str(run.tables))
    run_id = run.summary["run_id"]
    trials = tables.trials(run_id).collect()
    point = run.summary["boundaries"][0]
    assert [trial.trial for trial in trials] == list(range(1, point["trials"] + 1))
    assert all(set(trial.verdicts) == {"default", "tolerant"} for trial in trials)
    for trial in trials:
        assert trial.acked_total == trial.end_offset_growth_records > 0
        assert trial.failed_total == 0
        assert trial.reasons
        assert [each.broker_id for each in trial.broker_windows] == list(BROKERS)
    assert {trial.verdict for trial in trials} >= {"SUSTAINED", "OVERLOADED"}
    assert tables.read("samples", run_id).select("broker_id").distinct().count() == len(BROKERS)
    for trial in trials:  # brokers and tasks share this machine
        (host,) = trial.hosts
        assert (host.brokers, host.generates, host.shares_machine) == (list(BROKERS), True, True)
        assert 0 < host.cpu_busy <= 1
        assert sorted(host.resident_bytes) == list(BROKERS)
        assert min(host.resident_bytes.values()) > 100e6
        assert {use.resource for use in trial.host_resources} >= {"CPU", "memory", "network"}
    looks = tables.read("hosts", run_id)
    assert looks.select("host").distinct().count() == 1
    assert looks.count() > tables.read("samples", run_id).count() / len(BROKERS)
    points = {each.goal: each for each in tables.boundaries(run_id).collect()}
    for limit in run.summary["boundaries"]:
        names = (
            "np_low",
            "np_high",
            "np_estimate",
            "mb_per_s_low",
            "mb_per_s_high",
            "latency_p999_ms",
        )
        assert all(points[limit["goal"]][name] == limit[name] for name in names)
    assert len(points) == 2
    ended = tables.runs().where(f"run_id = '{run_id}'").collect()
    assert [(row.status, row.exit_code) for row in ended] == [("done", 0)]
    assert release_of(ended[0].environment).text == "Kafka 4.1.2 with KRaft controllers in brokers"


@pytest.mark.long
@pytest.mark.together
def test_an_interruption_leaves_finished_trials_and_no_process(tmp_path: Path) -> None:
    with RunningCommand(*SMALL, COMBINED, *CALM, folder=tmp_path) as command:
        _interrupt_second_trial(command, signal.SIGINT, nodes=1)
        assert command.wait(deadline_s=90) == 130, command.text
        assert "interrupted" in command.text
        assert "Traceback" not in command.text
    _assert_one_trial_kept(tmp_path, status="interrupted")


@pytest.mark.long
def test_a_killed_run_leaves_no_process_and_is_resumed_by_spark_submit(
    tmp_path: Path, spark: SparkSession
) -> None:
    run_id = _kill_in_second_trial(tmp_path)
    # A resumed run may have another budget, which limits the duration here.
    budget = "--set=goal.search.budget.trials=3"
    options = (budget, f"--resume={run_id}")  # the tables have all other options
    with RunningCommand(*options, folder=tmp_path, program=SUBMITTED_FIND_LIMIT) as command:
        code = command.wait(deadline_s=200)
        assert code in (0, 3), command.text
        assert "trial-started trial=1 " not in command.text
    tables = TableStore(spark, str(tmp_path / "out" / "tables"))
    numbers = [trial.trial for trial in tables.trials(run_id).collect()]
    assert len(set(numbers)) == len(numbers) <= 3
    summary = json.loads((tmp_path / "out" / run_id / "summary.json").read_text())
    (point,) = summary["boundaries"]
    assert point["trials"] == len(numbers)
    assert (point["gave_up"] is None) == (code == 0)
    assert code == 0 or "the budget of 3 trials is used up" in summary["error"]


SMALL = (
    "find-limit",
    "--workload=1kB",
    "--set=cluster.testbed.brokers=1",
    "--set=workload.topic.replication_factor=1",
    "--set=workload.trial.measure_s=2",
)
CALM = ("--set=cluster.warm_up_max_s=0", "--set=goal.search.load_start_max=8")
"""Options of trials with a short recovery, whose results do not matter."""


def _kill_in_second_trial(folder: Path) -> str:
    """Kill the driver of a run in its second trial, and return the run's id."""
    with RunningCommand(*QUICK, *CALM, folder=folder) as command:
        _interrupt_second_trial(command, signal.SIGKILL)
        assert command.wait(deadline_s=10) == -signal.SIGKILL
    return _assert_one_trial_kept(folder, status="running")


def _interrupt_second_trial(command: RunningCommand, number: int, nodes: int = 4) -> None:
    command.await_line("trial-finished trial=1 ", START_S + TRIAL_S)
    command.await_line("trial-started trial=2 ", TRIAL_S)
    family = command.family()
    ports = listening_ports(family)
    assert len(family) > 1 + nodes, "a supervisor, its nodes, Spark"
    assert len(ports) >= 2 * nodes, "listeners and JMX of each"
    command.signal(number)
    assert await_ends(family, deadline_s=90 if number != signal.SIGKILL else 15) == []
    for port in ports:
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", port)) != 0, f"port {port} is still in use"


def _assert_one_trial_kept(folder: Path, status: str) -> str:
    """Check the tables without Spark: one trial is kept."""
    runs, trials = (
        DeltaTable(folder / "out" / "tables" / name).to_pyarrow_table().to_pylist()
        for name in ("runs", "trials")
    )
    assert max(runs, key=lambda row: row["at"])["status"] == status
    (run_id,) = {row["run_id"] for row in runs}
    assert [(row["run_id"], row["trial"]) for row in trials] == [(run_id, 1)]
    return str(run_id)

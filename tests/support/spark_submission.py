"""Jobs that a scheduler submits to the Spark cluster of a testbed, and their results."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from jobs.cluster.connect import connect
from jobs.engine.network.options import NAME_PREFIX as PREFIX
from jobs.setup.places import CACHE_VARIABLE, cache_dir
from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import cluster_file
from jobs.testbed.model import SPARK_MASTER_ID
from jobs.testbed.spark import submit_properties
from tests.support.commands import ROOT, SPARK_SUBMIT, RunningCommand
from tests.support.engine_bench import end_offsets_of
from tests.support.processes import becomes, command_line_of

_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"

QUICK = (
    "--set=workload.message_bytes=[1000]",
    "--set=workload.trial.warmup_s=1",
    "--set=workload.trial.measure_s=6",
    "--set=cluster.warm_up_max_s=0",
    "--set=goal.search.steady_s=0",
    "--set=goal.search.check_for_change=false",
    "--set=goal.search.resolution=0.02",
)
"""Options of a search at one message size, with trials of seven seconds."""


@dataclass(frozen=True)
class Submitter:
    """Runs spark-submit in a separate folder, without access to the checkout.

    Attributes:
        python: Python of drivers and executors, without this project.
        folder: folder of the job's script, Spark's event logs, and the results in `out`.
    """

    testbed: Testbed
    wheel: Path
    python: Path
    folder: Path

    def submit(
        self,
        job: str,
        *options: str,
        cache: Path | None = None,
        within: Sequence[str] = (),
        cluster: Path | None = None,
        secrets: Mapping[str, str] | None = None,
        spark: Mapping[str, str] | None = None,
    ) -> RunningCommand:
        """Submit a script of jobs/, named without .py.

        Args:
            cache: cache folder of jars; by default that of this checkout.
            within: command that runs spark-submit, for example in a container.
            cluster: file of the cluster to load; by default the testbed's.
        """
        script = self.folder / f"{job}.py"
        shutil.copyfile(ROOT / "jobs" / f"{job}.py", script)
        self.events.mkdir(exist_ok=True)
        settings = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false",
            "spark.eventLog.dir": self.events.as_uri(),
            **(spark or {}),
        }
        conf = [part for pair in settings.items() for part in ("--conf", "=".join(pair))]
        master = str(self.testbed.state.spark_master)
        properties = str(submit_properties(self.testbed.folder))
        program = [
            *within,
            SPARK_SUBMIT,
            "--master",
            master,
            "--properties-file",
            properties,
            *conf,
        ]
        program += ["--py-files", str(self.wheel)]
        loaded = ["--cluster", str(cluster or cluster_file(self.testbed.folder)), "--yes"]
        loaded += [] if job == "cleanup" else ["--workload=demo"]
        return RunningCommand(
            *loaded,
            *options,
            folder=self.folder,
            program=[*program, str(script)],
            environ={
                "PYTHONPATH": "",
                "PYSPARK_PYTHON": str(self.python),
                CACHE_VARIABLE: str(cache or cache_dir()),
                **(secrets or {}),
            },
        )

    @property
    def events(self) -> Path:
        return self.folder / "events"


def executors_by_worker(testbed: Testbed) -> dict[int, list[psutil.Process]]:
    """Number of a worker → the JVMs of its executors."""
    workers = testbed.state.spec.spark_workers
    return {
        number: [
            child
            for child in psutil.Process(testbed.pids[SPARK_MASTER_ID + number]).children()
            if _EXECUTOR in command_line_of(child)
        ]
        for number in range(1, workers + 1)
    }


def records_written(testbed: Testbed) -> int:
    """Sum of the end offsets of all topics of runs, without those of canaries."""
    written = 0
    with connect(testbed.bootstrap_servers) as admin:
        for topic in admin.topic_names():
            seen = admin.partitions_seen_by(testbed.broker_ids[0], [topic])[topic]
            if topic.startswith(PREFIX) and not topic.endswith("-canary") and seen:
                written += sum(end_offsets_of(admin, topic, seen).values())
    return written


@dataclass(frozen=True)
class BarrierStages:
    """The stages of loads in an application's event log.

    Attributes:
        attempts: (stage, attempt) of each started attempt.
        executors: (stage, attempt) → ids of the executors with successful tasks.
    """

    attempts: tuple[tuple[int, int], ...]
    executors: dict[tuple[int, int], set[str]]


def barrier_stages(event_log: Path) -> BarrierStages:
    """Read the event log of a finished application."""
    attempts: list[tuple[int, int]] = []
    executors: dict[tuple[int, int], set[str]] = {}
    for line in event_log.read_text(encoding="utf-8").splitlines():
        event: dict[str, Any] = json.loads(line)
        if event["Event"] == "SparkListenerStageSubmitted":
            info = event["Stage Info"]
            if any(rdd["Barrier"] for rdd in info["RDD Info"]):
                attempts.append((info["Stage ID"], info["Stage Attempt ID"]))
        elif event["Event"] == "SparkListenerTaskEnd":
            key = (event["Stage ID"], event["Stage Attempt ID"])
            if key in attempts and event["Task End Reason"]["Reason"] == "Success":
                executors.setdefault(key, set()).add(event["Task Info"]["Executor ID"])
    return BarrierStages(tuple(attempts), executors)


def await_load(testbed: Testbed, deadline_s: float = 900.0) -> None:
    """Wait until producers' records arrive."""
    before = records_written(testbed)
    assert becomes(lambda: records_written(testbed) > before, deadline_s)


def require_no_topics(testbed: Testbed) -> None:
    """Check that the brokers run and have no topic of a run."""
    testbed.check()
    with connect(testbed.bootstrap_servers, {}) as admin:
        assert [name for name in admin.topic_names() if name.startswith(PREFIX)] == []

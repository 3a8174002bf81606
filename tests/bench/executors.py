"""Cost of many tasks for the driver: their control channels, their plan and their reports.

The driver's code is real. The tasks are clients of one process on loopback, which need the standard
library only, and their reports are synthetic.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil

from jobs.engine.stage import reports_to_batch
from jobs.engine.task.plan import TrialPlan
from jobs.trials.control_server import ControlServer
from metrics.trial.adding import Histogram
from metrics.trial.client import Counts, ProducerReport, TaskReport, merge
from metrics.trial.sockets import SocketCounts
from tests.bench.cpu import cpu_s
from tests.support import channel_clients
from tests.support.patterns import pattern, plan

MOMENTS = 240
"""Reports of progress that a task makes in a minute."""
PRODUCERS_OF_TASK = 20
MB = 1e6
HEADS = ("tasks", "admission s", "start s", "driver CPU-us a report", "driver CPU-s a minute")
REPORT_HEADS = (
    "tasks",
    "partitions",
    "plan kB",
    "report kB a task",
    "all reports MB",
    "merge CPU-s",
    "driver MB more",
)


def channels(tasks: int) -> tuple[str, ...]:
    """A row on the control channels of so many tasks through a minute of load."""
    own, client = os.getpid(), str(Path(channel_clients.__file__))
    with ControlServer("127.0.0.1", "127.0.0.1") as server, server.channel(tasks) as channel:
        address = channel.address
        words = [address.host, str(address.port), address.token, str(tasks), "0", str(MOMENTS)]
        before_s = cpu_s(own)
        done = subprocess.run(
            [sys.executable, "-I", client, *words], capture_output=True, text=True, check=True
        )
        while len(channel.acked()) < MOMENTS:
            time.sleep(0.05)
        used_s = cpu_s(own) - before_s
    seen = json.loads(done.stdout)
    assert seen["admitted"] == seen["signals"] == tasks, seen
    each_us = used_s / (tasks * MOMENTS) * 1e6
    return (
        f"{tasks:,}",
        f"{seen['admission_s']:.2f}",
        f"{seen['start_s']:.2f}",
        f"{each_us:.0f}",
        f"{used_s:.2f}",
    )


def report(task: int, partitions: int) -> TaskReport:
    """The report of a task whose producers wrote to all partitions of a topic."""
    counts = Counts(offered_records=10**6, acked_records=10**6)
    for number in range(partitions):
        counts.acked_by_partition[number] = counts.sent_by_partition[number] = 1_000 + number
    for number in range(PRODUCERS_OF_TASK):
        producer = task + 500 * number
        accounts = counts.by_producer
        accounts.offered[producer] = accounts.sent[producer] = accounts.acked[producer] = 50_000
    times = Histogram(float(10 + 7 * n) for n in range(5_000))
    sockets = {broker: SocketCounts() for broker in range(100)}
    produced = ProducerReport(counts, times, times, sockets=sockets)
    return TaskReport(task, f"host-{task % 50}", 100.0, 130.0, produced)


def reports(tasks: int, partitions: int) -> tuple[str, ...]:
    """A row on the plan of a stage, and on the reports of its tasks."""
    ordered: TrialPlan = plan(
        pattern=pattern(tasks * PRODUCERS_OF_TASK),
        tasks=tasks,
        leaders=tuple(number % 100 for number in range(partitions)),
        brokers={broker: (f"broker-{broker}.example.com", 9092) for broker in range(100)},
        end_offsets=dict.fromkeys(range(partitions), 10**9),
    )
    from pyspark import cloudpickle  # it is Spark that pickles the plan

    batch = reports_to_batch([report(0, partitions)])
    size_bytes = batch.nbytes
    process = psutil.Process()
    before_bytes = process.memory_info().rss
    made = [report(task, partitions) for task in range(tasks)]
    made_s = time.process_time()
    merge(made)
    return (
        f"{tasks:,}",
        f"{partitions:,}",
        f"{len(cloudpickle.dumps(ordered)) / 1e3:.0f}",  # type: ignore[no-untyped-call]
        f"{size_bytes / 1e3:.0f}",
        f"{size_bytes * tasks / MB:.1f}",
        f"{time.process_time() - made_s:.2f}",
        f"{(process.memory_info().rss - before_bytes) / MB:.0f}",
    )

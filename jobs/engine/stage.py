"""The barrier stage that makes the load of one trial: the work of each Spark task.

The first tasks are producers; the other tasks are members of consumer groups. Each task opens its
connections. A task with producers encodes the record batches that it will send, and a task with
consumers joins its groups. When all tasks are ready, they start the load at the same time. The
stage returns one row per task (`metrics.trial.client.TaskReport`).

During the load, one task of each host samples the host on a thread. The task takes one sample per
second, which costs about a millisecond.
"""

from __future__ import annotations

import functools
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from jobs.engine.clients.registry import client_of
from jobs.engine.network.namespaces import inside
from jobs.engine.network.options import OneToken
from jobs.engine.task.client import AcknowledgedOffsets, Gather, TaskClient
from jobs.engine.task.control_channel import (
    ControlAddress,
    DriverChannel,
    OrphanedError,
    StartSignal,
    TaskReady,
    start_signals,
)
from jobs.engine.task.plan import StagePlan, TrialPlan, placed
from metrics.arrow_schema import ddl, schema_of
from metrics.columns import row_of
from metrics.common.errors import ConfigError, RedlineError
from metrics.sources.hosts.host_sample import HostSample
from metrics.sources.hosts.proc import LocalHost
from metrics.sources.hosts.queues import Queues
from metrics.trial.client import TaskReport

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TASK_SCHEMA: pa.Schema = schema_of(TaskReport)
"""Arrow schema of a `TaskReport`."""

TASK_DDL: str = ddl(TASK_SCHEMA)
"""The schema of a `TaskReport` as text, for `mapInArrow(f, schema)`."""

INTERVAL_S = 1.0
"""Time between two samples of a host [s]."""


def reports_to_batch(reports: Sequence[TaskReport]) -> pa.RecordBatch:
    """The reports as one Arrow batch for `mapInArrow`, with the schema `TASK_SCHEMA`."""
    return pa.RecordBatch.from_pylist([row_of(each) for each in reports], schema=TASK_SCHEMA)


class HostWatch:
    """A sampler of this host, which runs until the end of the block.

    Args:
        host: takes the samples.
        is_on: False if another task samples the host.
    """

    def __init__(self, host: LocalHost, *, is_on: bool = True) -> None:
        self._host = host
        self._is_on = is_on
        self._samples: list[HostSample] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="redline-host", daemon=True)

    def __enter__(self) -> HostWatch:
        if self._is_on:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join()

    def take(self) -> tuple[HostSample, ...]:
        """Return the samples since the last call, and take one more sample."""
        if not self._is_on:
            return ()
        samples, self._samples = self._samples, []
        return (*samples, self._host.sample())

    def _run(self) -> None:
        while True:
            self._samples.append(self._host.sample())
            if self._stopped.wait(INTERVAL_S):
                return


class LateStartError(RedlineError):
    """The start signal reached a task after the start of the load."""


class Barrier(Protocol):
    """The part of Spark's `BarrierTaskContext` that a task needs."""

    def partitionId(self) -> int:  # noqa: N802 - Spark's name
        """Index of this task in the stage."""

    def allGather(self, message: str) -> list[str]:  # noqa: N802 - Spark's name
        """The messages of all tasks. The call blocks until all tasks have called this method."""


def stage_frame(spark: SparkSession, plan: StagePlan) -> DataFrame:
    """A DataFrame with one row per task. Spark runs the plan when the DataFrame is collected."""
    count = plan.tasks
    tasks = spark.range(0, count, 1, count)
    return tasks.mapInArrow(functools.partial(_map_partition, plan), TASK_DDL, barrier=True)


def _map_partition(plan: StagePlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    from pyspark import BarrierTaskContext

    for _ in batches:  # the ids have no use but to make the partitions
        continue
    barrier = BarrierTaskContext.get()
    row = run_task(plan.plan_of(barrier.partitionId()), barrier)
    yield reports_to_batch([row])


def run_task(
    plan: TrialPlan, barrier: Barrier, wall_clock: Callable[[], float] = time.time
) -> TaskReport:
    """Prepare, wait for the start, run the load, and return the task's row.

    The row also reports errors, because a raised error would end all tasks of the stage at once,
    with a Java stack trace.

    Args:
        wall_clock: clock of this host [s since the epoch].
    """
    with ExitStack() as namespaces:
        return placed(plan, _Task(plan, barrier, wall_clock).run(namespaces))


class _Task:
    def __init__(self, plan: TrialPlan, barrier: Barrier, wall_clock: Callable[[], float]) -> None:
        self._plan = plan
        self._task = plan.own_task(barrier.partitionId())
        self._wall_clock = wall_clock
        self._gather: Gather = barrier.allGather
        self._driver: DriverChannel | None = None
        self._client: TaskClient | None = None

    def run(self, namespaces: ExitStack) -> TaskReport:
        """Prepare, wait for the start, run the load, and return the task's row.

        Args:
            namespaces: stack that leaves the plan's network namespace when it is closed.
        """
        plan, problem, is_refused = self._plan, "", False
        try:
            self._open(namespaces)
        except ConfigError as error:
            problem, is_refused = str(error), True
        except (RedlineError, OSError, MemoryError) as error:
            problem = f"{type(error).__name__}: {error}"
        try:
            signal = self._await_start(problem or None)
            start_wall_s = signal.ready_s + plan.start_lead_s
            if signal.problem is not None or self._client is None:
                absent = self._absence_report(start_wall_s, problem or signal.problem or "")
                return replace(absent, is_refused=is_refused)
            host = LocalHost(
                clock=self._wall_clock,
                speeds=plan.interface_speeds,
                queues=Queues(),
                generates=True,
            )
            with HostWatch(host, is_on=signal.watches_host) as watch:
                report = self._run_load(self._client, start_wall_s, watch)
                report = replace(report, host_samples=watch.take())
            return self._with_clock(report)
        finally:
            if self._driver is not None:
                self._driver.finish()
                self._driver.close()
            if self._client is not None:
                self._client.close()

    def _open(self, namespaces: ExitStack) -> None:
        plan = self._plan
        if plan.control is not None:
            self._driver = connect(
                plan, plan.control, plan.stage_task(self._task), self._wall_clock
            )
            self._driver.compare_clocks()
        # The control channel stays in the thread's own namespace; the client's sockets do not.
        at_home = namespaces.enter_context(inside(plan.network_namespace))
        self._gather = at_home(self._gather)
        self._client = client_of(plan, self._task)
        self._client.open()

    def _await_start(self, problem: str | None) -> StartSignal:
        """Wait for the driver's start signal.

        If the plan has no control channel, the task uses Spark's barrier, which polls once per
        second. A task that could not connect to the driver does not wait for the signal; the other
        tasks then wait up to their time limit.
        """
        ready = TaskReady(self._wall_clock(), socket.gethostname(), problem)
        if self._driver is not None:
            try:
                return self._driver.await_start(ready)
            except OrphanedError as error:
                return StartSignal(ready.now_s, problem or str(error))
        if self._plan.control is not None:
            return StartSignal(ready.now_s, problem)
        messages = self._gather(json.dumps(ready.document()))
        of_all = {task: TaskReady.parse(json.loads(each)) for task, each in enumerate(messages)}
        return start_signals(of_all)[self._plan.stage_task(self._task)]

    def _run_load(self, client: TaskClient, start_wall_s: float, watch: HostWatch) -> TaskReport:
        plan, driver = self._plan, self._driver
        acknowledged = AcknowledgedOffsets(plan, self._gather)
        offset_s = self._wall_clock() - time.monotonic()
        if driver is not None:
            driver.take_host_samples = watch.take
            driver.send(start_s=start_wall_s)
        start_s = start_wall_s - offset_s
        late_s = time.monotonic() - start_s
        try:
            if late_s > 0:
                raise LateStartError(
                    f"the start signal arrived {late_s:.2f} s after the start of the load; "
                    "expected the signal before the start; look for load on the driver's host"
                )
            return client.run(start_s, offset_s, driver, acknowledged)
        except OrphanedError as error:
            return self._absence_report(start_wall_s, str(error))
        except Exception as error:  # noqa: BLE001 - the driver ends the whole load, and reports it
            problem = f"{type(error).__name__}: {error}"
            if driver is not None:
                driver.report_failure(problem)
            return self._absence_report(start_wall_s, problem)
        finally:
            if plan.gathers_offsets:
                acknowledged.finish()

    def _with_clock(self, report: TaskReport) -> TaskReport:
        """Compare the clocks again, because a clock can drift, or can be set to another time,
        during the load.
        """
        driver = self._driver
        if driver is None:
            return report
        with suppress(OrphanedError):  # the report already says why the load ended
            driver.compare_clocks()
        return replace(report, clock=driver.clock_offset, clock_change=driver.clock_change)

    def _absence_report(self, start_wall_s: float, problem: str) -> TaskReport:
        """The report of a task that offered no load. The report's start and end are the start and
        the end of the last window.
        """
        plan, phases = self._plan, self._plan.pattern.phases
        begin_s = start_wall_s + phases.warmup_s + (plan.windows - 1) * phases.measure_s
        end_s = begin_s + phases.measure_s
        return TaskReport(self._task, socket.gethostname(), begin_s, end_s, error=problem)


def connect(
    plan: TrialPlan, control: ControlAddress, task: int, wall_clock: Callable[[], float]
) -> DriverChannel:
    """Connect to the driver. In the task's reports, each partition, producer and group has a number
    that is unique over all parts of the load.
    """
    wait_s = plan.connect_timeout_s
    driver = DriverChannel.connect(control, task, wait_s, time.monotonic, wall_clock)
    driver.place = functools.partial(placed, plan)
    tokens = plan.client_options.get("sasl_oauth_token_provider")
    if isinstance(tokens, OneToken):
        driver.take_token = tokens.renew
    return driver

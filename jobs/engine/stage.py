"""The barrier stage that makes one trial's load: the work of each Spark task.

The first tasks host producers, the others the members of consumer groups. Every task opens its
connections, and encodes its pool or joins its groups; then all of them start at one moment. The
stage returns one row per task (`metrics.trial.task.TaskReport`).

Samples of a generator's host while its tasks make their load, taken by a thread.

One task of each host takes them for all. A sample takes about a millisecond, and one is taken every
second.
"""

from __future__ import annotations

import functools
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, cast

import pyarrow as pa

from jobs.engine.clients.registry import client_of
from jobs.engine.consuming.ledger import (
    AcknowledgedOffsets,
    ConsumerClient,
    Gather,
    consumer_report,
)
from jobs.engine.network.namespaces import inside
from jobs.engine.network.options import OneToken
from jobs.engine.producing.account import ProducerClient, producer_report
from jobs.engine.task.control_channel import (
    ControlAddress,
    DriverChannel,
    OrphanedError,
    StartSignal,
    TaskReady,
    start_signals,
)
from jobs.engine.task.placing import placed
from jobs.engine.task.plan import StagePlan, TrialPlan
from metrics.common.errors import ConfigError, RedlineError
from metrics.sources.hosts.proc import LocalHost
from metrics.sources.hosts.queues import Queues
from metrics.sources.hosts.source import HostSample
from metrics.trial.task import TASK_DDL, TaskReport, reports_to_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

INTERVAL_S = 1.0
"""Interval between two samples [s]."""


class HostWatch:
    """A sampler of this machine until the block ends.

    Args:
        host: takes the samples.
        is_on: False where another task of this host takes them.
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
        """Take the samples since the last call, and one more of now."""
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
    """A task got the start signal after the start."""


class Barrier(Protocol):
    """The part of Spark's `BarrierTaskContext` that a task needs."""

    def partitionId(self) -> int:  # noqa: N802 - Spark's name
        """Index of this task in the stage."""
        ...

    def allGather(self, message: str) -> list[str]:  # noqa: N802 - Spark's name
        """The messages of all tasks, once all have called."""
        ...


def stage_frame(spark: SparkSession, plan: StagePlan) -> DataFrame:
    """The stage that runs the plan, one row per task; nothing runs until it is collected."""
    count = plan.tasks
    tasks = spark.range(0, count, 1, count)
    return tasks.mapInArrow(functools.partial(_map_partition, plan), TASK_DDL, barrier=True)


def _map_partition(plan: StagePlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    from pyspark import BarrierTaskContext

    for _ in batches:  # the ids only made the partitions
        continue
    barrier = BarrierTaskContext.get()
    row = run_task(plan.plan_of(barrier.partitionId()), barrier)
    yield reports_to_batch([row])


def run_task(
    plan: TrialPlan, barrier: Barrier, wall_clock: Callable[[], float] = time.time
) -> TaskReport:
    """Prepare, wait for the start, run the load, and return its row, which also holds errors.

    A raised error would end the stage of all tasks at once, in a Java stack trace.

    Args:
        wall_clock: clock of this host [s since the epoch].
    """
    with ExitStack() as namespaces:
        return placed(plan, _run_task(plan, barrier, wall_clock, namespaces))


def _run_task(
    plan: TrialPlan, barrier: Barrier, wall_clock: Callable[[], float], namespaces: ExitStack
) -> TaskReport:
    """Do what `run_task` says; `namespaces` leaves the network namespace of the plan at the end."""
    task = plan.own_task(barrier.partitionId())
    client: ProducerClient | ConsumerClient | None = None
    problem: str | None = None
    is_refused = False
    driver: DriverChannel | None = None
    gather = barrier.allGather
    try:
        if plan.control is not None:
            driver = _connect(plan, plan.control, plan.stage_task(task), wall_clock)
            driver.compare_clocks()
        # The control channel stays in its own namespace; the client's sockets are behind a link.
        there = namespaces.enter_context(inside(plan.network_namespace))
        gather = there.at_home(barrier.allGather)
        client = client_of(plan, task)
        client.open()
    except ConfigError as error:
        problem, is_refused = str(error), True
    except (RedlineError, OSError, MemoryError) as error:
        problem = f"{type(error).__name__}: {error}"
    try:
        ready = TaskReady(wall_clock(), socket.gethostname(), problem)
        signal = _await_start(plan, task, ready, driver, gather)
        start_wall_s = signal.ready_s + plan.start_lead_s
        if signal.problem is not None or client is None:
            absent = _absence_report(plan, task, start_wall_s, problem or signal.problem or "")
            return replace(absent, is_refused=is_refused)
        acknowledged = AcknowledgedOffsets(plan, gather)
        offset_s = wall_clock() - time.monotonic()
        host = LocalHost(
            clock=wall_clock, speeds=plan.interface_speeds, queues=Queues(), generates=True
        )
        with HostWatch(host, is_on=signal.watches_host) as watch:
            report = _run_watched(
                plan, task, client, start_wall_s, offset_s, driver, acknowledged, watch
            )
        return _with_clock(report, driver)
    finally:
        if driver is not None:
            driver.finish()
            driver.close()
        if client is not None:
            client.close()


def _connect(
    plan: TrialPlan, control: ControlAddress, task: int, wall_clock: Callable[[], float]
) -> DriverChannel:
    """Connect to the driver, to which reports go with the numbers of the whole load."""
    wait_s = plan.connect_timeout_s
    driver = DriverChannel.connect(control, task, wait_s, time.monotonic, wall_clock)
    driver.place = functools.partial(placed, plan)
    tokens = plan.client_options.get("sasl_oauth_token_provider")
    if isinstance(tokens, OneToken):
        driver.take_token = tokens.renew
    return driver


def _with_clock(report: TaskReport, driver: DriverChannel | None) -> TaskReport:
    """Compare the clocks once more, as either may have been set under load or run too fast."""
    if driver is None:
        return report
    with suppress(OrphanedError):  # the report says what the driver's end has ended
        driver.compare_clocks()
    return replace(report, clock=driver.clock_offset, clock_change=driver.clock_change)


def _await_start(
    plan: TrialPlan, task: int, ready: TaskReady, driver: DriverChannel | None, gather: Gather
) -> StartSignal:
    """Wait for the start signal of the driver.

    Without a control channel in the plan, Spark's barrier serves, which polls once a second. A task
    that did not reach the driver takes no part, and the wait of the others runs into its limit.
    """
    if driver is not None:
        try:
            return driver.await_start(ready)
        except OrphanedError as error:
            return StartSignal(ready.now_s, ready.problem or str(error))
    if plan.control is not None:
        return StartSignal(ready.now_s, ready.problem)
    own = json.dumps(ready.document())
    ready_messages = [TaskReady.parse(json.loads(each)) for each in gather(own)]
    return start_signals(dict(enumerate(ready_messages)))[plan.stage_task(task)]


def _window(plan: TrialPlan, start_wall_s: float) -> tuple[float, float]:
    """Begin and end of the last window, which the tasks' rows describe [s since the epoch]."""
    phases = plan.pattern.phases
    begin = start_wall_s + phases.warmup_s + (plan.windows - 1) * phases.measure_s
    return begin, begin + phases.measure_s


def _absence_report(plan: TrialPlan, task: int, start_wall_s: float, problem: str) -> TaskReport:
    begin, end = _window(plan, start_wall_s)
    return TaskReport(task, socket.gethostname(), begin, end, error=problem)


def _run_watched(
    plan: TrialPlan,
    task: int,
    client: ProducerClient | ConsumerClient,
    start_wall_s: float,
    wall_offset_s: float,
    driver: DriverChannel | None,
    acknowledged: AcknowledgedOffsets,
    watch: HostWatch,
) -> TaskReport:
    """Run the load, and add the samples of its host."""
    if driver is not None:
        driver.take_host_samples = watch.take
        driver.send(start_s=start_wall_s)
    report = _run_client(plan, task, client, start_wall_s, wall_offset_s, driver, acknowledged)
    return replace(report, host_samples=watch.take())


def _run_client(
    plan: TrialPlan,
    task: int,
    client: ProducerClient | ConsumerClient,
    start_wall_s: float,
    wall_offset_s: float,
    driver: DriverChannel | None,
    acknowledged: AcknowledgedOffsets,
) -> TaskReport:
    start_s = start_wall_s - wall_offset_s
    late_s = time.monotonic() - start_s
    try:
        if late_s > 0:
            raise LateStartError(f"the start signal arrived {late_s:.2f} s after the start")
        if task >= plan.tasks:
            consumers = cast("ConsumerClient", client)
            reading = consumers.run(start_s, wall_offset_s, driver, acknowledged.targets)
            return consumer_report(task, reading, wall_offset_s)
        outcome = cast("ProducerClient", client).run(start_s, wall_offset_s, driver)
        acknowledged.own_offsets = outcome.account.offsets_total
        return producer_report(plan, task, outcome.account, outcome.producers, wall_offset_s)
    except OrphanedError as error:
        return _absence_report(plan, task, start_wall_s, str(error))
    except Exception as error:  # noqa: BLE001 - the driver ends the load of all, and names it
        problem = f"{type(error).__name__}: {error}"
        if driver is not None:
            driver.report_failure(problem)
        return _absence_report(plan, task, start_wall_s, problem)
    finally:
        if plan.gathers_offsets:
            acknowledged.finish()

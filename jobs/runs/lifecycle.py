"""The life cycle of a run, the same in every job: open, record, measure, conclude.

Each job provides a `Body`, which measures and concludes. Every run is recorded and concluded,
whether it finishes, fails or is interrupted.
"""

from __future__ import annotations

import logging
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from jobs.cluster.lock import RunLocks, holder_text
from jobs.cluster.opening import OpenCluster
from jobs.config import Configuration
from jobs.console.events import Plan, Reporter, RunStarted, warn
from jobs.runs.context_factory import ContextFactory, RunOrder
from jobs.runs.estimate import caveat_of
from jobs.runs.outcome import RunOutcome, finish, outcome_of
from jobs.runs.resumption import config_text
from jobs.runs.run_lock import run_lock
from jobs.spark.failures import report_spark_failures
from jobs.spark.session import cancel_group, run_interruptibly
from jobs.trials.context import RunContext, Session, TrialHistory
from metrics.common.errors import RedlineError
from metrics.reporting.files import open_to_append
from metrics.tables.schema import RunRow
from metrics.trial.canary import CanaryWindow
from metrics.units import iso_utc

COMPACTION = "redline-compact"
"""The group of the Spark jobs that merge the tables' small files."""


@dataclass
class RunState:
    """The state of a run.

    Attributes:
        order: the settings of the run.
        contexts: the open context of each side by its name; one with an empty name in a run
            without sides, and none before the opening.
        started_s: the start of the run [s since the epoch].
        recorded: the outcome in the tables; None before the end.
        ended_by: the error that ended the job early; None without one.
        canaries_after: what the canaries saw of each broker after the last load.
    """

    order: RunOrder
    contexts: dict[str, RunContext] = field(default_factory=dict)
    started_s: float = field(default_factory=time.time)
    recorded: RunOutcome | None = None
    ended_by: BaseException | None = None
    canaries_after: tuple[CanaryWindow, ...] = ()

    @property
    def context(self) -> RunContext:
        """The context of a run without sides, or of the first side."""
        return next(iter(self.contexts.values()))

    @property
    def brokers(self) -> int:
        """The number of brokers; 0 before the opening."""
        return self.context.brokers if self.contexts else 0

    @property
    def environment(self) -> Mapping[str, str]:
        """The facts by which two runs are compared; empty before the opening."""
        return self.context.environment if self.contexts else {}

    @property
    def owner_bounds(self) -> dict[str, dict[str, Any]]:
        """The bounds of the owners of all clusters of the run, by their topic."""
        found = (each.guards.owner_bounds for each in self.contexts.values())
        return {topic: bounds.given for each in found for topic, bounds in each.items()}

    def caveat(self, config: Configuration) -> str:
        """The caveat of the figures: limits of the cluster and of its metrics."""
        return caveat_of(config, self.context.all_caveats if self.contexts else ())

    @property
    def driver(self) -> str:
        """The name of this driver, for another driver of the run or the cluster."""
        return holder_text(self.order.run_id, self.started_s)

    @property
    def times(self) -> tuple[str, str]:
        """The start of the run and the present time; ISO 8601, UTC."""
        return iso_utc(self.started_s), iso_utc(time.time())


class Body(ABC):
    """The part of a run that one job defines.

    Attributes:
        measurement: the name of the question that the run answers; None where it answers several.
    """

    measurement: str | None = None

    @property
    @abstractmethod
    def configurations(self) -> Mapping[str, Configuration]:
        """The configuration of each side by its name; an empty name in a run without sides.

        A run without configurations opens nothing, and has no rows in the tables.
        """

    @property
    def loaded(self) -> Sequence[Configuration]:
        """The configurations of all clusters that the run loads."""
        return tuple(self.configurations.values())

    @abstractmethod
    def plan(self, out: Path) -> Plan:
        """The plan of the run, before any load."""

    @property
    def shares_brokers(self) -> bool:
        """Whether all sides load the same brokers."""
        return False

    def reporter_of(self, name: str, reporter: Reporter) -> Reporter:
        """The reporter of one side, derived from the run's reporter."""
        return reporter

    def has_results(self, folder: Path) -> bool:
        """Whether the folder may contain results of an earlier part of a resumed run."""
        return True

    def resume(self, run: RunState) -> None:
        """Load the results of an earlier part of the run, after the opening and before any load."""
        return

    @abstractmethod
    def measure(self, run: RunState) -> None:
        """Measure; the body keeps all results from before an error or an interrupt."""

    def fail(self, run: RunState, error: BaseException) -> None:
        """Evaluate the partial results of a run that an error ended, before `conclude`."""
        return

    def outcome(self, error: BaseException | None) -> RunOutcome:
        """The outcome of a run that raised this error; None for a run without an error."""
        return outcome_of(error)

    @abstractmethod
    def conclude(self, run: RunState, outcome: RunOutcome) -> None:
        """Write the run's files and report its results; after an error the partial ones.

        Raises:
            ConfigError: a file could not be written; everything else is done.
        """


def execute(
    body: Body, order: RunOrder, cluster: OpenCluster | None = None, session: Session | None = None
) -> int:
    """Execute a run, and return its exit code.

    Args:
        cluster: an open cluster, which stays open; None to open the body's own.
        session: an open session, which stays open; None to open one.

    Raises:
        TryLaterError: another process drives this run, or another run has the cluster's lock.
        ConfigError: the run succeeded, and one of its files could not be written.
        NoConclusionError, RegressionError: the outcome is of this kind and has a message.
        RedlineError: as opening the cluster, the session or the tables raises.
        KeyboardInterrupt: the run was interrupted.
    """
    run = RunState(order)
    with run_lock(order.folder, run.driver) as has_lock, _logged_to(order.folder / "run.log"):
        if not (has_lock or order.locks):
            text = "this file system has no locks, which detect a second driver of the run"
            warn(order.reporter, f"{order.folder}: {text}; start the run only once")
        return _execute(body, run, cluster, session)


def _execute(
    body: Body, run: RunState, cluster: OpenCluster | None, session: Session | None
) -> int:
    order = run.order
    # The files of an earlier part of the run stay unchanged until this part continues it.
    is_begun = not (order.resumes and body.has_results(order.folder))
    order.reporter.report(RunStarted(order.run_id, body.plan(order.folder)))
    try:
        with ExitStack() as stack:
            with report_spark_failures():
                _open(body, run, stack, cluster, session)
                body.resume(run)
            is_begun = True
            with _recorded(body, run), report_spark_failures():
                body.measure(run)
            opened = stack.pop_all()
    except BaseException as error:  # noqa: BLE001 - concludes the run, then raises again
        if run.recorded is not None and error is not run.ended_by:
            _warn_after_end(order.reporter, error)
        ended_by = run.ended_by or error
        if is_begun:
            body.fail(run, ended_by)
            try:
                body.conclude(run, run.recorded or body.outcome(ended_by))
            except RedlineError as second:
                warn(order.reporter, str(second))
        raise ended_by from ended_by.__cause__
    outcome = run.recorded or body.outcome(None)
    with _closing_meanwhile(run, opened) if run.contexts else opened:
        return finish(outcome, order.reporter, partial(body.conclude, run, outcome))


@contextmanager
def _closing_meanwhile(run: RunState, opened: ExitStack) -> Iterator[None]:
    """Compact the tables and close the run's resources while its files are written.

    The outcome is recorded already, so no failure here changes it. An interrupt cancels the
    compaction; a second interrupt ends the wait.
    """
    spark, tables = run.context.session.spark, run.context.tables
    pool = ThreadPoolExecutor(1, thread_name_prefix="redline-close")
    compacted = pool.submit(run_interruptibly, spark, COMPACTION, tables.compact)
    closed = pool.submit(opened.close)
    pool.shutdown(wait=False)
    try:
        yield
    finally:
        try:
            wait([compacted])
        except KeyboardInterrupt:
            cancel_group(spark, COMPACTION)
            warn(run.order.reporter, "the tables are not compacted; the next run compacts them")
        for each in (compacted, closed):
            try:
                each.result()
            except Exception as error:  # noqa: BLE001 - the outcome is recorded already
                _warn_after_end(run.order.reporter, error)


def _warn_after_end(reporter: Reporter, error: BaseException) -> None:
    warn(reporter, f"cleanup after the run failed: {str(error) or type(error).__name__}")


def new_run_id(at_s: float) -> str:
    """A new, unique run id that sorts by time."""
    at = datetime.fromtimestamp(at_s, tz=timezone.utc)
    return f"{at:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def _open(
    body: Body,
    run: RunState,
    stack: ExitStack,
    cluster: OpenCluster | None,
    session: Session | None,
) -> None:
    order = run.order
    locks = RunLocks(run.driver) if order.locks else None
    for name, config in body.configurations.items():
        first = run.context if run.contexts else None
        run.contexts[name] = ContextFactory(
            config,
            order,
            run_id=f"{order.run_id}-{name}" if name else order.run_id,
            reporter=body.reporter_of(name, order.reporter),
            session=first.session if first else session,
            cluster=first.cluster if first and body.shares_brokers else cluster,
            locks=locks,
            history=TrialHistory(first.history.numbers) if first else TrialHistory(),
        ).open(stack)


@contextmanager
def _recorded(body: Body, run: RunState) -> Iterator[None]:
    """Append a row for the start of the run, and one with the outcome at every kind of end.

    The recorded outcome is final: the run's files state the same.
    """
    _append_rows(body, run, "started")
    try:
        yield
    except BaseException as error:
        run.ended_by, run.recorded = error, body.outcome(error)
        if isinstance(error, RedlineError):
            _watch_others_after(run)
        try:
            with report_spark_failures():
                _uninterrupted(partial(_append_rows, body, run, "finished", run.recorded))
        except RedlineError as second:
            warn(run.order.reporter, f"the tables have no row for the end of this run: {second}")
        raise
    _watch_others_after(run)
    outcome = body.outcome(None)
    _uninterrupted(partial(_append_rows, body, run, "finished", outcome))
    run.recorded = outcome


def _watch_others_after(run: RunState) -> None:
    """Keep what the canaries see for some seconds after the last load; an interrupt ends that."""
    with suppress(KeyboardInterrupt):
        for context in run.contexts.values():
            canaries, loaded_until_s = context.canaries, context.guards.loaded_until_s
            if canaries is not None and loaded_until_s is not None:
                run.canaries_after += canaries.windows_after(loaded_until_s)


def _uninterrupted(action: Callable[[], None]) -> None:
    """Complete an action despite an interrupt; a second interrupt ends the wait for it."""
    pool = ThreadPoolExecutor(1, thread_name_prefix="redline-end")
    done = pool.submit(action)
    pool.shutdown(wait=False)
    try:
        done.result()
    except KeyboardInterrupt:
        done.result()


def _append_rows(body: Body, run: RunState, event: str, outcome: RunOutcome | None = None) -> None:
    for name, config in body.configurations.items():
        context = run.contexts[name]
        # The row is durable before the first trial, as each trial waits for all earlier rows.
        context.tables.append_run(
            RunRow(
                run_id=context.run_id,
                event=event,
                at_s=time.time(),
                cluster=config.cluster.name,
                workload=config.workload.name,
                goal=config.goal_names,
                brokers=context.brokers,
                status=outcome.status if outcome else "running",
                exit_code=outcome.exit_code if outcome else None,
                error=outcome.error if outcome else None,
                config=config_text(config),
                environment=context.environment,
                caveat=caveat_of(config, context.all_caveats),
                sweep_case=context.sweep_case,
                measurement=body.measurement,
            ),
            is_new=outcome is None and not run.order.resumes,
        )
    if outcome is not None:
        for context in run.contexts.values():
            context.tables.settle()


class _RunLog(logging.FileHandler):
    """The log of a run, on any file system that takes whole files."""

    def _open(self) -> TextIOWrapper:
        return TextIOWrapper(open_to_append(Path(self.baseFilename)), self.encoding)


@contextmanager
def _logged_to(path: Path) -> Iterator[None]:
    """Log the warnings of libraries to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = _RunLog(path, delay=True, encoding="utf-8")
    handler.setLevel(logging.WARNING)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.close()

"""The life cycle of a run: it is opened, recorded, measured and concluded in the same way by every
job.

Each job provides a `Body`, which measures and concludes. A run that fails or is interrupted is
recorded and concluded, too.
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
"""Name of the group of Spark jobs that merge the tables' small files."""


@dataclass
class RunState:
    """The state of a run.

    Attributes:
        order: the settings of the run.
        contexts: name of a side → the open context of the side. In a run without sides, the map has
            one context, and the name is empty. The map is empty before the cluster is open.
        started_s: the start of the run [s since the epoch].
        recorded: the outcome that the tables contain; None before the end of the run.
        ended_by: the error that ended the run early; None without an error.
        canaries_after: the canaries' readings of each broker after the last load.
    """

    order: RunOrder
    contexts: dict[str, RunContext] = field(default_factory=dict)
    started_s: float = field(default_factory=time.time)
    recorded: RunOutcome | None = None
    ended_by: BaseException | None = None
    canaries_after: tuple[CanaryWindow, ...] = ()

    @property
    def context(self) -> RunContext:
        """The context of the run; in a comparison, the context of the first side."""
        return next(iter(self.contexts.values()))

    @property
    def brokers(self) -> int:
        """The number of brokers; 0 before the cluster is open."""
        return self.context.brokers if self.contexts else 0

    @property
    def environment(self) -> Mapping[str, str]:
        """The facts for a comparison with another run; empty before the cluster is open."""
        return self.context.environment if self.contexts else {}

    @property
    def owner_bounds(self) -> dict[str, dict[str, Any]]:
        """Topic that contains the bounds of a cluster's owner → these bounds. An example of such a
        topic is `redline-owner`. The map contains the topics of all clusters of the run.
        """
        found = (each.guards.owner_bounds for each in self.contexts.values())
        return {topic: bounds.given for each in found for topic, bounds in each.items()}

    def caveat(self, config: Configuration) -> str:
        """A sentence about what the cluster and its metrics cannot show."""
        return caveat_of(config, self.context.all_caveats if self.contexts else ())

    @property
    def driver(self) -> str:
        """The name of this driver. Other drivers that wait for the run or for the cluster show this
        name in their messages.
        """
        return holder_text(self.order.run_id, self.started_s)

    @property
    def times(self) -> tuple[str, str]:
        """The start of the run and the present time, as ISO 8601 in UTC."""
        return iso_utc(self.started_s), iso_utc(time.time())


class Body(ABC):
    """The part of a run that differs between jobs.

    Attributes:
        config: the configuration of a run that loads one cluster; a comparison of two sides has two
            configurations instead.
        measurement: the name of the question that the run answers; None if it answers several
            questions.
    """

    config: Configuration
    measurement: str | None = None

    @property
    def configurations(self) -> Mapping[str, Configuration]:
        """Name of each side of a comparison → the side's configuration. A run that is not a
        comparison has one configuration, with an empty name.

        A run without configurations opens no cluster, and has no rows in the tables.
        """
        return {"": self.config}

    @property
    def loaded(self) -> Sequence[Configuration]:
        """The configurations of all clusters that the run loads."""
        return tuple(self.configurations.values())

    @abstractmethod
    def plan(self, out: Path) -> Plan:
        """The plan of the run, which is shown before any load."""

    @property
    def shares_brokers(self) -> bool:
        """Whether all sides load the same brokers."""
        return False

    def reporter_of(self, name: str, reporter: Reporter) -> Reporter:
        """The reporter of one side, which passes events to the run's reporter."""
        return reporter

    def has_results(self, folder: Path) -> bool:
        """Whether a folder may contain results of an earlier part of a resumed run."""
        return True

    def resume(self, run: RunState) -> None:
        """Load the results of an earlier part of the run; called after the cluster is opened and
        before any load.
        """
        return

    @abstractmethod
    def measure(self, run: RunState) -> None:
        """Measure; after an error or an interrupt, the body still has all earlier results."""

    def evaluate(self, run: RunState, error: BaseException | None) -> None:
        """Evaluate the results; after an error, evaluate the partial results, before `conclude` is
        called.
        """
        return

    def outcome(self, error: BaseException | None) -> RunOutcome:
        """The outcome of a run that ended with this error; None stands for the end without an
        error.
        """
        return outcome_of(error)

    @abstractmethod
    def conclude(self, run: RunState, outcome: RunOutcome) -> None:
        """Write the run's files and report its results, which are partial after an error.

        Raises:
            ConfigError: a file could not be written; all other steps are done.
        """


def execute(
    body: Body, order: RunOrder, cluster: OpenCluster | None = None, session: Session | None = None
) -> int:
    """Execute a run, and return its exit code.

    Args:
        body: the job's part of the run.
        order: the settings of the run.
        cluster: an open cluster, which stays open after the run; None to open the cluster of the
            body's configuration.
        session: an open session, which stays open after the run; None to open a session.

    Raises:
        TryLaterError: another process executes this run, or another run has the cluster's lock.
        ConfigError: the run succeeded, but one of its files could not be written.
        NoConclusionError, RegressionError: the run ended without a conclusion, or found a
            regression.
        RedlineError: the cluster, the session or the tables cannot be opened.
        KeyboardInterrupt: the run was interrupted.
    """
    run = RunState(order)
    with run_lock(order.folder, run.driver) as has_lock, _logged_to(order.folder / "run.log"):
        if not (has_lock or order.locks):
            text = "this file system has no locks, so a second driver of the run is not detected"
            warn(order.reporter, f"{order.folder}: {text}; start the run only once")
        return _execute(body, run, cluster, session)


def _execute(
    body: Body, run: RunState, cluster: OpenCluster | None, session: Session | None
) -> int:
    order = run.order
    # The files of an earlier part of the run stay unchanged until this part continues the run.
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
    except BaseException as error:  # noqa: BLE001 - raised again after the run is concluded
        if run.recorded is not None and error is not run.ended_by:
            _warn_after_end(order.reporter, error)
        ended_by = run.ended_by or error
        if is_begun:
            body.evaluate(run, ended_by)
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
    """Compact the tables and close the run's resources while the block writes the run's files.

    The outcome of the run is already recorded, so a failed cleanup does not change the outcome. An
    interrupt cancels the compaction of the tables; a second interrupt ends the wait for the
    cleanup.
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
    """Append a row to the table `runs` at the start of the run, and a row with the outcome at its
    end.

    The recorded outcome is final: the run's files contain the same outcome.
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
    """Wait some seconds after the last load, and keep the canaries' readings; an interrupt ends the
    wait.
    """
    with suppress(KeyboardInterrupt):
        for context in run.contexts.values():
            canaries, loaded_until_s = context.canaries, context.guards.loaded_until_s
            if canaries is not None and loaded_until_s is not None:
                run.canaries_after += canaries.windows_after(loaded_until_s)


def _uninterrupted(action: Callable[[], None]) -> None:
    """Complete an action even after an interrupt; after a second interrupt, the run does not wait
    for the end of the action.
    """
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
        # The row is durable before the first trial, because each trial waits for all earlier rows.
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
    """The log file of a run. The log also works on a file system that cannot append to files."""

    def _open(self) -> TextIOWrapper:
        return TextIOWrapper(open_to_append(Path(self.baseFilename)), self.encoding)


@contextmanager
def _logged_to(path: Path) -> Iterator[None]:
    """Log warnings to a file while the block lasts."""
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

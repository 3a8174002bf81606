"""The one life cycle of a run: open, record, do the job, conclude, however it ends.

A job hands in a `Body`, which measures and says what came of it; everything else is the same
for all of them.
"""

from __future__ import annotations

import logging
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

from jobs.cluster.lock import RunLocks, holder_words
from jobs.cluster.opening import OpenCluster
from jobs.config import Configuration
from jobs.console.events import Plan, Reporter, RunStarted, warn
from jobs.runs.context_factory import ContextFactory
from jobs.runs.estimate import caveat_of
from jobs.runs.outcome import RunOutcome, finish, outcome_of
from jobs.runs.resumption import config_text
from jobs.runs.run_lock import run_lock
from jobs.spark.failures import spark_told
from jobs.spark.session import cancel_group, run_interruptibly
from jobs.trials.context import RunContext, Session
from jobs.trials.history import TrialNumbering
from metrics.common.errors import RedlineError
from metrics.tables.membership import Membership
from metrics.tables.schema import RunRow
from metrics.units import iso_utc

COMPACTION = "redline-compact"
"""Names the Spark jobs that merge the tables' small files."""


@dataclass(frozen=True)
class RunOrder:
    """What a command asks of any run.

    Attributes:
        reporter: is told how it goes.
        out: the run's own folder is made in here.
        tables: path or catalog name of the Delta tables.
        run_id: names the run in tables and topics, see `new_run_id`.
        slots: tasks that share the load; None for as many as Spark can run at once.
        resumes: True when `run_id` names a run that may have been begun before.
        locks: whether the clusters' locks are taken, see `jobs.cluster.lock`.
        json_file: where the answer is written besides its place in `folder`; None for nowhere.
        member: which case of a sweep it measures; nothing for any other run.
    """

    reporter: Reporter
    out: Path
    tables: str
    run_id: str
    slots: int | None = None
    resumes: bool = False
    locks: bool = True
    json_file: Path | None = None
    member: Membership = field(default_factory=Membership)

    @property
    def folder(self) -> Path:
        """Where the run leaves its files."""
        return self.out / self.run_id


@dataclass
class RunState:
    """A run on its way.

    Attributes:
        order: what was asked for.
        contexts: what is open, by the name of each side; one without a name where there are
            no sides, and none before the opening.
        started_s: when it began [s since the epoch].
        recorded: how it ended, as the tables have it; None before the end.
        ended_by: what ended it before its job was done; None where nothing did.
    """

    order: RunOrder
    contexts: dict[str, RunContext] = field(default_factory=dict)
    started_s: float = field(default_factory=time.time)
    recorded: RunOutcome | None = None
    ended_by: BaseException | None = None

    @property
    def context(self) -> RunContext:
        """What is open of a run without sides, or of the first side."""
        return next(iter(self.contexts.values()))

    @property
    def brokers(self) -> int:
        """How many brokers it has; 0 before the opening."""
        return self.context.brokers if self.contexts else 0

    @property
    def environment(self) -> dict[str, str]:
        """What to compare two runs by; empty before the opening."""
        return self.context.environment if self.contexts else {}

    def caveat(self, config: Configuration) -> str:
        """What a reader of the figures must know about the cluster and its metrics."""
        return caveat_of(config, self.context.caveats if self.contexts else ())

    @property
    def driver(self) -> str:
        """Who drives the run, for others who would."""
        return holder_words(self.order.run_id, self.started_s)

    @property
    def times(self) -> tuple[str, str]:
        """When it began, and now; ISO 8601, UTC."""
        return iso_utc(self.started_s), iso_utc(time.time())


class Body(ABC):
    """What one job does in its run."""

    @property
    @abstractmethod
    def configurations(self) -> Mapping[str, Configuration]:
        """Of each side by its name; of a run without sides one, whose name is empty."""

    @abstractmethod
    def plan(self, out: Path) -> Plan:
        """What will be done, before any load."""

    @property
    def shares_brokers(self) -> bool:
        """Whether all sides load the same brokers, which are opened once."""
        return False

    def reporter_of(self, name: str, reporter: Reporter) -> Reporter:
        """Who is told what happens on one side."""
        return reporter

    def has_results(self, folder: Path) -> bool:
        """Whether an earlier part of a run that is resumed may have left results here."""
        return True

    def resume(self, run: RunState) -> None:
        """Take over what was made before; everything is open, and nothing is loaded yet."""
        return

    @abstractmethod
    def measure(self, run: RunState) -> None:
        """Do the job; what was measured before an error or an interrupt stays in the body."""

    def fail(self, run: RunState, error: BaseException) -> None:
        """Make what can be made of a run that an error ended, before it is concluded."""
        return

    def outcome(self, error: BaseException | None) -> RunOutcome:
        """How a run ended that raised this, or nothing."""
        return outcome_of(error)

    @abstractmethod
    def conclude(self, run: RunState, outcome: RunOutcome) -> None:
        """Leave the run's files and tell the reader; after an error what is known until then.

        Raises:
            ConfigError: a file could not be written; all else is done.
        """


def execute(
    body: Body,
    order: RunOrder,
    cluster: OpenCluster | None = None,
    session: Session | None = None,
) -> int:
    """Run a body to its end; the exit code of a run that nothing stopped.

    Args:
        cluster: that is open already and stays so; None to open the body's own.
        session: likewise.

    Raises:
        TryLaterError: another process drives this run, or another run has the cluster's lock.
        ConfigError: a file of a run that ended well could not be written; all others are.
        NoConclusionError, RegressionError: as the body's outcome says.
        RedlineError: as opening the cluster, the session or the tables raises.
        KeyboardInterrupt: it was interrupted.
    """
    run = RunState(order)
    with run_lock(order.folder, run.driver) as is_told, _logged_to(order.folder / "run.log"):
        if not (is_told or order.locks):
            text = "a second driver of this run would not be seen: its folder's disk has no locks"
            warn(order.reporter, text)
        return _execute(body, run, cluster, session)


def _execute(
    body: Body, run: RunState, cluster: OpenCluster | None, session: Session | None
) -> int:
    order = run.order
    # What an earlier part of the run left stays as it is until this one goes on with it.
    is_begun = not (order.resumes and body.has_results(order.folder))
    order.reporter.report(RunStarted(order.run_id, body.plan(order.folder)))
    try:
        with ExitStack() as stack:
            with spark_told():
                _open(body, run, stack, cluster, session)
                body.resume(run)
            is_begun = True
            with _recorded(body, run), spark_told():
                body.measure(run)
            ended = stack.pop_all()
    except BaseException as error:  # noqa: BLE001 - a run that is over stays so
        if run.recorded is not None and error is not run.ended_by:
            _tell_untidy(order.reporter, error)
        ended_by = run.ended_by or error
        if is_begun:
            body.fail(run, ended_by)
            _conclude_failed(body, run, ended_by)
        raise ended_by from ended_by.__cause__
    outcome = run.recorded or body.outcome(None)
    with _closing_meanwhile(run, ended):
        return finish(outcome, order.reporter, partial(body.conclude, run, outcome))


@contextmanager
def _closing_meanwhile(run: RunState, ended: ExitStack) -> Iterator[None]:
    """Compact the tables and close what the run had opened, while its files are written.

    The run is over and recorded, so nothing that breaks here changes how it ended. An interrupt
    cuts the compaction short; a second one ends the wait.
    """
    spark, tables = run.context.session.spark, run.context.tables
    pool = ThreadPoolExecutor(1, thread_name_prefix="redline-close")
    compacted = pool.submit(run_interruptibly, spark, COMPACTION, tables.compact)
    closed = pool.submit(ended.close)
    pool.shutdown(wait=False)
    try:
        yield
    finally:
        try:
            wait([compacted])
        except KeyboardInterrupt:
            cancel_group(spark, COMPACTION)
            warn(run.order.reporter, "the tables are not compacted, which the next run will do")
        for each in (compacted, closed):
            _require_tidy(run.order.reporter, each)


def _require_tidy(reporter: Reporter, done: Future[None]) -> None:
    """Wait for this, and tell what it raised."""
    try:
        done.result()
    except Exception as error:  # noqa: BLE001 - the run has its result
        _tell_untidy(reporter, error)


def _tell_untidy(reporter: Reporter, error: BaseException) -> None:
    warn(reporter, f"after the end of the run: {str(error) or type(error).__name__}")


def _conclude_failed(body: Body, run: RunState, error: BaseException) -> None:
    """Conclude a run that an error ended, which goes on whatever comes in between."""
    try:
        body.conclude(run, run.recorded or body.outcome(error))
    except RedlineError as second:
        warn(run.order.reporter, str(second))


def new_run_id(at_s: float) -> str:
    """A name that sorts by time and that no other run has."""
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
            body.reporter_of(name, order.reporter),
            f"{order.run_id}-{name}" if name else order.run_id,
            order.folder,
            order.tables,
            order.slots,
            order.resumes,
            first.session if first else session,
            first.cluster if first and body.shares_brokers else cluster,
            locks,
            order.member,
            first.history.numbering if first else TrialNumbering(),
        ).open(stack)


@contextmanager
def _recorded(body: Body, run: RunState) -> Iterator[None]:
    """Append that the run started, and at its end, whatever it is, how it ended.

    What the tables have is what the run's files say, too: nothing that happens later changes it.
    """
    _append_rows(body, run, "started")
    try:
        yield
    except BaseException as error:
        run.ended_by, run.recorded = error, body.outcome(error)
        try:
            with spark_told():
                _undisturbed(partial(_append_rows, body, run, "finished", run.recorded))
        except RedlineError as second:
            warn(run.order.reporter, f"the run's end is not recorded: {second}")
        raise
    outcome = body.outcome(None)
    _undisturbed(partial(_append_rows, body, run, "finished", outcome))
    run.recorded = outcome


def _undisturbed(action: Callable[[], None]) -> None:
    """Do what an interrupt must not leave half done; a second one ends the wait for it."""
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
        # Before the first trial its start is durable, as each trial waits for what came before it.
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
                caveat=caveat_of(config, context.caveats),
                member=context.member,
            ),
            is_new=outcome is None and not run.order.resumes,
        )
    if outcome is not None:
        for context in run.contexts.values():
            context.tables.settle()


@contextmanager
def _logged_to(path: Path) -> Iterator[None]:
    """Keep the warnings of libraries in a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(path, delay=True, encoding="utf-8")
    handler.setLevel(logging.WARNING)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.close()

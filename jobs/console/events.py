"""The events of a run, and the protocol of reporters, which show events.

Jobs create events, and `jobs.console.printing` prints them. No other module prints.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from metrics.reporting.summary import RunSummary
    from metrics.tables.boundary import Boundary
    from metrics.traffic.pattern import TrafficPattern
    from metrics.trial.trial import Trial
    from metrics.windows.broker import BrokerWindow


@dataclass(frozen=True)
class Plan:
    """The plan of a run, made before the run offers any load.

    Attributes:
        cluster, workload, goal: names of the configuration files.
        brokers: number of brokers; None while the number is unknown.
        message_bytes: the message sizes [B], in the order in which the run uses them.
        producer: the traffic of one producer as text, for example `1 MB/s, acks=1, linger 10 ms`.
        resolution: width of the bracket at which a search ends [ratio]; None without a search.
        trial_s: duration of one trial with all its phases [s].
        trials_estimated: estimated total number of trials, over all message sizes.
        duration_s: estimated duration of all trials [s].
        starting_s: estimated time [s] that the run needs in addition to the trials, for example to
            start brokers and Spark, and to warm up the brokers.
        write_bytes_max: upper bound of the written payload with all replicas [B]; None if unknown.
        peak_mb_per_s: estimate of the highest load that the run offers [MB/s]; None if unknown.
        disk_bytes_max: estimated upper bound of the data that the brokers store at the same time
            [B]; None if unknown.
        out: the folder of the results.
        notes: further sentences of the plan, for example about the cluster.
    """

    cluster: str
    workload: str
    goal: str
    brokers: int | None
    message_bytes: tuple[int, ...]
    producer: str
    resolution: float | None
    trial_s: float
    trials_estimated: int
    duration_s: float
    write_bytes_max: float | None = None
    out: Path | None = None
    notes: tuple[str, ...] = ()
    starting_s: float = 0.0
    peak_mb_per_s: float | None = None
    disk_bytes_max: float | None = None


@dataclass(frozen=True)
class PlanShown:
    """The plan of a dry run. This event is the last event of a dry run."""

    plan: Plan


@dataclass(frozen=True)
class RunStarted:
    """The run began. No load is offered yet."""

    run_id: str
    plan: Plan


@dataclass(frozen=True)
class PhaseStarted:
    """A phase between trials began, for example `starting Spark`.

    The phase ends at the next event that is neither a `Notice` nor a `PhaseProgress`.
    """

    text: str


@dataclass(frozen=True)
class PhaseProgress:
    """The current phase made progress. `detail` describes the progress in a few words."""

    detail: str


@dataclass(frozen=True)
class TrialStarted:
    """A trial began.

    Attributes:
        number: the trial's number in the run, from 1.
        pattern: the traffic pattern to offer.
        reason: why the run makes this trial.
        duration_s: expected duration of all phases [s]; None if unknown.
    """

    number: int
    pattern: TrafficPattern
    reason: str
    duration_s: float | None = None


@dataclass(frozen=True)
class TrialProgress:
    """The current trial made progress, for example in its stage `measuring`.

    Attributes:
        elapsed_s: time since the start of the trial [s].
        achieved_mb_per_s: acknowledged payload rate [MB/s] of the whole cluster since the start of
            the window.
        busiest: the broker whose request handlers are currently the least idle.
    """

    stage: str
    elapsed_s: float
    achieved_mb_per_s: float | None = None
    busiest: BrokerWindow | None = None


@dataclass(frozen=True)
class TrialFinished:
    """A trial was judged.

    Attributes:
        trial: the trial with its evidence and its verdict.
        duration_s: duration of the trial without the recovery [s].
        trials_left: estimated number of trials left in the run.
        side: the side of a comparison, A or B; empty in other runs.
    """

    trial: Trial
    duration_s: float
    trials_left: int
    side: str = ""

    @property
    def time_left_s(self) -> float:
        """Estimated time left in the run [s]."""
        return self.trials_left * self.duration_s

    @property
    def reason(self) -> str:
        """The first reason of the verdict; empty if the verdict has no reason."""
        text = next((reason.text for reason in self.trial.reasons), "")
        return f"{self.side}: {text}" if self.side else text


@dataclass(frozen=True)
class PointFinished:
    """The search at one message size ended. `goal` is empty if the run has only one goal."""

    boundary: Boundary
    goal: str = ""


@dataclass(frozen=True)
class RunFinished:
    """The run ended. `summary.status` states whether the run has a conclusion.

    `files` lists the written files and tables, as (kind, path or name of a table).
    """

    summary: RunSummary
    duration_s: float
    files: tuple[tuple[str, str], ...] = ()


class Level(str, Enum):
    """The severity of a notice."""

    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class Notice:
    """A message to the user. Warnings and errors go to the error stream."""

    level: Level
    text: str


@dataclass(frozen=True)
class Table:
    """A table for the user, for example the runs of a folder. Numeric columns are aligned right."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


Event = (
    PlanShown
    | RunStarted
    | PhaseStarted
    | PhaseProgress
    | TrialStarted
    | TrialProgress
    | TrialFinished
    | PointFinished
    | RunFinished
    | Notice
    | Table
)


class Reporter(Protocol):
    """Shows events. A reporter is a context manager that restores the terminal on every exit.

    Several threads may call `report` at the same time.
    """

    def report(self, event: Event) -> None:
        """Show one event. Implementations raise no error, whatever the event contains."""
        ...

    def confirm(self, question: str) -> bool:
        """Ask the user a yes/no question; False without a terminal."""
        ...

    def __enter__(self) -> Reporter:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        return None


class RecordingReporter(Reporter):
    """Records events and shows nothing, for tests and for silent callers."""

    def __init__(self, answer: bool = False) -> None:
        self.events: list[Event] = []
        self._answer = answer

    def report(self, event: Event) -> None:
        """Record the event."""
        self.events.append(event)

    def confirm(self, question: str) -> bool:
        """Return the answer that the constructor received."""
        return self._answer


def note(reporter: Reporter, text: str) -> None:
    """Report a note."""
    reporter.report(Notice(Level.NOTE, text))


def warn(reporter: Reporter, text: str) -> None:
    """Report a warning."""
    reporter.report(Notice(Level.WARNING, text))

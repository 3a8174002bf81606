"""The events of a run, and the protocol of the reporters that show them.

Jobs create events, and `jobs.console.printing` shows them. No other module prints.
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
    """The plan of a run, made before any load.

    Attributes:
        cluster, workload, goal: names of the configuration files.
        brokers: number of brokers, or None while unknown.
        message_bytes: the sizes to search, in order [B].
        producer: the pattern of one producer as text, for example `1 MB/s, acks=1, linger 10 ms`.
        resolution: width of a bracket that ends a search [ratio], or None without a search.
        trial_s: duration of one trial, all phases [s].
        trials_estimated: estimated number of trials over all sizes.
        duration_s: estimated duration of all trials [s].
        starting_s: estimated time outside the trials: the start of brokers and Spark, tables, the
            warm-up of the brokers and the end [s].
        write_bytes_max: upper bound of the payload that is written, with all replicas [B], or
            None.
        peak_mb_per_s: the heaviest load that is likely to be offered [MB/s], or None.
        disk_bytes_max: upper bound of what the brokers are likely to hold at a time [B], or None.
        out: the folder of the results.
        notes: further sentences, for example about the cluster.
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
    """A dry run showed its plan; no other event follows."""

    plan: Plan


@dataclass(frozen=True)
class RunStarted:
    """The run began; nothing is loaded yet."""

    run_id: str
    plan: Plan


@dataclass(frozen=True)
class PhaseStarted:
    """A phase between trials began, for example `starting Spark`.

    It ends at the next event other than a `Notice` or a `PhaseProgress`.
    """

    text: str


@dataclass(frozen=True)
class PhaseProgress:
    """The running phase made progress; `detail` describes it in a few words."""

    detail: str


@dataclass(frozen=True)
class TrialStarted:
    """A trial began.

    Attributes:
        number: the trial's number in the run, from 1.
        pattern: the traffic pattern to offer.
        reason: why the search chose this trial.
        duration_s: expected duration, all phases [s], or None when unknown.
    """

    number: int
    pattern: TrafficPattern
    reason: str
    duration_s: float | None = None


@dataclass(frozen=True)
class TrialProgress:
    """The running trial made progress, for example in its stage `measuring`.

    Attributes:
        elapsed_s: time since the trial's start, all stages [s].
        achieved_mb_per_s: payload acknowledged in the window until now, whole cluster [MB/s].
        busiest: the broker whose request handlers have the least idle time now.
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
        duration_s: its duration without the recovery after it [s].
        trials_left: estimated number of trials left in the run.
        side: the side of a comparison that it belongs to; empty in other runs.
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
        """The first reason of the verdict; empty when there is none."""
        text = next((reason.text for reason in self.trial.reasons), "")
        return f"{self.side}: {text}" if self.side else text


@dataclass(frozen=True)
class PointFinished:
    """The search at one message size ended; `goal` is set where the run has several."""

    boundary: Boundary
    goal: str = ""


@dataclass(frozen=True)
class RunFinished:
    """The run ended; `summary.status` states whether with a conclusion.

    `files` lists what it wrote, as (kind, path or name of a table).
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
    """A message to the user; warnings and errors go to the error stream."""

    level: Level
    text: str


@dataclass(frozen=True)
class Table:
    """A table for the user, for example the runs of a folder. Numeric columns align right."""

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
    """Shows events. It is a context manager, which restores the terminal on every exit.

    Several threads may call `report`.
    """

    def report(self, event: Event) -> None:
        """Show one event; no content of an event makes it raise."""
        ...

    def confirm(self, question: str) -> bool:
        """Ask the user; False without a terminal to ask on."""
        ...

    def __enter__(self) -> Reporter:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        return None


class RecordingReporter(Reporter):
    """Records events instead of showing them, for tests and silent callers."""

    def __init__(self, answer: bool = False) -> None:
        self.events: list[Event] = []
        self._answer = answer

    def report(self, event: Event) -> None:
        """Record the event."""
        self.events.append(event)

    def confirm(self, question: str) -> bool:
        """Return the answer given to the constructor."""
        return self._answer


def note(reporter: Reporter, text: str) -> None:
    """Report a note."""
    reporter.report(Notice(Level.NOTE, text))


def warn(reporter: Reporter, text: str) -> None:
    """Report a warning."""
    reporter.report(Notice(Level.WARNING, text))

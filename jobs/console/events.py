"""What a run tells its reader while it goes on: events, and the protocol that takes them.

The loop that finds a limit makes events; `jobs.console.printing` shows them. Nothing else prints.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from metrics.reporting.summary import RunSummary
    from metrics.tables.boundary import Boundary
    from metrics.traffic.pattern import TrafficPattern
    from metrics.trial.trial import Trial
    from metrics.windows.broker import BrokerWindow


@dataclass(frozen=True)
class Plan:
    """What a run will do, known before any load.

    Attributes:
        cluster, workload, goal: names of the configuration.
        brokers: number of brokers, or None while unknown.
        message_bytes: the sizes to search, in order [B].
        producer: one producer's pattern in words, for example `1 MB/s, acks=1, linger 10 ms`.
        resolution: width of a bracket that ends a search, or None without a search [ratio].
        trial_s: one trial, all phases [s].
        trials_estimated: over all sizes.
        duration_s: estimate for all trials [s].
        starting_s: estimate for what stands beside them: brokers, Spark, tables, the warm-up of
            the brokers and the end [s].
        write_bytes_max: at most so many bytes of payload will be written, with all replicas [B],
            or None.
        peak_mb_per_s: the heaviest load that is likely to be offered [MB/s], or None.
        disk_bytes_max: what of it the brokers are likely to hold at a time, at most [B], or None.
        out: the folder of the results.
        notes: further sentences, for example what the cluster is and is not.
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
    """A dry run: the plan, and nothing after it."""

    plan: Plan


@dataclass(frozen=True)
class RunStarted:
    """The run begins; nothing is loaded yet."""

    run_id: str
    plan: Plan


@dataclass(frozen=True)
class PhaseStarted:
    """Work that takes a while and is no trial, for example `starting the testbed`.

    It ends with the next event other than a `Notice` or a `PhaseProgress`.
    """

    text: str


@dataclass(frozen=True)
class PhaseProgress:
    """How far the running phase is, in a few words."""

    detail: str


@dataclass(frozen=True)
class TrialStarted:
    """A trial begins.

    Attributes:
        number: counts all trials of the run from 1.
        pattern: what will be offered.
        reason: why the search makes it.
        duration_s: what it will take, all phases, or None when unknown [s].
    """

    number: int
    pattern: TrafficPattern
    reason: str
    duration_s: float | None = None


@dataclass(frozen=True)
class TrialProgress:
    """Where the running trial stands, as far as known; for example stage `measuring`.

    Attributes:
        elapsed_s: since the trial's start, all stages [s].
        achieved_mb_per_s: acknowledged in the window so far, whole cluster [MB/s].
        busiest: the broker whose request handlers have the least idle time just now.
    """

    stage: str
    elapsed_s: float
    achieved_mb_per_s: float | None = None
    busiest: BrokerWindow | None = None


@dataclass(frozen=True)
class TrialFinished:
    """A trial was judged.

    Attributes:
        trial: with all that led to its verdict.
        duration_s: without the rest after it [s].
        trials_left: estimate for the whole run.
        side: whose it was, where two are compared; else empty.
    """

    trial: Trial
    duration_s: float
    trials_left: int
    side: str = ""

    @property
    def time_left_s(self) -> float:
        """Estimate for the whole run [s]."""
        return self.trials_left * self.duration_s

    @property
    def reason(self) -> str:
        """The first reason of the verdict; empty when there is none."""
        text = next((reason.text for reason in self.trial.reasons), "")
        return f"{self.side}: {text}" if self.side else text


@dataclass(frozen=True)
class PointFinished:
    """The search at one message size ended; `goal` is named where there are several."""

    boundary: Boundary
    goal: str = ""


@dataclass(frozen=True)
class RunFinished:
    """The run ended, with or without a conclusion; `summary.status` says which.

    `files` are what it left: (what it is, path or name of a table).
    """

    summary: RunSummary
    duration_s: float
    files: tuple[tuple[str, str], ...] = ()


class Level(str, Enum):
    """How much a notice matters."""

    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class Notice:
    """A sentence for the user; warnings and errors go to the error stream."""

    level: Level
    text: str


@dataclass(frozen=True)
class Table:
    """Rows for the user, for example the state of a testbed. Numeric columns align right."""

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
    """Shows events. A context manager: leaving it restores the terminal, however it is left.

    `report` may be called from several threads.
    """

    def report(self, event: Event) -> None:
        """Show one event; never raises for what the event holds."""
        ...

    def confirm(self, question: str) -> bool:
        """The user's yes; False where there is nobody to ask."""
        ...

    def __enter__(self) -> Reporter: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


class RecordingReporter:
    """Keeps events instead of showing them, for tests and for callers that want silence."""

    def __init__(self, answer: bool = False) -> None:
        self.events: list[Event] = []
        self._answer = answer

    def report(self, event: Event) -> None:
        """Keep `event`."""
        self.events.append(event)

    def confirm(self, question: str) -> bool:
        """The answer that it was made with."""
        return self._answer

    def __enter__(self) -> RecordingReporter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        return None


def note(reporter: Reporter, text: str) -> None:
    """Report a note."""
    reporter.report(Notice(Level.NOTE, text))


def warn(reporter: Reporter, text: str) -> None:
    """Report a warning."""
    reporter.report(Notice(Level.WARNING, text))

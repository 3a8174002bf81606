"""The answer of a run as a file: summary.json, the contract with whoever reads it by program."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from metrics.reporting.held import HeldTrial
from metrics.trial.judgement import Reason
from metrics.windows.resource import Resource
from search.errors import ConfigError
from search.model import Bracket

SCHEMA_VERSION = 1
_DERIVED = ("mb_per_s_overloaded", "mb_per_s_per_broker_overloaded", "relative_width")


@dataclass(frozen=True)
class Boundary:
    """The limit at one message size: the bracket, its value, and what bound it.

    The value is the sustained side; it is the offered rate, of which the goal's share
    (99 % by default) was acknowledged. MB is 10⁶ bytes of payload.

    Attributes:
        bpm: bytes per message [B].
        np_sustained: the most producers that were sustained; 0 when none was.
        np_overloaded: the fewest above it that were too many; None when none was found.
        mps: messages per second at `np_sustained` [1/s].
        mb_per_s: payload at `np_sustained`, whole cluster [MB/s].
        mb_per_s_per_broker: `mb_per_s` over the number of brokers [MB/s].
        overload_reasons: what the trial at `np_overloaded` showed, `indicator: sentence`.
        limited_by: the resource that bound the brokers, or None when unknown.
        trials: trials spent on this size, invalid ones included.
        mps_overloaded: messages per second at `np_overloaded`, or None [1/s].
        gave_up: why the search ended without closing the bracket, or None.
        evidence: what `limited_by` rests on, with the use of the other resources.
        confidence: the search's probability that the limit lies inside the bracket, or
            None [ratio].
        notes: what a reader of the answer has to know, such as trials that were outvoted.
        goal: what counted as sustained, by the goal's name.
        axis: what was searched along; along any other axis than `np`, that is fixed.
        load_sustained, load_overloaded: the bracket on the axis, as np_sustained and
            np_overloaded are on the axis np.
    """

    bpm: int
    np_sustained: int
    np_overloaded: int | None
    mps: float
    mb_per_s: float
    mb_per_s_per_broker: float
    overload_reasons: tuple[str, ...]
    limited_by: str | None
    trials: int
    mps_overloaded: float | None = None
    gave_up: str | None = None
    evidence: str = ""
    confidence: float | None = None
    notes: tuple[str, ...] = ()
    goal: str = ""
    axis: str = "np"
    load_sustained: int | None = None
    load_overloaded: int | None = None

    @property
    def mb_per_s_overloaded(self) -> float | None:
        """Payload at the overloaded side, whole cluster [MB/s]."""
        if self.mps_overloaded is None:
            return None
        grown = self.load_overloaded if self.axis == "message_bytes" else None
        return self.mps_overloaded * (grown or self.bpm) / 1e6

    @property
    def mb_per_s_per_broker_overloaded(self) -> float | None:
        """Payload at `np_overloaded` per broker [MB/s]; None where it cannot be said."""
        upper = self.mb_per_s_overloaded
        if upper is None or self.mb_per_s <= 0:
            return None
        return upper * self.mb_per_s_per_broker / self.mb_per_s

    @property
    def relative_width(self) -> float | None:
        """1 - sustained/overloaded load [ratio]; None while there is no upper bound."""
        low, high = self.loads
        return None if high is None else Bracket(low, high).relative_width

    @property
    def loads(self) -> tuple[int, int | None]:
        """The bracket on the searched axis: highest sustained, lowest overloaded above it."""
        if self.axis == "np":
            return self.np_sustained, self.np_overloaded
        return self.load_sustained or 0, self.load_overloaded


def make_boundary(  # noqa: PLR0913 - one for each field, all by name
    bracket: Bracket,
    *,
    bpm: int,
    rate_records_per_s: float,
    brokers: int,
    trials: int,
    reasons: Sequence[Reason] = (),
    limited_by: Resource | None = None,
    gave_up: str | None = None,
    axis: str = "np",
    np: int = 0,
) -> Boundary:
    """The boundary of a bracket.

    Args:
        bpm: message size of the point; on the axis `message_bytes` the bracket's own
            sustained size takes its place [B].
        rate_records_per_s: what one producer offers [records/s]; on the axis `rate` the
            loads are the rates.
        axis: what the bracket is on.
        np: producers, on any other axis than `np`.
        reasons: of the trial at the overloaded side, the most telling first.
        gave_up: why the search ended early, or None when it closed the bracket.
    """
    low, over = bracket.sustained, bracket.overloaded

    def producers(load: int) -> int:
        return load if axis == "np" else np if load else 0

    def messages_per_s(load: int) -> float:
        return producers(load) * (float(load) if axis == "rate" else rate_records_per_s)

    mps = messages_per_s(low)
    if axis == "message_bytes" and low:
        bpm = low
    mb_per_s = mps * bpm / 1e6
    return Boundary(
        bpm=bpm,
        np_sustained=producers(low),
        np_overloaded=None if over is None else producers(over),
        mps=mps,
        mb_per_s=mb_per_s,
        mb_per_s_per_broker=mb_per_s / brokers,
        overload_reasons=tuple(f"{reason.indicator}: {reason.text}" for reason in reasons),
        limited_by=None if limited_by is None else limited_by.value,
        trials=trials,
        mps_overloaded=None if over is None else messages_per_s(over),
        gave_up=gave_up,
        axis=axis,
        load_sustained=low,
        load_overloaded=over,
    )


@dataclass(frozen=True)
class RunSummary:
    """What a run concluded.

    Attributes:
        run_id: names the run in the tables and its folder.
        started_at, finished_at: ISO 8601, UTC.
        cluster, workload, goal: names of the configuration files.
        boundaries: one per message size, in the order of the workload.
        brokers: number of brokers; 0 when unknown.
        status: `done`, `no conclusion`, `stopped by a guard`, `interrupted` or `failed`.
        exit_code: what the command returned.
        error: the sentence that the user was shown, or None.
        caveat: what a reader must know about the cluster (a testbed is not hardware).
        environment: what to compare two runs by, see `metrics.tables.environment`.
        replication_factor, consumer_groups: of the pattern that was offered; 0 replicas
            when unknown.
        trials: where fixed loads were held, each of their trials; empty after a search.
    """

    run_id: str
    started_at: str
    finished_at: str
    cluster: str
    workload: str
    goal: str
    boundaries: tuple[Boundary, ...]
    brokers: int = 0
    status: str = "done"
    exit_code: int = 0
    error: str | None = None
    caveat: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    replication_factor: int = 0
    consumer_groups: int = 0
    trials: tuple[HeldTrial, ...] = ()


def by_goal(summary: RunSummary) -> list[tuple[str, RunSummary]]:
    """A summary for each goal; the goal's name is empty where there is only one."""
    goals = list(dict.fromkeys(boundary.goal for boundary in summary.boundaries))
    if len(goals) < 2:
        return [("", summary)]
    return [
        (
            goal,
            replace(
                summary,
                goal=goal,
                boundaries=tuple(b for b in summary.boundaries if b.goal == goal),
            ),
        )
        for goal in goals
    ]


def write_summary(summary: RunSummary, path: Path) -> None:
    """Write `summary` as strict JSON: a reader sees the old file or the new one, never a half.

    Raises:
        ValueError: for a number that JSON has no word for (NaN, infinity); nothing is written.
    """
    document = asdict(summary) | {"schema_version": SCHEMA_VERSION}
    document["boundaries"] = [_boundary_document(boundary) for boundary in summary.boundaries]
    write_atomic(path, json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False) + "\n")


def load_summary(path: Path) -> RunSummary:
    """Read what `write_summary` wrote; fields that a newer version added are ignored.

    Raises:
        ConfigError: when the file is missing or is not a summary.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        boundaries = tuple(_boundary(entry) for entry in document["boundaries"])
        trials = tuple(_held(entry) for entry in document.get("trials", ()))
        lists = {"boundaries": boundaries, "trials": trials}
        return RunSummary(**(_known(RunSummary, document) | lists))
    except FileNotFoundError:
        raise ConfigError(
            f"{path} does not exist; expected the summary.json of a finished run, "
            "OUT/RUN_ID/summary.json"
        ) from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigError(
            f"{path} is not the summary of a run ({type(error).__name__}: {error}); "
            "expected OUT/RUN_ID/summary.json as written by redline"
        ) from error


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write `content` to `path` by way of a temporary file beside it and a rename."""
    data = content.encode("utf-8") if isinstance(content, str) else content
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _boundary_document(boundary: Boundary) -> dict[str, Any]:
    return asdict(boundary) | {name: getattr(boundary, name) for name in _DERIVED}


def _boundary(document: Mapping[str, Any]) -> Boundary:
    known = _known(Boundary, document)
    lists = {name: tuple(document.get(name, ())) for name in ("overload_reasons", "notes")}
    return Boundary(**(known | lists))


def _held(document: Mapping[str, Any]) -> HeldTrial:
    known = _known(HeldTrial, document)
    return HeldTrial(**(known | {"reasons": tuple(document.get("reasons", ()))}))


def _known(kind: type[Any], document: Mapping[str, Any]) -> dict[str, Any]:
    names = {field.name for field in fields(kind)}
    return {name: value for name, value in document.items() if name in names}

"""The trials of a run as a report lists them: figures, verdicts, and each broker's window."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from metrics.reporting.summary import Boundary

BROKERS_MAX = 12
"""Brokers whose windows a trial shows at most: those with the least idle handlers."""
WINDOWS_MAX = 1_000
"""Windows in a report; in a long run each trial shows fewer brokers, but one at least."""
REASONS_MAX = 8
"""Reasons of a verdict that are told in full: a hundred brokers can give as many."""

LIMIT, TOO_MUCH = "sustained side", "overloaded side"


@dataclass(frozen=True)
class GoalVerdict:
    """What one goal says of a trial: its verdict, its reasons as sentences, and what bound it."""

    goal: str
    verdict: str
    reasons: tuple[str, ...]
    limited_by: str
    attribution: str


@dataclass(frozen=True)
class UsedResource:
    """How used one resource of one broker was, see `metrics.windows.use.ResourceUse`."""

    broker_id: int
    resource: str
    utilization: float | None
    saturation: float | None
    saturation_unit: str
    errors: float | None
    errors_unit: str


@dataclass(frozen=True)
class TrialRow:
    """One trial.

    Attributes:
        bpm: message size of the boundary point that it was offered for [B].
        load, axis: where on the searched axis it lies.
        offered_mb_per_s, achieved_mb_per_s: payload over the measured window [MB/s].
        latency_p50_ms, latency_p99_ms: from the intended send time [ms].
        idle_lowest, idle_broker: the least idle request handlers, and where [ratio].
        isr_changed_share: of any broker, the most [ratio].
        verdicts: one for each goal that the run judges by.
        sides: where a bracket rests on it, `LIMIT` or `TOO_MUCH` with the goal.
        windows: of the brokers with the least idle handlers, as the table has them.
        brokers: how many were sampled.
        resources: the USE table.
        groups: the consumer groups' windows, as the table has them.
        window_s: length of the measured window [s].
        recovery_s: after an overload, until the brokers were at rest [s].
    """

    number: int
    bpm: int
    load: int
    axis: str
    offered_mb_per_s: float | None
    achieved_mb_per_s: float | None
    latency_p50_ms: float | None
    latency_p99_ms: float | None
    idle_lowest: float | None
    idle_broker: int | None
    isr_changed_share: float | None
    verdicts: tuple[GoalVerdict, ...]
    sides: tuple[tuple[str, str], ...]
    windows: tuple[Mapping[str, Any], ...]
    brokers: int
    resources: tuple[UsedResource, ...]
    groups: tuple[Mapping[str, Any], ...]
    window_s: float
    recovery_s: float | None

    @property
    def verdict(self) -> str:
        """The verdict of all goals, or of each where they differ."""
        return " / ".join(dict.fromkeys(each.verdict for each in self.verdicts))

    @property
    def reason(self) -> str:
        """The most telling reason of the first goal."""
        return next((text for each in self.verdicts for text in each.reasons), "")

    def judged(self, goal: str) -> GoalVerdict | None:
        """What a goal says of it."""
        return next((each for each in self.verdicts if each.goal == goal), None)


def trial_rows(
    rows: Iterable[Mapping[str, Any]], boundaries: Sequence[Boundary]
) -> tuple[TrialRow, ...]:
    """Rows of the table `trials` in their order, with what the boundaries rest on."""
    ordered = sorted(rows, key=lambda row: row["trial"])
    default = boundaries[0].goal if boundaries else ""
    judged = [_verdicts(row, default) for row in ordered]
    sides = _sides(ordered, judged, boundaries)
    shown = max(1, min(BROKERS_MAX, WINDOWS_MAX // max(1, len(ordered))))
    return tuple(
        _trial(row, verdicts, sides.get(row["trial"], ()), shown)
        for row, verdicts in zip(ordered, judged, strict=True)
    )


def _trial(
    row: Mapping[str, Any],
    verdicts: tuple[GoalVerdict, ...],
    sides: tuple[tuple[str, str], ...],
    shown: int,
) -> TrialRow:
    windows = sorted(row["broker_windows"] or (), key=_idle_or_one)
    known = [each for each in windows if each["handler_idle"] is not None]
    shares = [w["isr_changed_share"] for w in windows if w["isr_changed_share"] is not None]
    window_s = (row["window_end"] - row["window_start"]).total_seconds()
    return TrialRow(
        number=row["trial"],
        bpm=_size(row),
        load=_load(row),
        axis=row.get("axis") or "np",
        offered_mb_per_s=_rate(row["offered_bytes"], window_s),
        achieved_mb_per_s=_rate(row["acked_bytes"], window_s),
        latency_p50_ms=row["latency_p50_ms"],
        latency_p99_ms=row["latency_p99_ms"],
        idle_lowest=known[0]["handler_idle"] if known else None,
        idle_broker=known[0]["broker_id"] if known else None,
        isr_changed_share=max(shares, default=None),
        verdicts=verdicts,
        sides=sides,
        windows=tuple(sorted(windows[:shown], key=lambda each: each["broker_id"])),
        brokers=len(windows),
        resources=tuple(_resource(use) for use in row.get("resources") or ()) if sides else (),
        groups=tuple(row.get("groups") or ()),
        window_s=window_s,
        recovery_s=row.get("recovery_s"),
    )


def _sides(
    rows: Sequence[Mapping[str, Any]],
    judged: Sequence[Sequence[GoalVerdict]],
    boundaries: Sequence[Boundary],
) -> dict[int, tuple[tuple[str, str], ...]]:
    """Trial number → what of which goal's bracket rests on it; the last trial at a load counts."""
    found: dict[tuple[str, int, str], int] = {}
    for row, verdicts in zip(rows, judged, strict=True):
        for boundary in boundaries:
            if _size(row) != boundary.bpm and boundary.axis != "message_bytes":
                continue
            low, over = boundary.loads
            for load, verdict, side in ((low, "SUSTAINED", LIMIT), (over, "OVERLOADED", TOO_MUCH)):
                said = [v for v in verdicts if v.goal == boundary.goal and v.verdict == verdict]
                if _load(row) == load and said:
                    found[boundary.goal, boundary.bpm, side] = row["trial"]
    sides: dict[int, tuple[tuple[str, str], ...]] = {}
    for (goal, _, side), number in found.items():
        sides[number] = (*sides.get(number, ()), (side, goal))
    return sides


def _verdicts(row: Mapping[str, Any], default: str) -> tuple[GoalVerdict, ...]:
    """By goal; a row of an older version has one verdict and no goal with it."""
    by_goal = dict(row.get("verdicts") or {}) or {default: row}
    return tuple(
        GoalVerdict(
            goal=goal,
            verdict=said["verdict"],
            reasons=shortened([reason["text"] for reason in said["reasons"] or ()]),
            limited_by=said["limited_by"] or "",
            attribution=said["attribution"] or "",
        )
        for goal, said in by_goal.items()
    )


def shortened(reasons: Sequence[str]) -> tuple[str, ...]:
    """The first reasons, and how many more there are."""
    more = len(reasons) - REASONS_MAX
    return (*reasons[:REASONS_MAX], *([f"and {more} more"] if more > 0 else []))


def _resource(use: Mapping[str, Any]) -> UsedResource:
    return UsedResource(**{name: use[name] for name in UsedResource.__dataclass_fields__})


def _size(row: Mapping[str, Any]) -> int:
    return int(row.get("point_bpm") or row["bpm"])


def _load(row: Mapping[str, Any]) -> int:
    load = row.get("load")
    return int(row["np"] if load is None else load)


def _idle_or_one(window: Mapping[str, Any]) -> float:
    idle = window["handler_idle"]
    return 1.0 if idle is None else float(idle)


def _rate(size_bytes: int | None, window_s: float) -> float | None:
    return None if size_bytes is None or window_s <= 0 else size_bytes / window_s / 1e6

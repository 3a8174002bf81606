"""Today's traffic held against the limits of a run, or against thresholds alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from metrics.headroom.answer import Answer, answer_of, rows_with_run, rows_without_run
from metrics.headroom.limits import RunLimit
from metrics.headroom.today import Today
from metrics.headroom.traffic import disagreement, traffic_rows
from metrics.judging.thresholds import Indicators
from metrics.units import format_size

ASSUMES_RUN = (
    "today's traffic grows evenly, with the topics, message sizes, batches and consumers of this "
    "window, and each resource's use grows in proportion to it"
)
ASSUMES_THRESHOLDS = (
    "each resource's use grows in proportion to the traffic, and gives out between 62 % and 125 % "
    "of its threshold, as no run measured where"
)


def nearest_limit(today: Today, points: Sequence[RunLimit]) -> RunLimit:
    """The limit at the message size that is nearest to today's mean, as stored by the brokers."""
    taken = sum(each.bytes_in_per_s or 0.0 for each in today.whole.brokers)
    messages = sum(each.messages_in_per_s or 0.0 for each in today.whole.brokers)
    known = [each for each in points if each.traffic is not None]
    if not messages or not known:
        return points[0]

    def distance(point: RunLimit) -> float:
        stored = point.traffic.stored_bytes if point.traffic is not None else 1.0
        ratio = taken / messages / stored
        return max(ratio, 1.0 / ratio) if ratio > 0 else float("inf")

    return min(known, key=distance)


def hold_against_run(today: Today, points: Sequence[RunLimit], limits: Indicators) -> Answer | None:
    """How many times today's traffic fits into the limit of a run.

    None where no resource has a use that can be distinguished from no use.

    Args:
        points: the limits of the run, at least one.
        limits: the limits of the goal.
    """
    measured = nearest_limit(today, points)
    rows = list(rows_with_run(today, measured, limits))
    is_by_traffic = not any(row.counts and row.times is not None for row in rows)
    by_traffic, notes = traffic_rows(today, measured, points, counts=is_by_traffic)
    notes += _notes_on(measured, today)
    answer = answer_of([*rows, *by_traffic], is_estimate=False, assumption=ASSUMES_RUN, notes=notes)
    if answer is None or is_by_traffic:
        return answer
    other = disagreement(answer.times, by_traffic)
    return replace(answer, notes=(*answer.notes, other)) if other else answer


def hold_against_thresholds(today: Today, limits: Indicators) -> Answer | None:
    """How many times today's traffic fits until a threshold, with a wide interval."""
    return answer_of(
        list(rows_without_run(today, limits)),
        is_estimate=True,
        assumption=ASSUMES_THRESHOLDS,
        notes=(),
    )


def _notes_on(measured: RunLimit, today: Today) -> list[str]:
    notes = []
    if measured.is_doubtful:
        notes.append(
            f"the limit at {format_size(measured.message_bytes)} is doubtful: its interval is "
            "wider than the goal accepts; measure it again"
        )
    if measured.binding is None:
        named = "an unknown resource" if measured.limited_by is None else measured.limited_by.value
        notes.append(
            f"the run was limited by {named}, whose use does not grow with the traffic: the use "
            "of the request handlers at the limit stands for it"
        )
    unknown = [
        str(each.broker_id) for each in today.whole.brokers if each.broker_id not in measured.lines
    ]
    if unknown:
        notes.append(
            f"the run had no broker {', '.join(unknown)}: the mean of the other brokers stands "
            "for it"
        )
    return notes

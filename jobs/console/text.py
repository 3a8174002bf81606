"""Events as text: the lines and columns that both kinds of console show. Prints nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import StringIO

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from jobs.console.events import Plan, TrialFinished
from metrics.reporting.limit_answer import answer_of
from metrics.reporting.limit_words import doubtful_sizes
from metrics.reporting.summary import RunSummary
from metrics.tables.boundary import Boundary
from metrics.traffic.axes import axis_named
from metrics.traffic.pattern import TrafficPattern
from metrics.units import (
    UNKNOWN,
    format_counted,
    format_duration,
    format_mb_per_s,
    format_ratio,
    format_size,
    format_volume,
)
from metrics.windows.broker import BrokerWindow

TRIAL_HEADER = (
    ("#", "size", "", "offered", "achieved", "low idle", "ISR", "verdict", "left"),
    ("", "", "", "MB/s", "MB/s", "(broker)", "", "", "trials, time"),
)
_WIDTH_MAX = 10_000  # [columns], so that a table in a log is never wrapped
_TRIAL_WIDTHS = (3, 7, 9, 7, 8, 8, 5, -10, -15)  # negative: aligned left


def clean(text: str) -> str:
    """`text` on one line, without control characters (and so without ANSI codes)."""
    printable = "".join(char if char.isprintable() else " " for char in text)
    return " ".join(printable.split())


def sentences(text: str) -> list[str]:
    """The lines of a text, each passed through `clean`; at least one."""
    return [clean(line) for line in text.splitlines() if line.strip()] or [""]


def align(cells: Sequence[str], widths: Sequence[int]) -> str:
    """One line of columns; a negative width aligns left. A too long cell shifts the rest."""
    padded = [
        cell.ljust(-width) if width < 0 else cell.rjust(width)
        for cell, width in zip(cells, widths, strict=True)
    ]
    return " ".join(padded).rstrip()


def trial_header(axis: str) -> tuple[str, str]:
    """The two heading lines above trials along an axis."""
    first, second = TRIAL_HEADER
    first = (*first[:2], axis_named(axis).heading, *first[3:])
    return align(first, _TRIAL_WIDTHS), align(second, _TRIAL_WIDTHS)


def offered_words(pattern: TrafficPattern) -> str:
    """The offered rate, `20.0 MB/s`; a closed loop offers no rate and is `closed loop`."""
    if pattern.producer.closed_loop:
        return "closed loop"
    return f"{format_mb_per_s(pattern.mb_per_s)} MB/s"


def trial_line(event: TrialFinished) -> str:
    """The cells of a finished trial, aligned under `trial_header`."""
    trial, evidence, left = event.trial, event.trial.evidence, event.trials_left
    cells = (
        str(trial.number),
        format_size(trial.pattern.message_bytes),
        str(trial.load),
        "closed" if trial.pattern.producer.closed_loop else format_mb_per_s(trial.pattern.mb_per_s),
        format_mb_per_s(evidence.client.achieved_mb_per_s),
        idle_words(evidence.busiest_broker),
        format_ratio(evidence.isr_changed_share),
        trial.verdict.value,
        f"{left}, {format_duration(event.time_left_s)}" if left > 0 else "none",
    )
    return align(cells, _TRIAL_WIDTHS)


def trial_reason(event: TrialFinished) -> str:
    """The first reason of the verdict, and after an overload the time to recover."""
    reason, recovery_s = clean(event.reason), event.trial.recovery_s
    if recovery_s is None:
        return reason
    return f"{reason}; at rest again after {format_duration(recovery_s)}"


def idle_words(busiest: BrokerWindow | None) -> str:
    """The lowest idle fraction and its broker, `0.41 (2)`."""
    if busiest is None or busiest.handler_idle is None:
        return UNKNOWN
    return f"{busiest.handler_idle:.2f} ({busiest.broker_id})"


def plan_rows(plan: Plan) -> list[tuple[str, str]]:
    """The rows of a plan, as (label, text)."""
    brokers = "" if plan.brokers is None else f" ({format_counted(plan.brokers, 'broker')})"
    sizes = ", ".join(format_size(size) for size in plan.message_bytes)
    forecast = (
        f"about {format_counted(plan.trials_estimated, 'trial')} of "
        f"{format_duration(plan.trial_s)}, {format_duration(plan.duration_s + plan.starting_s)} "
        f"{'with the start and the end' if plan.starting_s else 'in all'}"
    )
    if plan.write_bytes_max is not None:
        forecast += f", at most {format_volume(plan.write_bytes_max)} written with all replicas"
    peaks = []
    if plan.peak_mb_per_s is not None:
        peaks.append(f"load up to {format_mb_per_s(plan.peak_mb_per_s)} MB/s from producers")
    if plan.disk_bytes_max is not None:
        peaks.append(
            f"up to {format_volume(plan.disk_bytes_max)} on all brokers' disks together at a time"
        )
    width = plan.resolution
    goal = plan.goal if width is None else f"{plan.goal}: brackets within {format_ratio(width)}"
    rows = [
        ("cluster", f"{plan.cluster}{brokers}"),
        ("workload", f"{plan.workload}: messages of {sizes}"),
        ("producer", plan.producer),
        ("goal", goal),
        ("forecast", forecast),
        *([("peak", "; ".join(peaks))] if peaks else []),
    ]
    if plan.out is not None:
        rows.append(("results", str(plan.out)))
    return rows + [("note", text) for text in plan.notes]


def limit_title(summary: RunSummary) -> str:
    """The heading of the final table."""
    brokers = f", {format_counted(summary.brokers, 'broker')}" if summary.brokers else ""
    doubtful = doubtful_sizes(summary.boundaries)
    return (
        f"Limits of {summary.cluster} with {summary.workload} (goal {summary.goal}{brokers})"
        f"{f'; doubtful: {doubtful}' if doubtful else ''}"
    )


def limit_lines(boundaries: Sequence[Boundary]) -> list[tuple[str, str]]:
    """The lines of all sizes, as (label, text): the answers, then `Why` and their evidence."""
    answers = [answer_of(each) for each in boundaries]
    width = max((len(each.size) for each in answers), default=0)

    def labelled(size: str, lines: Sequence[str]) -> Iterator[tuple[str, str]]:
        for number, line in enumerate(lines):
            yield f"{'' if number else size:<{width}}  ", clean(line)

    shown = [line for each in answers for line in labelled(each.size, each.lines)]
    why = [line for each in answers for line in labelled(each.size, each.why)]
    return [*shown, *([("Why", "")] if why else []), *why]


def point_words(boundary: Boundary, goal: str = "") -> str:
    """The result for one size as a sentence; the goal is named where there are several."""
    answer = answer_of(boundary)
    of_goal = f", goal {goal}" if goal else ""
    return clean(f"{answer.size}{of_goal}: {'; '.join(answer.lines)}")


def table_lines(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table as aligned lines, its heading first; numeric columns align right.

    A cell with several lines becomes one line.
    """
    table = RichTable(box=None, pad_edge=False, header_style=None)
    for name, *cells in zip(columns, *rows, strict=True):
        numbers = (cell.replace(",", "").replace(".", "", 1).isdigit() for cell in cells)
        is_numeric = bool(cells) and all(numbers)
        table.add_column(Text(name), justify="right" if is_numeric else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(" ".join(cell.splitlines())) for cell in row))
    text = StringIO()
    Console(file=text, width=_WIDTH_MAX, color_system=None, force_jupyter=False).print(table)
    return [line.rstrip() for line in text.getvalue().splitlines()]

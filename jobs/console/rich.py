"""The permanent terminal lines of events, as rich renderables. Prints nothing."""

from __future__ import annotations

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from jobs.console.events import (
    Level,
    Notice,
    Plan,
    PointFinished,
    RunFinished,
    Table,
    TrialFinished,
)
from jobs.console.text import (
    clean,
    limit_lines,
    limit_title,
    plan_rows,
    point_words,
    sentences,
    table_lines,
    trial_header,
    trial_line,
    trial_reason,
)
from metrics.reporting.summary import RunSummary, by_goal
from metrics.units import format_duration, format_size
from search.model import Verdict

_VERDICT_STYLES = {
    Verdict.SUSTAINED: "green",
    Verdict.OVERLOADED: "yellow",
    Verdict.INVALID: "magenta",
}
_LEVEL_STYLES = {Level.NOTE: "cyan", Level.WARNING: "yellow", Level.ERROR: "bold red"}


def plan_lines(title: str, plan: Plan) -> list[RenderableType]:
    """The lines of a plan under its title."""
    lines: list[RenderableType] = [Text(f"redline: {clean(title)}", style="bold")]
    for label, text in plan_rows(plan):
        lines.append(_hanging(f"  {label:<9} ", clean(text), "dim"))
    return lines


def trial_lines(event: TrialFinished) -> list[RenderableType]:
    """The line of a finished trial, and its first reason unless it was sustained."""
    verdict = event.trial.verdict
    line = Text(trial_line(event), no_wrap=True, overflow="ellipsis")
    line.highlight_words([verdict.value], _VERDICT_STYLES[verdict])
    if verdict is Verdict.SUSTAINED or not event.reason:
        return [line]
    return [line, _hanging("    └ ", trial_reason(event), "dim", "dim")]


def final_lines(event: RunFinished) -> list[RenderableType]:
    """The final lines: limits with their evidence, files, and how the run ended."""
    lines: list[RenderableType] = [Text()]
    if event.summary.answer:
        lines += [Text(clean(event.summary.answer), style="bold"), Text()]
    for _, part in by_goal(event.summary):
        lines += _limit_lines(part)
    width = max((len(what) for what, _ in event.files), default=0)
    lines += [_hanging(f"  {what:<{width}}  ", where, "dim") for what, where in event.files]
    took = f"{event.summary.status} in {format_duration(event.duration_s)}"
    return [*lines, Text(f"{took}, run {event.summary.run_id}", style="bold")]


def _limit_lines(summary: RunSummary) -> list[RenderableType]:
    if not summary.boundaries:
        return []
    found = limit_lines(summary.boundaries)
    fold = next((n for n, (label, _) in enumerate(found) if label == "Why"), len(found))
    lines = [
        _hanging(label, text, "bold", "" if number < fold else "dim") if text else Text(label)
        for number, (label, text) in enumerate(found)
    ]
    return [Text(limit_title(summary), style="bold"), *lines, Text()]


def point_lines(event: PointFinished) -> list[RenderableType]:
    """The result for one message size, as a sentence."""
    return [_indented(Text(point_words(event.boundary, event.goal), style="bold"), 2)]


def size_heading(message_bytes: int, axis: str) -> list[RenderableType]:
    """The heading above the trials of one message size."""
    headers = [Text(line, style="dim", no_wrap=True) for line in trial_header(axis)]
    return [Text(), Text(f"Messages of {format_size(message_bytes)}", style="bold"), *headers]


def notice_lines(event: Notice) -> list[RenderableType]:
    """The lines of a notice: each sentence after its level."""
    style = _LEVEL_STYLES[event.level]
    lines = sentences(event.text)
    return [Text.assemble((f"{event.level.value}: ", style), line) for line in lines]


def table(event: Table) -> list[RenderableType]:
    """The lines of a table: title, heading and rows."""
    heading, *rows = [
        Text(f"  {line}", no_wrap=True) for line in table_lines(event.columns, event.rows)
    ]
    heading.stylize("dim")
    return [Text(clean(event.title), style="bold"), heading, *rows]


def _indented(text: Text, columns: int) -> RenderableType:
    return Padding(text, (0, 0, 0, columns), expand=False)


def _hanging(label: str, text: str, label_style: str, text_style: str = "") -> RenderableType:
    """`text` wrapped to the right of its label."""
    grid = RichTable.grid()
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(Text(label, style=label_style), Text(text, style=text_style))
    return grid

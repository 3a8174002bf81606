"""The only module that prints: a live display on a terminal, and plain lines in a log.

On a terminal the live area shows the current phase or trial, and permanent lines above the live
area show finished phases and trials. A log has one line for each event, `name key=value …`.

The terminal and the log show the same texts and columns.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from io import StringIO
from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table as RichTable
from rich.text import Text

from jobs.console.events import (
    Event,
    Level,
    Notice,
    PhaseProgress,
    PhaseStarted,
    Plan,
    PlanShown,
    PointFinished,
    Reporter,
    RunFinished,
    RunStarted,
    Table,
    TrialFinished,
    TrialProgress,
    TrialStarted,
)
from jobs.console.streams import steady
from metrics.reporting.limit_answer import answer_of, doubtful_sizes
from metrics.reporting.summary import RunSummary, by_goal
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
from search.model import Verdict

TRIAL_HEADER = (
    ("#", "size", "", "offered", "achieved", "low idle", "ISR", "verdict", "left"),
    ("", "", "", "MB/s", "MB/s", "(broker)", "", "", "trials, time"),
)
_WIDTH_MAX = 10_000  # [columns]; wide enough that no table in a log is wrapped
_TRIAL_WIDTHS = (3, 7, 9, 7, 8, 8, 5, -10, -15)  # a negative width means aligned left


def clean(text: str) -> str:
    """`text` on one line, without control characters and ANSI codes."""
    printable = "".join(char if char.isprintable() else " " for char in text)
    return " ".join(printable.split())


def sentences(text: str) -> list[str]:
    """The nonempty lines of a text, each passed through `clean`; one empty line for an
    empty text.
    """
    return [clean(line) for line in text.splitlines() if line.strip()] or [""]


def align(cells: Sequence[str], widths: Sequence[int]) -> str:
    """The cells as one line. A cell with a negative width is aligned left. If a cell is longer than
    its width, the following cells move to the right.
    """
    padded = [
        cell.ljust(-width) if width < 0 else cell.rjust(width)
        for cell, width in zip(cells, widths, strict=True)
    ]
    return " ".join(padded).rstrip()


def trial_header(axis: str) -> tuple[str, str]:
    """The two heading lines above the trials of a search along an axis."""
    first, second = TRIAL_HEADER
    first = (*first[:2], axis_named(axis).heading, *first[3:])
    return align(first, _TRIAL_WIDTHS), align(second, _TRIAL_WIDTHS)


def offered_words(pattern: TrafficPattern) -> str:
    """The offered rate, such as `20.0 MB/s`, or `closed loop` for a load without an
    offered rate.
    """
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
    """The first reason of the verdict. After an overload the text includes the recovery time."""
    reason, recovery_s = clean(event.reason), event.trial.recovery_s
    if recovery_s is None:
        return reason
    return f"{reason}; recovered after {format_duration(recovery_s)}"


def idle_words(busiest: BrokerWindow | None) -> str:
    """The lowest idle fraction of request handlers, and the id of the broker with this fraction,
    such as `0.41 (2)`.
    """
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
            f"up to {format_volume(plan.disk_bytes_max)} at the same time on the disks of all "
            "brokers together"
        )
    width = plan.resolution
    goal = plan.goal if width is None else f"{plan.goal}: brackets up to {format_ratio(width)} wide"
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
    """The result lines of all message sizes, as (label, text): first the answers, then `Why` and
    the evidence.
    """
    answers = [answer_of(each) for each in boundaries]
    width = max((len(each.size) for each in answers), default=0)

    def labelled(size: str, lines: Sequence[str]) -> Iterator[tuple[str, str]]:
        for number, line in enumerate(lines):
            yield f"{'' if number else size:<{width}}  ", clean(line)

    shown = [line for each in answers for line in labelled(each.size, each.lines)]
    why = [line for each in answers for line in labelled(each.size, each.why)]
    return [*shown, *([("Why", "")] if why else []), *why]


def point_words(boundary: Boundary, goal: str = "") -> str:
    """The result for one message size as a sentence, with the goal if the run has several goals."""
    answer = answer_of(boundary)
    of_goal = f", goal {goal}" if goal else ""
    return clean(f"{answer.size}{of_goal}: {'; '.join(answer.lines)}")


def table_lines(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table as aligned lines; the heading is the first line. Numeric columns are aligned right.

    The lines of a cell are joined to one line.
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


_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_BAR_COLUMNS = 24
# A terminal prints ^C at the end of the last line. In a full line, ^C would start a new line, and
# the live area would be cleared one line too low.
_ECHO_COLUMNS = 4


@dataclass(frozen=True)
class Activity:
    """The current phase or trial, its start, and its last progress."""

    event: PhaseStarted | TrialStarted
    started_s: float
    progress: PhaseProgress | TrialProgress | None = None

    def progressed(self, progress: PhaseProgress | TrialProgress, now_s: float) -> Activity:
        """The activity, updated by a progress event. The progress of a trial contains the elapsed
        time, which replaces the time that this process measured.
        """
        started_s = self.started_s
        if isinstance(progress, TrialProgress):
            started_s = now_s - progress.elapsed_s
        return replace(self, progress=progress, started_s=started_s)

    def words(self) -> str:
        """A short description of the current phase or trial."""
        if isinstance(self.event, PhaseStarted):
            return clean(self.event.text)
        pattern = self.event.pattern
        place = axis_named(pattern.axis).amount(pattern.on_axis)
        return f"trial {self.event.number}, {format_size(pattern.message_bytes)}, {place}"


def activity_lines(activity: Activity, now_s: float, width: int) -> list[RenderableType]:
    """The lines of the live area, narrower than `width`: one line for a phase, three lines for a
    trial.
    """
    width -= _ECHO_COLUMNS
    elapsed_s = max(0.0, now_s - activity.started_s)
    spinner = _FRAMES[int(elapsed_s * 8) % len(_FRAMES)]
    if isinstance(activity.event, TrialStarted):
        return _trial_lines(activity, activity.event, elapsed_s, spinner, width)
    line = Text.assemble((f"{spinner} ", "cyan"), activity.words())
    if isinstance(activity.progress, PhaseProgress):
        line.append(f": {clean(activity.progress.detail)}")
    line.append(f"  {format_duration(elapsed_s)}", style="dim")
    return [_one_line(line, width)]


def _trial_lines(
    activity: Activity, trial: TrialStarted, elapsed_s: float, spinner: str, width: int
) -> list[RenderableType]:
    progress = activity.progress if isinstance(activity.progress, TrialProgress) else None
    stage = "preparing" if progress is None else clean(progress.stage)
    head = Text.assemble((f"{spinner} ", "cyan"), (activity.words(), "bold"), f"  {stage}  ")
    took = format_duration(elapsed_s)
    if trial.duration_s is None:
        first: RenderableType = _one_line(head.append(took), width)
    else:
        head.no_wrap, head.overflow = True, "ellipsis"
        first = RichTable.grid(padding=(0, 1, 0, 0))
        bar = ProgressBar(trial.duration_s, min(elapsed_s, trial.duration_s), width=_BAR_COLUMNS)
        of = Text(f"{took} of {format_duration(trial.duration_s)}", no_wrap=True)
        first.add_row(head, bar, of)
    reading = _reading(trial, progress)
    why = Text(f"  why: {clean(trial.reason)}", style="dim")
    return [first, _one_line(Text(f"  {reading}"), width), _one_line(why, width)]


def _reading(trial: TrialStarted, progress: TrialProgress | None) -> str:
    offered = offered_words(trial.pattern)
    if progress is None or progress.achieved_mb_per_s is None:
        rates = f"offering {offered}"
    elif trial.pattern.producer.closed_loop:
        rates = f"{format_mb_per_s(progress.achieved_mb_per_s)} MB/s, {offered}"
    else:
        rates = f"{format_mb_per_s(progress.achieved_mb_per_s)} of {offered}"
    if progress is None or progress.busiest is None:
        return rates
    return f"{rates}, lowest idle (broker) {idle_words(progress.busiest)}"


def _one_line(text: Text, width: int) -> Text:
    text.truncate(width, overflow="ellipsis")
    text.no_wrap = True
    return text


def plain_event(event: Event) -> str | None:
    """An event as `name key=value …`; None for an event that a log does not show.

    A notice has one line for each sentence. An event of any other type has one line.
    """
    if isinstance(event, PlanShown):
        return _pairs("plan", plan_rows(event.plan))
    if isinstance(event, RunStarted):
        return _pairs("run-started", [("run", event.run_id), *plan_rows(event.plan)])
    if isinstance(event, PhaseStarted):
        return _pairs("phase", [("doing", event.text)])
    if isinstance(event, TrialStarted):
        return _pairs(
            "trial-started", [*_pattern_pairs(event.number, event.pattern), ("why", event.reason)]
        )
    if isinstance(event, TrialFinished):
        return _pairs("trial-finished", _trial_finished_pairs(event))
    if isinstance(event, PointFinished):
        return f"point-finished {point_words(event.boundary, event.goal)}"
    if isinstance(event, RunFinished):
        status, took = event.summary.status, format_duration(event.duration_s)
        pairs = [("run", event.summary.run_id), ("status", status), ("took", took)]
        return _pairs("run-finished", pairs)
    if isinstance(event, Notice):
        return "\n".join(f"{event.level.value}: {each}" for each in sentences(event.text))
    if isinstance(event, Table):
        return clean(event.title)
    return None  # PhaseProgress and TrialProgress would flood a log


def _pattern_pairs(number: int, pattern: TrafficPattern) -> list[tuple[str, str]]:
    return [
        ("trial", str(number)),
        ("size", format_size(pattern.message_bytes)),
        (axis_named(pattern.axis).key, str(pattern.on_axis)),
        ("offered", offered_words(pattern)),
    ]


def _trial_finished_pairs(event: TrialFinished) -> list[tuple[str, str]]:
    trial, evidence = event.trial, event.trial.evidence
    busiest, idle = evidence.busiest_broker, evidence.handler_idle_min
    pairs = [
        *_pattern_pairs(trial.number, trial.pattern),
        ("achieved", f"{format_mb_per_s(evidence.client.achieved_mb_per_s)} MB/s"),
        ("idle", UNKNOWN if idle is None else f"{idle:.2f}"),
        ("broker", UNKNOWN if busiest is None else str(busiest.broker_id)),
        ("isr", format_ratio(evidence.isr_changed_share)),
        ("verdict", trial.verdict.value),
        ("took", format_duration(event.duration_s)),
        ("trials_left", str(event.trials_left)),
        ("time_left", format_duration(event.time_left_s)),
    ]
    if trial.recovery_s is not None:
        pairs.append(("at_rest_after", format_duration(trial.recovery_s)))
    return [*pairs, ("reason", event.reason)] if event.reason else pairs


def _pairs(name: str, pairs: Sequence[tuple[str, str]]) -> str:
    return " ".join([name, *(f"{key}={_quoted(value)}" for key, value in pairs)])


def _quoted(value: str) -> str:
    text = clean(value)
    if text and not set(text) & set(' "='):
        return text
    return '"' + text.replace('"', "'") + '"'


_VERDICT_STYLES = {
    Verdict.SUSTAINED: "green",
    Verdict.OVERLOADED: "yellow",
    Verdict.INVALID: "magenta",
}
_LEVEL_STYLES = {Level.NOTE: "cyan", Level.WARNING: "yellow", Level.ERROR: "bold red"}


def plan_lines(title: str, plan: Plan) -> list[RenderableType]:
    """The lines of a plan, after a title line."""
    rows = (_hanging(f"  {label:<9} ", clean(text), "dim") for label, text in plan_rows(plan))
    return [Text(f"redline: {clean(title)}", style="bold"), *rows]


def trial_lines(event: TrialFinished) -> list[RenderableType]:
    """The line of a finished trial. If the trial was not sustained, a second line shows the first
    reason.
    """
    verdict = event.trial.verdict
    line = Text(trial_line(event), no_wrap=True, overflow="ellipsis")
    line.highlight_words([verdict.value], _VERDICT_STYLES[verdict])
    if verdict is Verdict.SUSTAINED or not event.reason:
        return [line]
    return [line, _hanging("    └ ", trial_reason(event), "dim", "dim")]


def final_lines(event: RunFinished) -> list[RenderableType]:
    """The final lines of a run: limits with evidence, files, and the status."""
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
    """The line with the result for one message size."""
    words = Text(point_words(event.boundary, event.goal), style="bold")
    return [Padding(words, (0, 0, 0, 2), expand=False)]


def size_heading(message_bytes: int, axis: str) -> list[RenderableType]:
    """The heading above the trials of one message size."""
    headers = [Text(line, style="dim", no_wrap=True) for line in trial_header(axis)]
    return [Text(), Text(f"Messages of {format_size(message_bytes)}", style="bold"), *headers]


def table(event: Table) -> list[RenderableType]:
    """The lines of a table: title, heading and rows."""
    heading, *rows = [
        Text(f"  {line}", no_wrap=True) for line in table_lines(event.columns, event.rows)
    ]
    heading.stylize("dim")
    return [Text(clean(event.title), style="bold"), heading, *rows]


def _hanging(label: str, text: str, label_style: str, text_style: str = "") -> RenderableType:
    """The label, and to its right the wrapped text."""
    grid = RichTable.grid()
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(Text(label, style=label_style), Text(text, style=text_style))
    return grid


# Four refreshes per second look smooth, and need almost no CPU of the measuring machine.
_REFRESH_PER_S = 4


def make_reporter(out: TextIO | None = None, err: TextIO | None = None) -> Reporter:
    """The reporter for a stream: a live display if `out` is a suitable terminal, otherwise plain
    lines.

    If a stream fails, the run continues and writes its files.
    """
    errors = steady(err or sys.stderr)
    lines = steady(
        out or sys.stdout,
        lambda why: _write(
            errors,
            [f"warning: standard output cannot be written ({why}); the run continues without it"],
        ),
    )
    can_move_cursor = os.environ.get("TERM", "dumb") not in ("dumb", "unknown")
    is_unicode = lines.encoding.lower().replace("-", "").startswith("utf")
    if lines.isatty() and can_move_cursor and is_unicode:
        console = Console(file=lines, highlight=False, emoji=False)
        return TerminalReporter(console, errors, sys.stdin)
    return PlainReporter(lines, errors)


class PlainReporter(Reporter):
    """Writes one line for each event, with the time of the event (UTC), and the final tables. The
    output has no ANSI codes.
    """

    def __init__(
        self,
        out: TextIO,
        err: TextIO,
        now: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
    ) -> None:
        self._out, self._err, self._now = out, err, now
        self._lock = threading.Lock()

    def report(self, event: Event) -> None:
        """Write the line of an event. Progress events have no line."""
        line = plain_event(event)
        if line is None:
            return
        loud = isinstance(event, Notice) and event.level is not Level.NOTE
        stamp = self._now().strftime("%Y-%m-%dT%H:%M:%SZ")
        lines = [*(f"{stamp} {each}" for each in line.splitlines()), *_plain_tail(event)]
        with self._lock:
            _write(self._err if loud else self._out, lines)

    def confirm(self, question: str) -> bool:
        """Return False, because plain output cannot ask the user."""
        return False


def _plain_tail(event: Event) -> list[str]:
    """The lines that follow the first line of an event: a table, or the final answer and the list
    of files.
    """
    if isinstance(event, Table):
        return [f"  {line}" for line in table_lines(event.columns, event.rows)]
    if not isinstance(event, RunFinished):
        return []
    files = ["", *(f"{what}: {where}" for what, where in event.files)]
    if not event.summary.boundaries:
        return ["", clean(event.summary.answer), *files] if event.summary.answer else files
    lines: list[str] = []
    for _, part in by_goal(event.summary):
        found = (f"{label}{text}".rstrip() for label, text in limit_lines(part.boundaries))
        lines += ["", limit_title(part), *found]
    return [*lines, *files]


def _write(stream: TextIO, lines: list[str]) -> None:
    """Write lines in the stream's encoding. A character that the encoding lacks becomes `?`."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    text = "".join(f"{line}\n" for line in lines)
    stream.write(text.encode(encoding, "replace").decode(encoding))
    stream.flush()


class TerminalReporter(Reporter):
    """Shows a live area for the current phase or trial, and a permanent line for each finished
    phase or trial.
    """

    def __init__(
        self,
        console: Console,
        err: TextIO,
        stdin: TextIO | None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console, self._err, self._stdin = console, err, stdin
        self._clock_s = clock_s
        self._lock = threading.RLock()
        self._activity: Activity | None = None
        self._size_shown: int | None = None
        self._live: Live | None = None

    def report(self, event: Event) -> None:
        """Show one event."""
        with self._lock:
            if isinstance(event, PhaseProgress | TrialProgress):
                if self._activity is not None:
                    self._activity = self._activity.progressed(event, self._clock_s())
                return
            if isinstance(event, Notice):
                self._show_notice(event)
                return
            self._end_activity(done=True)
            for line in self._permanent(event):
                self._console.print(line)
            if isinstance(event, PhaseStarted | TrialStarted):
                self._activity = Activity(event, self._clock_s())
                # A rich Live that is started again moves the cursor by its previous height, so each
                # activity gets a new Live.
                self._live = Live(
                    get_renderable=self._live_area,
                    console=self._console,
                    refresh_per_second=_REFRESH_PER_S,
                    transient=True,
                )
                self._live.start(refresh=True)

    def confirm(self, question: str) -> bool:
        """Ask the user a question. Only `y` and `yes` return True; without a terminal the answer is
        no.
        """
        with self._lock:
            self._end_activity(done=True)
            if self._stdin is None or not self._stdin.isatty():
                return False
            self._console.print(Text(f"{clean(question)} [y/N] "), end="")
            return self._stdin.readline().strip().lower() in ("y", "yes")

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        with self._lock:
            self._end_activity(done=kind is None)

    def _live_area(self) -> RenderableType:
        activity = self._activity
        if activity is None:
            return Group()
        return Group(*activity_lines(activity, self._clock_s(), self._console.width))

    def _show_notice(self, event: Notice) -> None:
        level, lines = f"{event.level.value}: ", sentences(event.text)
        if event.level is not Level.NOTE and not self._err.isatty():
            _write(self._err, [f"{level}{line}" for line in lines])
            return
        for line in lines:
            self._console.print(Text.assemble((level, _LEVEL_STYLES[event.level]), line))

    def _end_activity(self, *, done: bool) -> None:
        """Replace the live area with a permanent line. A finished trial gets no line here, because
        `report` prints the line of the trial.
        """
        activity, self._activity = self._activity, None
        live, self._live = self._live, None
        if live is not None:
            live.stop()
        if activity is None or (done and isinstance(activity.event, TrialStarted)):
            return
        took = format_duration(self._clock_s() - activity.started_s)
        text, style = activity.words(), "green" if done else "red"
        line = Text("✓ " if done else "✗ ", style=style)
        line.append(text, style="default")
        line.append(f"  {took}" if done else f"  stopped after {took}", style="dim")
        self._console.print(line)

    def _permanent(self, event: Event) -> list[RenderableType]:
        """The lines of an event that stay on the terminal."""
        if isinstance(event, PlanShown):
            return plan_lines("plan", event.plan)
        if isinstance(event, RunStarted):
            return plan_lines(f"run {event.run_id}", event.plan)
        if isinstance(event, TrialStarted) and event.pattern.message_bytes != self._size_shown:
            self._size_shown = event.pattern.message_bytes
            return size_heading(event.pattern.message_bytes, event.pattern.axis)
        if isinstance(event, TrialFinished):
            return trial_lines(event)
        if isinstance(event, PointFinished):
            return point_lines(event)
        if isinstance(event, RunFinished):
            return final_lines(event)
        if isinstance(event, Table):
            return table(event)
        return []

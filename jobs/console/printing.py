"""The only module that prints: a live display on a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from datetime import datetime, timezone
from types import TracebackType
from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from jobs.console.events import (
    Event,
    Level,
    Notice,
    PhaseProgress,
    PhaseStarted,
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
from jobs.console.reporters import (
    Activity,
    activity_lines,
    final_lines,
    notice_lines,
    plain_event,
    plan_lines,
    point_lines,
    size_heading,
    table,
    trial_lines,
)
from jobs.console.streams import steady
from jobs.console.text import clean, limit_lines, limit_title, sentences, table_lines
from metrics.reporting.summary import by_goal
from metrics.units import format_duration

# Four refreshes per second look smooth and cost the measuring machine almost no CPU.
_REFRESH_PER_S = 4


def make_reporter(out: TextIO | None = None, err: TextIO | None = None) -> Reporter:
    """A reporter: the live display where `out` is a terminal that can show it, else plain lines.

    The run continues and writes its files when a stream fails.
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
    """Writes one line per event with its time (UTC), and final tables, without ANSI codes."""

    def __init__(
        self,
        out: TextIO,
        err: TextIO,
        now: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
    ) -> None:
        self._out, self._err, self._now = out, err, now
        self._lock = threading.Lock()

    def report(self, event: Event) -> None:
        """Write the event's line, if it has one."""
        line = plain_event(event)
        if line is None:
            return
        loud = isinstance(event, Notice) and event.level is not Level.NOTE
        stamp = self._now().strftime("%Y-%m-%dT%H:%M:%SZ")
        lines = [*(f"{stamp} {each}" for each in line.splitlines()), *_plain_tail(event)]
        with self._lock:
            _write(self._err if loud else self._out, lines)

    def confirm(self, question: str) -> bool:
        """Return False, as plain output cannot ask."""
        return False


def _plain_tail(event: Event) -> list[str]:
    """The lines that follow an event's own line: tables and the list of files."""
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
    """Write lines in the stream's encoding; characters that it lacks become `?`."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    text = "".join(f"{line}\n" for line in lines)
    stream.write(text.encode(encoding, "replace").decode(encoding))
    stream.flush()


class TerminalReporter(Reporter):
    """Shows a live area for what is running, and a permanent line for what finished."""

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
                # A rich Live that is started again moves the cursor by its previous height, so
                # each activity gets a new one.
                self._live = Live(
                    get_renderable=self._live_area,
                    console=self._console,
                    refresh_per_second=_REFRESH_PER_S,
                    transient=True,
                )
                self._live.start(refresh=True)

    def confirm(self, question: str) -> bool:
        """Ask the user; every answer but yes means no, and so does input that is not a terminal."""
        with self._lock:
            self._end_activity(done=True)
            if self._stdin is None or not self._stdin.isatty():
                return False
            self._console.print(Text(f"{clean(question)} [y/N] "), end="")
            return self._stdin.readline().strip().lower() in ("y", "yes")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._lock:
            self._end_activity(done=kind is None)

    def _live_area(self) -> RenderableType:
        activity = self._activity
        if activity is None:
            return Group()
        return Group(*activity_lines(activity, self._clock_s(), self._console.width))

    def _show_notice(self, event: Notice) -> None:
        if event.level is not Level.NOTE and not self._err.isatty():
            level = event.level.value
            _write(self._err, [f"{level}: {each}" for each in sentences(event.text)])
            return
        for line in notice_lines(event):
            self._console.print(line)

    def _end_activity(self, *, done: bool) -> None:
        """Replace the live area by a permanent line; a finished trial has its own line already."""
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
        """The lines of an event that stay on the screen."""
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

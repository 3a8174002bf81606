"""The live area: lines about the running phase or trial. Prints nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rich.console import RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table as RichTable
from rich.text import Text

from jobs.console.events import PhaseProgress, PhaseStarted, TrialProgress, TrialStarted
from jobs.console.text import clean, idle_words, offered_words
from metrics.traffic.axes import axis_named
from metrics.units import format_duration, format_mb_per_s, format_size

_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_BAR_COLUMNS = 24
# A terminal echoes ^C at the end of the last line. In a full line the echo would start a new
# line, and the live area would be cleared one line too low.
_ECHO_COLUMNS = 4


@dataclass(frozen=True)
class Activity:
    """The running phase or trial, its start, and its last progress."""

    event: PhaseStarted | TrialStarted
    started_s: float
    progress: PhaseProgress | TrialProgress | None = None

    def progressed(self, progress: PhaseProgress | TrialProgress, now_s: float) -> Activity:
        """The activity after a progress event; a trial's own elapsed time replaces ours."""
        started_s = self.started_s
        if isinstance(progress, TrialProgress):
            started_s = now_s - progress.elapsed_s
        return replace(self, progress=progress, started_s=started_s)

    def words(self) -> str:
        """A short description of what is running."""
        if isinstance(self.event, PhaseStarted):
            return clean(self.event.text)
        pattern = self.event.pattern
        place = axis_named(pattern.axis).amount(pattern.on_axis)
        return f"trial {self.event.number}, {format_size(pattern.message_bytes)}, {place}"


def activity_lines(activity: Activity, now_s: float, width: int) -> list[RenderableType]:
    """The live area: one line for a phase, three for a trial, narrower than `width`."""
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
    return [first, _one_line(Text(f"  {reading}"), width), _one_line(_why(trial), width)]


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


def _why(trial: TrialStarted) -> Text:
    return Text(f"  why: {clean(trial.reason)}", style="dim")


def _one_line(text: Text, width: int) -> Text:
    text.truncate(width, overflow="ellipsis")
    text.no_wrap = True
    return text

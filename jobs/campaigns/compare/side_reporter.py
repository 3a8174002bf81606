"""A reporter for one side of a comparison, which marks events with the side's letter."""

from __future__ import annotations

from dataclasses import replace

from jobs.console.events import Event, PhaseStarted, Reporter, TrialFinished
from metrics.comparing.pairs import Side


class SideReporter:
    """Marks events with the side, and passes them to another reporter."""

    def __init__(self, reporter: Reporter, side: Side) -> None:
        self._reporter = reporter
        self._side = side

    def report(self, event: Event) -> None:
        """Show one event of this side."""
        if isinstance(event, PhaseStarted):
            event = replace(event, text=f"{self._side.value}: {event.text}")
        elif isinstance(event, TrialFinished):
            event = replace(event, side=self._side.value)
        self._reporter.report(event)

    def confirm(self, question: str) -> bool:
        """Ask the user on the other reporter."""
        return self._reporter.confirm(question)

    def __enter__(self) -> SideReporter:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: the other reporter stays open."""

"""The events of one side, with its letter before what they say."""

from __future__ import annotations

from dataclasses import replace
from types import TracebackType

from jobs.console.events import Event, PhaseStarted, Reporter, TrialFinished
from metrics.comparing.pairs import Side


class SideReporter:
    """Passes events on to another reporter, so that a reader knows whose they are."""

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
        """As the other reporter's."""
        return self._reporter.confirm(question)

    def __enter__(self) -> SideReporter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leaves the other reporter open."""

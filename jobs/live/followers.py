"""A reporter that shows events and hands each to those who follow the run from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Protocol

from jobs.console.events import Event, Reporter
from jobs.console.printing import make_reporter
from metrics.common.errors import ConfigError

EXTRA = "live"


class Follower(Protocol):
    """Whoever follows a run from elsewhere."""

    def follow(self, event: Event) -> None:
        """Take note of an event; never raises, and never takes long."""
        ...

    def end(self, error: BaseException | None) -> None:
        """The run is over, by this error if any."""
        ...


class FollowedReporter:
    """Shows events by a reporter, and tells the followers."""

    def __init__(self, shown: Reporter, followers: Sequence[Follower]) -> None:
        self._shown, self._followers = shown, followers

    def report(self, event: Event) -> None:
        """Show one event, and hand it on."""
        self._shown.report(event)
        for each in self._followers:
            each.follow(event)

    def confirm(self, question: str) -> bool:
        """The user's yes."""
        return self._shown.confirm(question)

    def __enter__(self) -> FollowedReporter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for each in self._followers:
            each.end(error)


@contextmanager
def reporter_of(
    metrics_at: tuple[str, int] | None = None, notify_from: Sequence[str] = ()
) -> Iterator[Reporter]:
    """The console's reporter, followed as the command line asks.

    Args:
        metrics_at: host and port where Prometheus reads live values; None for nowhere.
        notify_from: where the addresses of messages are, `env:NAME` or `file:PATH` each.

    Raises:
        ConfigError: the extra is missing, the port is taken, or an address of messages is none.
    """
    with make_reporter() as shown:
        followers: list[Follower] = []
        try:  # what it needs is an extra, and takes a while to import
            if metrics_at is not None:
                from jobs.live.metrics import LiveMetrics

                followers.append(LiveMetrics(metrics_at))
            if notify_from:
                from jobs.live.messages import Messages

                followers.append(Messages(notify_from))
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"--metrics-port and --notify need {error.name}, which is not installed here; "
                f"expected the extra {EXTRA}; pip install 'kafka-redline[{EXTRA}]'"
            ) from None
        if not followers:
            yield shown
            return
        with FollowedReporter(shown, followers) as reporter:
            yield reporter

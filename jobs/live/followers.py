"""The reporter of a run that has followers: it shows each event, and passes it to them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from jobs.console.events import Event, Reporter
from jobs.console.printing import make_reporter
from metrics.common.errors import ConfigError

EXTRA = "live"


class Follower(Protocol):
    """A follower receives the events of a run, in addition to the console."""

    def follow(self, event: Event) -> None:
        """Process one event, quickly and without raising an error."""
        ...

    def end(self, error: BaseException | None) -> None:
        """Process the end of the run.

        Args:
            error: the error that ended the run; None without an error.
        """
        ...


class FollowedReporter(Reporter):
    """Shows events on a reporter, and passes each event to the followers."""

    def __init__(self, shown: Reporter, followers: Sequence[Follower]) -> None:
        self._shown, self._followers = shown, followers

    def report(self, event: Event) -> None:
        """Show one event, and pass it to the followers."""
        self._shown.report(event)
        for each in self._followers:
            each.follow(event)

    def confirm(self, question: str) -> bool:
        """Ask the user a question on the console."""
        return self._shown.confirm(question)

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        for each in self._followers:
            each.end(error)


@contextmanager
def reporter_of(
    metrics_at: tuple[str, int] | None = None, notify_from: Sequence[str] = ()
) -> Iterator[Reporter]:
    """A reporter that shows events on the console, and passes them to the requested followers.

    Args:
        metrics_at: host and port of the live metrics for Prometheus; None without live metrics.
        notify_from: the places of the addresses for messages, each `env:NAME` or `file:PATH`.

    Raises:
        ConfigError: a required package is not installed, the port is in use, or an address is
            invalid.
    """
    with make_reporter() as shown:
        followers: list[Follower] = []
        try:  # these modules need the extra `live`, and are slow to import
            if metrics_at is not None:
                from jobs.live.metrics import LiveMetrics

                followers.append(LiveMetrics(metrics_at))
            if notify_from:
                from jobs.live.messages import Messages

                followers.append(Messages(notify_from))
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"--metrics-port and --notify need the package {error.name}, which is not "
                f"installed; expected the extra {EXTRA}; run pip install 'kafka-redline[{EXTRA}]'"
            ) from None
        if not followers:
            yield shown
            return
        with FollowedReporter(shown, followers) as reporter:
            yield reporter

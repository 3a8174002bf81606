"""Messages about the start and the end of a run by apprise, to chats, mail or any webhook."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait

import apprise

from jobs.config.security import read_secret
from jobs.console.events import Event, PointFinished, RunStarted
from jobs.console.text import plan_rows, point_words
from metrics.common.errors import (
    ConfigError,
    GuardStopError,
    NoConclusionError,
    RegressionError,
    TerminatedError,
)

PATIENCE_S = 15.0
"""The longest time that the end of a run waits for its last message [s]."""

_TITLES = (
    (RegressionError, "regression"),
    (GuardStopError, "stopped by a guard"),
    (NoConclusionError, "no conclusion"),
    (TerminatedError, "terminated"),
    (KeyboardInterrupt, "interrupted"),
)


class Messages:
    """Sends a message at the start of a run and one at every kind of end.

    A failed delivery does not end the run. It is not reported either, as addresses hold secrets.

    Args:
        references: the places of the addresses, `env:NAME` or `file:PATH`; each may hold several
            addresses, with spaces or line ends between them.

    Raises:
        ConfigError: a reference cannot be resolved, or apprise does not know an address.
    """

    def __init__(self, references: Sequence[str]) -> None:
        logging.getLogger("apprise").disabled = True  # apprise would log the addresses
        # Addresses and their headers hold secrets, which do not follow a redirection.
        self._to = apprise.Apprise(asset=apprise.AppriseAsset(http_redirects=False))
        for reference in references:
            for number, address in enumerate(read_secret(reference, "--notify", "").split(), 1):
                if not self._to.add(address):
                    raise ConfigError(
                        f"--notify {reference}: apprise does not know address {number}; "
                        "expected an address such as slack://… or json://host/path, see "
                        "https://github.com/caronc/apprise/wiki; correct it there"
                    )
        self._sender = ThreadPoolExecutor(1, thread_name_prefix="redline-messages")
        self._run = ""
        self._points: list[str] = []

    def follow(self, event: Event) -> None:
        """Send the message of the start, and collect the limits for that of the end."""
        if isinstance(event, RunStarted):
            self._run = f"{event.run_id} on {event.plan.cluster}"
            plan = dict(plan_rows(event.plan))
            body = [f"{name}: {plan[name]}" for name in ("workload", "goal", "forecast", "peak")
                    if name in plan]  # fmt: skip
            self._send("begins", "\n".join(body))
        elif isinstance(event, PointFinished):
            self._points.append(point_words(event.boundary, event.goal))

    def end(self, error: BaseException | None) -> None:
        """Send the message of the end; a run that never began has none."""
        if self._run:
            title = next((word for kind, word in _TITLES if isinstance(error, kind)), "failed")
            body = [*([str(error)] if error is not None and str(error) else []), *self._points]
            self._send("done" if error is None else title, "\n".join(body))
        self._sender.shutdown(wait=False)

    def _send(self, title: str, body: str) -> None:
        sent = self._sender.submit(
            self._to.notify, title=f"redline {self._run}: {title}", body=body or title
        )
        if title != "begins":
            wait([sent], PATIENCE_S)

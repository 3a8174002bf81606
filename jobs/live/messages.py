"""Messages about the start and the end of a run, which apprise sends to chats, mail or webhooks."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from threading import Thread
from typing import Any

import apprise
import requests

from jobs.config.security import read_secret
from jobs.console.events import Event, PointFinished, RunStarted
from jobs.console.printing import plan_rows, point_words
from metrics.common.errors import (
    ConfigError,
    GuardStopError,
    NoConclusionError,
    RegressionError,
    TerminatedError,
)

PATIENCE_S = 15.0
"""Longest time for which a run waits at its end for the delivery of its messages [s]."""
ANSWER_BYTES_MAX = 65_536
"""Maximum number of bytes that are read from an HTTP answer [B]. The reason of a server that
refuses a message is shorter.
"""

_TITLES = (
    (RegressionError, "regression"),
    (GuardStopError, "stopped by a guard"),
    (NoConclusionError, "no conclusion"),
    (TerminatedError, "terminated"),
    (KeyboardInterrupt, "interrupted"),
)


class _BoundedAdapter(requests.adapters.HTTPAdapter):
    """An HTTP adapter that reads only the first bytes of an answer; apprise alone would read all
    bytes.
    """

    def send(self, *args: Any, **kwargs: Any) -> requests.Response:
        response = super().send(*args, **kwargs)
        response._content = response.raw.read(ANSWER_BYTES_MAX, decode_content=True)
        return response


class Messages:
    """Sends one message at the start of a run, and one message at its end.

    A failed delivery does not end the run, and is not reported, because addresses contain secrets.

    Args:
        references: the places of the addresses, each `env:NAME` or `file:PATH`. A place may contain
            several addresses, separated by spaces or line ends.

    Raises:
        ConfigError: a reference cannot be resolved, or apprise does not know an address.
    """

    def __init__(self, references: Sequence[str]) -> None:
        requests.sessions.HTTPAdapter = _BoundedAdapter  # type: ignore[attr-defined]
        logging.getLogger("apprise").disabled = True  # apprise would log the addresses
        # Addresses and headers contain secrets, which must not follow a redirection.
        self._to: list[apprise.Apprise] = []
        asset = apprise.AppriseAsset(http_redirects=False)
        for reference in references:
            for number, address in enumerate(read_secret(reference, "--notify", "").split(), 1):
                self._to.append(apprise.Apprise(asset=asset))
                if not self._to[-1].add(address):
                    raise ConfigError(
                        f"--notify {reference}: apprise does not know address {number}; "
                        "expected an address such as slack://… or json://host/path, see "
                        "https://github.com/caronc/apprise/wiki; correct the address"
                    )
        self._sending: list[Thread] = []
        self._run = ""
        self._points: list[str] = []

    def follow(self, event: Event) -> None:
        """Send the message about the start of the run, and collect limits for the message about the
        end.
        """
        if isinstance(event, RunStarted):
            self._run = f"{event.run_id} on {event.plan.cluster}"
            plan = dict(plan_rows(event.plan))
            body = [f"{name}: {plan[name]}" for name in ("workload", "goal", "forecast", "peak")
                    if name in plan]  # fmt: skip
            self._send("begins", "\n".join(body))
        elif isinstance(event, PointFinished):
            self._points.append(point_words(event.boundary, event.goal))

    def end(self, error: BaseException | None) -> None:
        """Send the message about the end of the run. If the run has not begun, send nothing."""
        if self._run:
            title = next((word for kind, word in _TITLES if isinstance(error, kind)), "failed")
            body = [*([str(error)] if error is not None and str(error) else []), *self._points]
            self._send("done" if error is None else title, "\n".join(body))

    def _send(self, title: str, body: str) -> None:
        """Wait until the previous message is delivered, and send a message to each address. After
        the message about the end of the run, also wait until this message is delivered.

        The interpreter does not wait for the threads that send, because an answer may never come.
        """
        text = {"title": f"redline {self._run}: {title}", "body": body or title}
        self._await_sent()
        self._sending = [Thread(target=_notify, args=(to, text), daemon=True) for to in self._to]
        for each in self._sending:
            each.start()
        if title != "begins":
            self._await_sent()

    def _await_sent(self) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        for each in self._sending:
            each.join(max(0.0, deadline_s - time.monotonic()))


def _notify(to: apprise.Apprise, text: Mapping[str, str]) -> None:
    for each in to:  # to.notify would use a thread pool, for which the exit would wait
        with suppress(Exception):  # the error's message would contain the address
            each.notify(**text)

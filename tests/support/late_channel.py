"""A control channel that delivers the driver's message about the window's end late to one task."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from jobs.trials.control_server import ControlServer, TaskChannel
from tests.support.relay import Relay


class LateControl:
    """A driver's control server that reaches its tasks through a relay.

    Args:
        until_s: computes from the trial's channel when the first connected task gets the message
            about the end of the window [s since the epoch]; later messages wait, too.
    """

    def __init__(self, control: ControlServer, until_s: Callable[[TaskChannel], float]) -> None:
        self._control = control
        self._until_s = until_s

    @contextmanager
    def channel(self, tasks: int, consumer_tasks: int = 0) -> Iterator[TaskChannel]:
        """A channel like that of `ControlServer`, with the relay's address."""
        is_cut = threading.Event()
        with self._control.channel(tasks, consumer_tasks) as channel:
            end_after = channel.end_after

            def cut(window_s: float) -> None:
                is_cut.set()
                end_after(window_s)

            def hold(connection: int) -> None:
                # The relay cannot read the messages, so it delays all that arrive after the cut.
                if connection == 0 and is_cut.is_set():
                    time.sleep(max(0.0, self._until_s(channel) - time.time()))

            driver = (channel.address.host, channel.address.port)
            relay = Relay(("127.0.0.1", 0), driver, before_answer=hold)
            channel.end_after = cut  # type: ignore[method-assign]
            channel.address = replace(channel.address, port=relay.start()[1])
            try:
                yield channel
            finally:
                relay.close()

"""A control channel that delivers the driver's message about the window's end late to one task."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from jobs.trials.control_server import ControlServer, TaskChannel
from tests.support.processes import PATIENCE_S


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
        with (
            self._control.channel(tasks, consumer_tasks) as channel,
            socket.create_server(("127.0.0.1", 0)) as door,
        ):
            driver = (channel.address.host, channel.address.port)
            end_after, self._is_cut = channel.end_after, threading.Event()

            def cut(window_s: float) -> None:
                self._is_cut.set()
                end_after(window_s)

            channel.end_after = cut  # type: ignore[method-assign]
            channel.address = replace(channel.address, port=door.getsockname()[1])
            relay = threading.Thread(target=self._serve, args=(door, driver, channel, tasks))
            relay.start()
            yield channel
            relay.join(PATIENCE_S)

    def _serve(
        self, door: socket.socket, driver: tuple[str, int], channel: TaskChannel, tasks: int
    ) -> None:
        threads: list[threading.Thread] = []
        door.settimeout(PATIENCE_S)
        with suppress(OSError):
            for number in range(tasks):
                task = door.accept()[0]
                far = socket.create_connection(driver)
                held = channel if number == 0 else None
                threads.append(threading.Thread(target=_pass_on, args=(task, far)))
                threads.append(threading.Thread(target=self._hold_back, args=(far, task, held)))
                for thread in threads[-2:]:
                    thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)

    def _hold_back(
        self, driver: socket.socket, task: socket.socket, held: TaskChannel | None
    ) -> None:
        # The relay cannot read the messages, so it delays all that arrive after the cut.
        with suppress(OSError):
            while data := driver.recv(4_096):
                if held is not None and self._is_cut.is_set():
                    time.sleep(max(0.0, self._until_s(held) - time.time()))
                task.sendall(data)
        _end(task)
        driver.close()


def _pass_on(task: socket.socket, driver: socket.socket) -> None:
    with suppress(OSError):
        while data := task.recv(4_096):
            driver.sendall(data)
    _end(driver)
    task.close()


def _end(sock: socket.socket) -> None:
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)

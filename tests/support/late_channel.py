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
    """A driver's server whose tasks are reached through a relay of their own.

    Args:
        until_s: computes from the trial's channel when the first task to connect gets the message
            about the end [s since the epoch]; later messages of the driver wait, too.
    """

    def __init__(self, control: ControlServer, until_s: Callable[[TaskChannel], float]) -> None:
        self._control = control
        self._until_s = until_s

    @contextmanager
    def channel(self, tasks: int, consumer_tasks: int = 0) -> Iterator[TaskChannel]:
        """The same method as the server's."""
        with (
            self._control.channel(tasks, consumer_tasks) as channel,
            socket.create_server(("127.0.0.1", 0)) as door,
        ):
            driver = (channel.address.host, channel.address.port)
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
                away = socket.create_connection(driver)
                held = channel if number == 0 else None
                threads.append(threading.Thread(target=_pass_on, args=(task, away)))
                threads.append(threading.Thread(target=self._hold_back, args=(away, task, held)))
                for thread in threads[-2:]:
                    thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)

    def _hold_back(
        self, driver: socket.socket, task: socket.socket, held: TaskChannel | None
    ) -> None:
        # By lines: on a busy machine what was said before comes with it.
        with suppress(OSError), driver.makefile("rb") as lines:
            for said in lines:
                if held is not None and b"end_after_s" in said:
                    time.sleep(max(0.0, self._until_s(held) - time.time()))
                task.sendall(said)
        _end(task)
        driver.close()


def _pass_on(task: socket.socket, driver: socket.socket) -> None:
    with suppress(OSError):
        while said := task.recv(4_096):
            driver.sendall(said)
    _end(driver)
    task.close()


def _end(sock: socket.socket) -> None:
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)

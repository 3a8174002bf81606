"""Clients of a trial's control channels in one process, with nothing but the standard library.

    python -I tests/support/channel_clients.py HOST PORT TOKEN CERTIFICATE TASKS SLOW MOMENTS

All tasks connect at once, are admitted, report that they are ready, wait for the start signal and
report their progress. The first SLOW of them send their first message in two parts, the second one
after all others are admitted, and read no start signal. The output is one JSON object with counts
and times.
"""

from __future__ import annotations

import json
import socket
import ssl
import sys
import time
from typing import BinaryIO

WAIT_S = 60.0


class Task:
    """One task, which sends and reads lines."""

    def __init__(self, host: str, port: int, token: str, tls: ssl.SSLContext, number: int) -> None:
        self._sock = tls.wrap_socket(socket.create_connection((host, port), WAIT_S))
        self._lines: BinaryIO = self._sock.makefile("rb")
        self.number = number
        self.hello = json.dumps({"token": token, "task": number}).encode()

    def send(self, **message: object) -> None:
        self.send_part(json.dumps(message).encode() + b"\n")

    def send_part(self, text: bytes) -> None:
        self._sock.sendall(text)

    def read(self, key: str) -> object:
        """The value of a key in the next message that has it; None at the end."""
        while line := self._lines.readline():
            message = json.loads(line) if line.strip() else {}  # an empty line is a heartbeat
            if key in message:
                return message[key]
        return None

    def close(self) -> None:
        """Report the end, and close the connection once the driver has read everything."""
        self.send(done=True)
        while self._lines.readline():
            continue
        self._lines.close()
        self._sock.close()


def main(
    host: str, port: int, token: str, certificate: str, count: int, slow: int, moments: int
) -> dict[str, float]:
    """Play all tasks; returns counts, and the times of each part [s]."""
    at_s = [time.monotonic()]
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname = False
    tls.load_verify_locations(cadata=certificate)
    tasks = [Task(host, port, token, tls, number) for number in range(count)]
    late, others = tasks[:slow], tasks[slow:]
    for task in late:
        task.send_part(task.hello[:10])
    for task in others:
        task.send_part(task.hello + b"\n")
    admitted = sum(task.read("admitted") is True for task in others)
    at_s.append(time.monotonic())
    for task in late:
        task.send_part(task.hello[10:] + b"\n")
    admitted += sum(task.read("admitted") is True for task in late)
    for task in tasks:
        ready = {"now_s": time.time(), "host": f"host-{task.number % 50}", "problem": None}
        task.send(ready=ready)
    signals = sum(task.read("agreed") is not None for task in others)
    at_s.append(time.monotonic())
    for moment in range(moments):
        for task in tasks:
            task.send(at_s=moment / 4, acked=moment, written=moment)
    at_s.append(time.monotonic())
    for task in tasks:
        task.close()
    return {
        "admitted": admitted,
        "signals": signals,
        "admission_s": at_s[1] - at_s[0],
        "start_s": at_s[2] - at_s[1],
        "progress_s": at_s[3] - at_s[2],
    }


if __name__ == "__main__":
    found = main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4], *map(int, sys.argv[5:]))
    sys.stdout.write(json.dumps(found))

"""franz-go's fake Kafka cluster, as brokers of another make than Kafka (tests/data/kfake).

It keeps all records in memory.
"""

from __future__ import annotations

import os
import subprocess
import threading

from tests.support.commands import ROOT
from tests.support.go_programs import built

SOURCE = ROOT / "tests" / "data" / "kfake"
START_S = 60.0
"""Brokers that take longer to start have failed [s]."""
MEMORY = "1GiB"
"""Memory beyond which Go collects garbage at any cost."""


class Kfake:
    """Running brokers; a context manager that ends them.

    They also end when this process ends in any way, as that closes their standard input.

    Attributes:
        bootstrap_servers: HOST:PORT of each broker, with commas between them.
    """

    def __init__(self, brokers: int = 3, records_per_s: float = 0.0) -> None:
        """Start the brokers.

        Args:
            records_per_s: the planted limit of all brokers together; 0 for none [records/s].
        """
        self._process = subprocess.Popen(
            [str(built(SOURCE)), f"-brokers={brokers}", f"-records-per-s={records_per_s:g}"],
            env={**os.environ, "GOMEMLIMIT": MEMORY},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        watchdog = threading.Timer(START_S, self._process.kill)
        watchdog.start()
        self.bootstrap_servers = self._process.stdout.readline().strip()
        watchdog.cancel()
        assert self.bootstrap_servers, f"kfake ended with {self._process.wait()}"

    def __enter__(self) -> Kfake:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    @property
    def pid(self) -> int:
        return self._process.pid

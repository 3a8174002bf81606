"""Samples of a generator's host while its tasks make their load, taken by a thread.

One task of each host takes them for all. A sample takes about a millisecond, and one is taken every
second.
"""

from __future__ import annotations

import threading

from metrics.sources.hosts.proc import LocalHost
from metrics.sources.hosts.sample import HostSample

INTERVAL_S = 1.0
"""Interval between two samples [s]."""


class HostWatch:
    """A sampler of this machine until the block ends.

    Args:
        host: takes the samples.
        is_on: False where another task of this host takes them.
    """

    def __init__(self, host: LocalHost, *, is_on: bool = True) -> None:
        self._host = host
        self._is_on = is_on
        self._samples: list[HostSample] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="redline-host", daemon=True)

    def __enter__(self) -> HostWatch:
        if self._is_on:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join()

    def take(self) -> tuple[HostSample, ...]:
        """Take the samples since the last call, and one more of now."""
        if not self._is_on:
            return ()
        samples, self._samples = self._samples, []
        return (*samples, self._host.sample())

    def _run(self) -> None:
        while True:
            self._samples.append(self._host.sample())
            if self._stopped.wait(INTERVAL_S):
                return

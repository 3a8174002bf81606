"""What a host of the generator shows while its tasks make their load: a thread looks now and then.

One task of each host does it for all. A look takes about a millisecond, a second apart.
"""

from __future__ import annotations

import threading
from types import TracebackType

from metrics.sources.hosts.proc import LocalHost
from metrics.sources.hosts.sample import HostSample

INTERVAL_S = 1.0
"""Between two looks [s]."""


class HostWatch:
    """Looks at this machine until the block ends.

    Args:
        host: how to look.
        is_on: False where another task of this host does it.
    """

    def __init__(self, host: LocalHost, *, is_on: bool = True) -> None:
        self._host = host
        self._is_on = is_on
        self._seen: list[HostSample] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="redline-host", daemon=True)

    def __enter__(self) -> HostWatch:
        if self._is_on:
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join()

    def take(self) -> tuple[HostSample, ...]:
        """What was seen since the last call, and one look now."""
        if not self._is_on:
            return ()
        seen, self._seen = self._seen, []
        return (*seen, self._host.look())

    def _run(self) -> None:
        while True:
            self._seen.append(self._host.look())
            if self._stopped.wait(INTERVAL_S):
                return

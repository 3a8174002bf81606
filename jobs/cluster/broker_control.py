"""Control over the processes of brokers, which exists only where the run starts them."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Protocol


class BrokerControl(Protocol):
    """Stops, restarts and observes the processes of brokers on this machine."""

    @property
    def broker_ids(self) -> tuple[int, ...]:
        """Ids of all brokers, ascending, whether they run or not."""
        ...

    @property
    def pids(self) -> Mapping[int, int]:
        """Node id → process id of the nodes that run now, controllers included."""
        ...

    def kill_broker(self, broker_id: int, signum: int = signal.SIGKILL) -> None:
        """Send a signal to a broker; return after its end where the signal ends it."""
        ...

    def restart_broker(self, broker_id: int) -> None:
        """Start a broker again with its data; return when all brokers serve."""
        ...

    def forget_page_cache(self) -> int:
        """Drop the brokers' log segments from the page cache; their size [B].

        Raises:
            ConfigError: the operating system does not support this.
        """
        ...

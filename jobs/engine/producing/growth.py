"""The end of a load's growth: producers that have not begun never do."""

from __future__ import annotations

from collections.abc import Iterable

from jobs.engine.producing.producer import Producer
from jobs.engine.task.control_channel import DriverChannel


class GrowthEnd:
    """The end of a load's growth, which the driver sets while the load runs.

    Args:
        driver: control channel to the driver; None without one.
        start_s: start of the load, on the engine's clock [s].
    """

    def __init__(self, driver: DriverChannel | None, start_s: float) -> None:
        self._driver = driver
        self._start_s = start_s

    def apply(self, producers: Iterable[Producer]) -> None:
        """Withdraw the producers that have not begun, once the driver ends the growth."""
        if self._driver is None or self._driver.climb_end_s is None:
            return
        end_s, self._driver = self._start_s + self._driver.climb_end_s, None
        for each in producers:
            if each.due_s(0) > end_s:
                each.withdraw()

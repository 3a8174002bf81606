"""The limit of brokers with a CPU quota, forecast from two light loads.

A run compares its answer with it. A broker takes some CPU time at rest, and each produce request
takes an own time. With r produce requests per second it uses

    cores = resting + r x own        [cores]

and it is at its limit where that is its quota. Both terms follow from exact windows of the same
broker under two light loads. The formula holds while every request carries one full batch, so that
a request does not change with the load.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from metrics.traffic.producer import ProducerPattern
from metrics.windows.broker import BrokerWindow

QUOTA = "cpus"
"""The environment fact with the cores that each broker may use, by a CPU quota."""


@dataclass(frozen=True)
class CpuTime:
    """The CPU time of one broker.

    Attributes:
        own_s: CPU time of a produce request [s].
        resting_cores: CPU time that does not depend on the load, per second [cores].
    """

    own_s: float
    resting_cores: float = 0.0

    def requests_per_s(self, cores: float) -> float:
        """The rate of produce requests that takes this CPU time [1/s].

        Infinite where a request takes no time; 0 where the broker needs more at rest.
        """
        room = max(0.0, cores - self.resting_cores)
        return room / self.own_s if self.own_s > 0 else math.inf


def cpu_quota(environment: Mapping[str, str]) -> float | None:
    """The cores that each broker may use by its quota; None without a stated quota."""
    stated = environment.get(QUOTA)
    return None if stated is None else float(stated)


def forecast_producers(
    brokers: Sequence[CpuTime], producer: ProducerPattern, cores: float
) -> float:
    """The number of producers at which the first broker has used up its quota; a fraction.

    Args:
        brokers: all brokers; each leads the same number of partitions.
        producer: the pattern of each producer; each of its requests carries one batch.
        cores: the quota of each broker.
    """
    least = min(each.requests_per_s(cores) for each in brokers)
    return least * len(brokers) * producer.batch_interval_s


def cpu_times(
    light: Sequence[BrokerWindow], heavier: Sequence[BrokerWindow]
) -> tuple[CpuTime, ...]:
    """The CPU time of each broker, from its windows at two light loads.

    Raises:
        ValueError: a broker does not report its CPU time or its produce requests, or did not use
            more at the heavier load.
    """
    of_brokers = {window.broker_id: window for window in heavier}
    return tuple(_cpu_time(window, of_brokers.get(window.broker_id)) for window in light)


def _cpu_time(light: BrokerWindow, heavier: BrokerWindow | None) -> CpuTime:
    (rate, cores), (more_rate, more_cores) = _used(light), _used(heavier or light)
    if more_rate <= rate or more_cores <= cores:
        raise ValueError(
            f"broker {light.broker_id} used {cores:.3f} cores for {rate:.0f} produce requests/s, "
            f"and {more_cores:.3f} for {more_rate:.0f}; expected more at the heavier load"
        )
    own_s = (more_cores - cores) / (more_rate - rate)
    return CpuTime(own_s, max(0.0, cores - rate * own_s))


def _used(window: BrokerWindow) -> tuple[float, float]:
    """The rate of produce requests [1/s], and the CPU time of the broker per second [cores]."""
    rate, cores = window.produce.per_s, window.cpu_cores
    if not rate or cores is None:
        raise ValueError(
            f"broker {window.broker_id} does not report its CPU time, or its produce requests"
        )
    return rate, cores

"""The windows of production: one for the answer, and shorter ones that show its scatter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from metrics.headroom.loads import Key, ResourceLoad, loads_of
from metrics.judging.thresholds import Indicators
from metrics.sources.hosts.sample import HostSample
from metrics.sources.sample import BrokerSample
from metrics.windows.broker import BrokerWindow, broker_windows
from metrics.windows.host import HostWindow, host_windows

SLICES = 6
"""Number of parts of the window, whose scatter shows how sure its means are."""
IDLE_BYTES_PER_S = 1_000.0
"""Input of all brokers below which a cluster is idle [B/s]."""


@dataclass(frozen=True)
class Windows:
    """The windows of all brokers and hosts over the same time."""

    brokers: tuple[BrokerWindow, ...]
    hosts: tuple[HostWindow, ...] = ()


@dataclass(frozen=True)
class Today:
    """The traffic of production.

    Attributes:
        source: source of the metrics.
        start_s, end_s: the window [s since the epoch].
        whole: the windows over all of it.
        parts: the windows of its parts.
        machines: broker id → name of its machine, where it is known.
        note: how the window was chosen; empty for the last minute or so.
    """

    source: str
    start_s: float
    end_s: float
    whole: Windows
    parts: Sequence[Windows] = ()
    machines: Mapping[int, str] = field(default_factory=dict)
    note: str = ""

    @property
    def bytes_in_per_s(self) -> float | None:
        """Input of all brokers from producers [B/s]; None where a broker does not show it."""
        rates = [each.bytes_in_per_s for each in self.whole.brokers]
        return None if None in rates or not rates else sum(filter(None, rates))

    @property
    def is_idle(self) -> bool:
        """Whether producers write next to nothing."""
        taken = self.bytes_in_per_s
        return taken is not None and taken < IDLE_BYTES_PER_S

    def loads(self, limits: Indicators) -> dict[int, dict[Key, ResourceLoad]]:
        """Broker id → the use of its resources in the whole window."""
        return loads_of(self.whole.brokers, self.whole.hosts, limits, self.machines)

    def parts_of(self, limits: Indicators) -> list[dict[int, dict[Key, ResourceLoad]]]:
        """The same for each part."""
        return [loads_of(each.brokers, each.hosts, limits, self.machines) for each in self.parts]


def today_of(
    source: str,
    samples: Sequence[BrokerSample],
    hosts: Sequence[HostSample],
    brokers: Sequence[int],
    brokers_by_host: Mapping[str, Sequence[int]],
    span: tuple[float, float, float],
    link_mbit_per_s: float | None = None,
    machines: Mapping[int, str] | None = None,
) -> Today:
    """Today's windows from samples of some seconds.

    Args:
        source: source of the metrics.
        samples, hosts: samples of brokers and hosts in the span.
        brokers: ids of the brokers.
        brokers_by_host: host → ids of the brokers that run on it.
        span: start and end [s since the epoch], and the time between samples [s].
        link_mbit_per_s: stated speed of the brokers' network interfaces.
        machines: broker id → name of its machine.
    """
    start_s, end_s, interval_s = span

    def between(from_s: float, to_s: float) -> Windows:
        return Windows(
            broker_windows(samples, brokers, from_s, to_s, interval_s, link_mbit_per_s),
            host_windows(hosts, from_s, to_s, brokers_by_host),
        )

    count = max(1, min(SLICES, int((end_s - start_s) / (3 * interval_s))))
    step_s = (end_s - start_s) / count
    parts = [between(start_s + n * step_s, start_s + (n + 1) * step_s) for n in range(count)]
    return Today(
        source, start_s, end_s, between(start_s, end_s),
        parts if count > 1 else (), machines or {},
    )  # fmt: skip

"""The smallest of the set-ups that a sweep measured which carries a load. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from metrics.common.errors import ConfigError
from metrics.comparing.sweeps import Result
from metrics.units import format_size

SIZES = (
    "cluster.testbed.brokers",
    "cluster.testbed.properties.cpus",
    "cluster.testbed.properties.heap_mb",
    "cluster.testbed.properties.log_dirs",
)
"""What makes a set-up larger, the dearest first; other settings cost nothing."""
DAY_S = 86_400


@dataclass(frozen=True)
class Setup:
    """A case of a sweep, and what it carries.

    Attributes:
        settings: full path of each key that varies → its value.
        bpm: message size [B].
        mb_per_s: the lowest of its limits' lower ends at 90 %, over all repeats [MB/s].
    """

    settings: Mapping[str, str]
    bpm: int
    mb_per_s: float

    @property
    def gb_per_day(self) -> float:
        """Payload of a day [GB]."""
        return self.mb_per_s * DAY_S / 1e3

    @property
    def messages_per_minute(self) -> float:
        """Messages of a minute."""
        return self.mb_per_s * 1e6 / self.bpm * 60

    @property
    def size(self) -> tuple[float, ...]:
        """How large it is, to compare with others of its sweep."""
        return tuple(float(self.settings.get(path, 0)) for path in SIZES)


def setups_of(results: Sequence[Result], bpm: int) -> list[Setup]:
    """What each case carries at a message size, the smallest set-up first.

    Raises:
        ConfigError: no case has a limit at this size, or they are not in MB/s.
    """
    sizes = sorted({each.bpm for each in results if each.value})
    if bpm not in sizes:
        known = ", ".join(map(format_size, sizes)) or "none"
        raise ConfigError(
            f"no case of the sweep has a limit at {format_size(bpm)}; expected a size that was "
            f"measured: {known}; name one, or measure it"
        )
    lowest: dict[tuple[tuple[str, str], ...], float] = {}
    for each in results:
        if each.bpm == bpm and each.value:
            case = tuple(sorted(each.settings.items()))
            low = min(each.value, each.low or each.value)
            lowest[case] = min(low, lowest.get(case, low))
    found = [Setup(dict(case), bpm, low) for case, low in lowest.items()]
    return sorted(found, key=lambda one: (*one.size, one.mb_per_s))


def smallest(setups: Sequence[Setup], mb_per_s: float) -> Setup | None:
    """The first that carries so much; None where none does."""
    return next((one for one in setups if one.mb_per_s >= mb_per_s), None)

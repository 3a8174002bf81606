"""The smallest of the set-ups that a sweep measured which carries a load. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from metrics.columns import Column
from metrics.common.errors import ConfigError
from metrics.comparing.sweeps import Result
from metrics.units import format_size

BROKERS_KEY = "cluster.testbed.brokers"
"""Full path of the number of brokers that a run starts."""
PROPERTIES_PREFIX = "cluster.testbed.properties."
"""Full path of the brokers' properties, before the name of one."""
SIZES = (
    BROKERS_KEY,
    f"{PROPERTIES_PREFIX}cpus",
    f"{PROPERTIES_PREFIX}heap_mb",
    f"{PROPERTIES_PREFIX}log_dirs",
)
"""What makes a set-up larger, the dearest first; other settings cost nothing."""
DAY_S = 86_400


@dataclass(frozen=True)
class Setup:
    """A case of a sweep, and what it carries.

    Attributes:
        settings: full path of each key that varies → its value.
        message_bytes: message size [B].
        mb_per_s: the lowest of its limits' lower ends at 90 %, over all repeats [MB/s].
    """

    settings: Mapping[str, str]
    message_bytes: Annotated[int, Column("bpm")]
    mb_per_s: float

    @property
    def gb_per_day(self) -> float:
        """Payload of a day [GB]."""
        return self.mb_per_s * DAY_S / 1e3

    @property
    def messages_per_minute(self) -> float:
        """Messages of a minute."""
        return self.mb_per_s * 1e6 / self.message_bytes * 60

    @property
    def size(self) -> tuple[float, ...]:
        """How large it is, to compare with others of its sweep."""
        return tuple(float(self.settings.get(path, 0)) for path in SIZES)


def setups_of(results: Sequence[Result], message_bytes: int) -> list[Setup]:
    """What each case carries at a message size, the smallest set-up first.

    Raises:
        ConfigError: no case has a limit at this size, or they are not in MB/s.
    """
    sizes = sorted({each.message_bytes for each in results if each.value})
    if message_bytes not in sizes:
        known = ", ".join(map(format_size, sizes)) or "none"
        raise ConfigError(
            f"no case of the sweep has a limit at {format_size(message_bytes)}; expected a "
            f"size that was measured: {known}; name one, or measure it"
        )
    lowest: dict[tuple[tuple[str, str], ...], float] = {}
    for each in results:
        if each.message_bytes == message_bytes and each.value:
            case = tuple(sorted(each.settings.items()))
            low = min(each.value, each.low or each.value)
            lowest[case] = min(low, lowest.get(case, low))
    found = [Setup(dict(case), message_bytes, low) for case, low in lowest.items()]
    return sorted(found, key=lambda one: (*one.size, one.mb_per_s))


def smallest(setups: Sequence[Setup], mb_per_s: float) -> Setup | None:
    """The first that carries so much; None where none does."""
    return next((one for one in setups if one.mb_per_s >= mb_per_s), None)

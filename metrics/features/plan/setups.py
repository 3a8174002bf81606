"""The smallest measured set-up of a sweep that carries a load. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from metrics.columns import Column
from metrics.common.errors import ConfigError
from metrics.comparing.figures import BROKERS_KEY, PROPERTIES_PREFIX, Result
from metrics.units import format_size

SIZES = (
    BROKERS_KEY,
    f"{PROPERTIES_PREFIX}cpus",
    f"{PROPERTIES_PREFIX}heap_mb",
    f"{PROPERTIES_PREFIX}log_dirs",
)
"""Keys that determine the size of a set-up, the most expensive first."""
DAY_S = 86_400


@dataclass(frozen=True)
class Setup:
    """A case of a sweep, and the load that it carries.

    Attributes:
        settings: full path of each key that varies → its value.
        message_bytes: message size [B].
        mb_per_s: lowest lower end of the limits' 90 % intervals over all repeats [MB/s].
    """

    settings: Mapping[str, str]
    message_bytes: Annotated[int, Column("bpm")]
    mb_per_s: float

    @property
    def gb_per_day(self) -> float:
        """The payload per day [GB]."""
        return self.mb_per_s * DAY_S / 1e3

    @property
    def messages_per_minute(self) -> float:
        """The number of messages per minute."""
        return self.mb_per_s * 1e6 / self.message_bytes * 60

    @property
    def size(self) -> tuple[float, ...]:
        """A sort key for the size of the set-up."""
        return tuple(float(self.settings.get(path, 0)) for path in SIZES)


def setups_of(results: Sequence[Result], message_bytes: int) -> list[Setup]:
    """The set-ups of all cases with a limit at a message size, the smallest first.

    Raises:
        ConfigError: no case has a limit at this size.
    """
    sizes = sorted({each.message_bytes for each in results if each.value})
    if message_bytes not in sizes:
        known = ", ".join(map(format_size, sizes)) or "none"
        raise ConfigError(
            f"the sweep has no limit at {format_size(message_bytes)}; expected a measured size: "
            f"{known}; name one of these, or measure this size"
        )
    lowest: dict[tuple[tuple[str, str], ...], float] = {}
    for each in results:
        if each.message_bytes == message_bytes and each.value:
            case = tuple(sorted(each.settings.items()))
            low = min(each.value, each.low or each.value)
            lowest[case] = min(low, lowest.get(case, low))
    found = [Setup(dict(case), message_bytes, low) for case, low in lowest.items()]
    return sorted(found, key=lambda one: (*one.size, one.mb_per_s))


def smallest_setup(setups: Sequence[Setup], mb_per_s: float) -> Setup | None:
    """The first set-up that carries a load; None if there is none."""
    return next((one for one in setups if one.mb_per_s >= mb_per_s), None)

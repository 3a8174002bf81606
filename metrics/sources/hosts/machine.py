"""The machine behind an address of node_exporter: its name and the time of its boot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone

BOOT_TIME_S = "boot_time_s"
UNAME = "uname"
IDENTITY = frozenset({BOOT_TIME_S, UNAME})
"""Readings that tell machines apart, and are no metrics."""
IDENTITY_SERIES: Mapping[str, str] = {
    BOOT_TIME_S: "node_boot_time_seconds",
    UNAME: (
        'node_uname_info{nodename="*",domainname="*",machine="*",release="*",sysname="*",'
        'version="*"}'
    ),
}
_CLOCK_STEP_S = 2.0
"""Largest change of the time of a boot, which the kernel derives from its clock [s]."""


@dataclass(frozen=True)
class Machine:
    """A machine as it names itself.

    Attributes:
        name: name of the host in its kernel.
        booted_s: time of its boot [s since the epoch].
    """

    name: str
    booted_s: float

    @property
    def text(self) -> str:
        """The machine in words."""
        booted = datetime.fromtimestamp(self.booted_s, timezone.utc)
        return f"machine {self.name}, booted {booted:%Y-%m-%d %H:%M:%S} UTC"

    def is_one_with(self, other: Machine) -> bool:
        """Whether both are the same machine since the same boot."""
        is_same_boot = abs(self.booted_s - other.booted_s) <= _CLOCK_STEP_S
        return self.name == other.name and is_same_boot

    def is_before(self, other: Machine) -> bool:
        """Whether the other one is this machine, since this boot or a later one."""
        return self.name == other.name and other.booted_s >= self.booted_s - _CLOCK_STEP_S


def machine_in(values: Mapping[str, float]) -> Machine | None:
    """The machine that a scrape shows; None where the collectors of its identity are disabled."""
    texts = [name.partition(":")[2] for name in values if name.startswith(f"{UNAME}:")]
    booted_s = values.get(BOOT_TIME_S)
    if not texts or booted_s is None:
        return None
    return Machine(texts[0].partition("/")[0], booted_s)

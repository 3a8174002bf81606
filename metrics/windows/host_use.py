"""The USE table of a host: utilization, saturation and errors of what the kernel counts.

The rows and their questions are those of Gregg's checklist for Linux
(https://www.brendangregg.com/USEmethod/use-linux.html).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from metrics.windows.host import HostWindow
from metrics.windows.resource import Resource


@dataclass(frozen=True)
class HostUse:
    """One resource of one host in one window.

    Attributes:
        host: its name.
        resource: what was used.
        device: which disk or interface; empty for what there is one of.
        utilization: share of it that was in use [ratio].
        saturation: how much work waited for it [saturation_unit].
        saturation_unit: what `saturation` counts.
        errors: how often it failed [errors_unit].
        errors_unit: what `errors` counts.
    """

    host: str
    resource: Resource
    device: str = ""
    utilization: float | None = None
    saturation: float | None = None
    saturation_unit: str = ""
    errors: float | None = None
    errors_unit: str = ""


def host_use_of(window: HostWindow) -> tuple[HostUse, ...]:
    """The rows of one host; of one that shows nothing none."""
    if window.start_s is None:
        return ()
    host = window.host
    return (
        HostUse(
            host,
            Resource.CPU,
            "",
            window.cpu_busy,
            window.waiting_threads,
            "threads waiting",
        ),
        HostUse(
            host,
            Resource.MEMORY,
            "",
            window.memory_used_share,
            window.swapped_pages_per_s,
            "pages swapped/s",
            window.oom_kills,
            "processes killed",
        ),
        *(
            HostUse(
                host, Resource.DISK, disk.device, disk.busy_share, disk.queue, "operations waiting"
            )
            for disk in window.disks
        ),
        *(
            HostUse(
                host,
                Resource.NETWORK,
                each.device,
                each.used_share,
                each.dropped,
                "packets dropped",
                each.errors,
                "damaged packets",
            )
            for each in window.interfaces
        ),
        HostUse(
            host,
            Resource.NETWORK,
            "TCP",
            None,
            window.listen_overflows,
            "connections turned away",
            window.retransmitted_share,
            "share of segments sent again",
        ),
    )


def host_use_table(hosts: Iterable[HostWindow]) -> tuple[HostUse, ...]:
    """The tables of all hosts, one below the other."""
    return tuple(row for window in hosts for row in host_use_of(window))

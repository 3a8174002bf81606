"""The USE table of a host: utilization, saturation and errors by the kernel's counters.

The rows are those of Gregg's checklist for Linux
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
        host: name of the host.
        resource: the resource.
        device: name of the disk or interface; empty for other resources.
        utilization: share of the resource that was in use [ratio].
        saturation: work that waited for it [saturation_unit].
        saturation_unit: unit of `saturation`.
        errors: number of errors [errors_unit].
        errors_unit: unit of `errors`.
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
    """The rows of one host; empty for a host without samples."""
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

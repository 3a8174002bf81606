"""The USE table of a host: utilization, saturation and errors by the kernel's counters.

The rows are those of Gregg's checklist for Linux
(https://www.brendangregg.com/USEmethod/use-linux.html).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from metrics.windows.host import HostWindow
from metrics.windows.resource import Resource
from metrics.windows.write_back import WriteBackWindow


@dataclass(frozen=True)
class HostUse:
    """One resource of one host in one window.

    Attributes:
        host: name of the host.
        resource: the resource.
        device: name of the disk or interface, or a part of the memory; empty for the whole.
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


def write_back_use_of(window: WriteBackWindow) -> HostUse:
    """The row of the memory that holds written pages until disks have them."""
    return HostUse(
        window.host,
        Resource.MEMORY,
        "pages to write",
        window.unwritten_share,
        window.writeback_bytes,
        "bytes being written",
    )


def host_use_table(
    hosts: Iterable[HostWindow], write_back: Iterable[WriteBackWindow] = ()
) -> tuple[HostUse, ...]:
    """The tables of all hosts, one below the other, then the pages that each has to write."""
    return (
        *(row for window in hosts for row in host_use_of(window)),
        *map(write_back_use_of, write_back),
    )

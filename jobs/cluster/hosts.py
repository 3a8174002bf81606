"""The host source for brokers that run on this machine."""

from __future__ import annotations

import ipaddress
import logging
import socket
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil

from jobs.cluster.admin import AdminError
from jobs.cluster.opening import OpenCluster
from jobs.engine.network.namespaces import inside
from jobs.testbed import facade
from metrics.common.errors import ConfigError
from metrics.sources.hosts.proc import LocalHost, LocalHosts
from metrics.sources.hosts.queues import Queues, open_netlink
from metrics.sources.hosts.source import HostSource, NoHosts

_log = logging.getLogger(__name__)


def local_hosts(opened: OpenCluster, broker_folders: Path | None = None) -> HostSource:
    """A source that reads this machine where all brokers run on it, else `NoHosts`.

    Args:
        broker_folders: folder with the files of brokers that another command started on this
            machine; a folder of the cache by default.
    """
    hosts, ids = opened.info.hosts, opened.info.broker_ids
    pids = _local_pids(opened, broker_folders)
    if pids is not None:
        host = _host_of(opened, pids).with_log_dirs(_log_dirs(opened))
        return LocalHosts(host, ids, pids)
    if hosts and all(map(_is_here, set(hosts.values()))):
        return LocalHosts(LocalHost(queues=Queues()).with_log_dirs(_log_dirs(opened)), ids)
    return NoHosts()


def _local_pids(
    opened: OpenCluster, broker_folders: Path | None
) -> Callable[[], Mapping[int, int]] | None:
    """A reader of node id → process id; None where the brokers' processes are unknown."""
    control = opened.broker_control
    if control is not None:
        return lambda: control.pids
    return facade.pids_behind(opened.network_namespace, broker_folders)


def _host_of(opened: OpenCluster, processes: Callable[[], Mapping[int, int]]) -> LocalHost:
    """This machine; behind a link, the brokers' network namespace under a name of its own."""
    if not opened.network_namespace:
        return LocalHost(queues=Queues())

    def a_broker() -> int | None:
        pids = processes()
        return next((pids[each] for each in opened.info.broker_ids if each in pids), None)

    name = f"{socket.gethostname()}/brokers"
    queues = Queues(lambda: _netlink_of(a_broker()))
    return LocalHost(name, network_of=a_broker, speeds=opened.interface_speeds, queues=queues)


def _log_dirs(opened: OpenCluster) -> list[Path]:
    """The brokers' log dirs; none where the brokers do not show them to this user."""
    found: set[str] = set()
    for broker in opened.info.broker_ids:
        try:
            answers = opened.admin.log_dirs_of(broker, {})
        except AdminError as error:
            _log.warning("the disks of broker %d are not known: %s", broker, error)
            continue
        found.update(str(each["log_dir"]) for each in answers if each.get("log_dir"))
    return [Path(each) for each in sorted(found)]


def _netlink_of(pid: int | None) -> socket.socket:
    """A socket to the kernel's side of the network namespace of this process.

    Raises:
        OSError: the process has ended, or this user may not enter its namespace.
    """
    if pid is None:
        raise OSError("no broker runs")
    try:
        with inside(f"/proc/{pid}/ns/net"):
            return open_netlink()
    except ConfigError as error:
        raise OSError(str(error)) from error


def _is_here(host: str) -> bool:
    """Whether all addresses of a host belong to this machine."""
    try:
        found = {each[4][0] for each in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except OSError:
        return False
    own = {each.address for listed in psutil.net_if_addrs().values() for each in listed}
    return all(ipaddress.ip_address(each).is_loopback or each in own for each in map(str, found))

"""The entry to testbeds for the rest of the product; other modules of this package stay inside.

`jobs.config.cluster.TestbedOptions` describes the brokers to start. The command group
`redline testbed` is in `jobs.testbed.commands`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from jobs.config.cluster import TestbedOptions
from jobs.config.link import RATE
from jobs.setup.jars import kafka_jars
from jobs.testbed.handle import Testbed
from jobs.testbed.known_properties import require_known, without_newer
from jobs.testbed.launcher import require_possible, start
from jobs.testbed.model import HOST
from jobs.testbed.places import default_root, folder_behind, free_ports, node_pids
from jobs.testbed.planted_devices import DEVICE, require_devices
from jobs.testbed.profile import profile_of

JVM_OVERHEAD_BYTES = 350_000_000
"""Memory of a broker's JVM beside its heap, for code, threads and direct buffers [B]; measured 250
to 330 MB."""

StartedBrokers = Testbed
"""Brokers that a run started, with control over their processes."""


# --- before the start -------------------------------------------------------


def require_startable(options: TestbedOptions) -> None:
    """Check the settings of a testbed, and start nothing.

    The properties of its profile are checked at the start, as that check needs Kafka's jars.

    Raises:
        ConfigError: the profile or a value is wrong, this machine has too few cores or cannot make
            the link or the disks, or Kafka does not know a property that the cluster's file or an
            option gives.
    """
    profile, given = profile_of(options), options.properties
    require_possible(profile)
    require_known([name for name in given if name in profile.broker], profile.kafka_version)


def check_kafka(options: TestbedOptions) -> str:
    """Kafka's release and the number of its jars, for people.

    Raises:
        ConfigError: a value is wrong, or Kafka does not know a property.
        RedlineError: the jars are missing and cannot be downloaded.
    """
    profile = profile_of(options)
    without_newer({**profile.broker, **profile.controller}, options.kafka_version)
    jars = kafka_jars(options.kafka_version)
    return f"{options.kafka_version}, {len(jars)} files in {jars[0].parent}"


def check_link(options: TestbedOptions) -> str | None:
    """The testbed's link in words; None where it has no link.

    Raises:
        ConfigError: this machine cannot make the link.
    """
    link = profile_of(options).link
    if link is None:
        return None
    require_devices(link, None)
    return f"{link.words()} can be made"


def check_disk(options: TestbedOptions) -> str | None:
    """The testbed's planted disks in words; None where it has none.

    Raises:
        ConfigError: this machine cannot make the disks.
    """
    disk = profile_of(options).disk
    if disk is None:
        return None
    require_devices(None, disk)
    return f"{disk.words()}; they can be made"


def check_ports(options: TestbedOptions) -> str:
    """The number of ports that are free for the testbed, for people.

    Raises:
        TestbedStartError: too few ports are free.
    """
    # A listener, one for the brokers among themselves and JMX for each; and the controller's.
    count = 3 * options.brokers + 2
    free_ports(count)
    return f"{count} free on {HOST}"


def memory_bytes(options: TestbedOptions) -> int:
    """Memory that the testbed's brokers and its controller take on this machine [B]."""
    profile = profile_of(options)
    nodes = profile.brokers + 1  # and the controller
    return nodes * (profile.heap_mb * 2**20 + JVM_OVERHEAD_BYTES)


# --- while it runs ----------------------------------------------------------


def start_brokers(
    options: TestbedOptions, meanwhile: Callable[[], object] = lambda: None
) -> StartedBrokers:
    """Start the brokers; the result is a context manager that stops them.

    Args:
        meanwhile: called while the brokers start.

    Raises:
        ConfigError: a value is wrong, or this machine cannot start these brokers.
        TestbedStartError: the brokers do not become ready.
    """
    return start(options.profile, overrides=options.overrides, meanwhile=meanwhile)


def interface_speeds(link: Mapping[str, str]) -> dict[str, float]:
    """Network interface at the ends of a link → the speed that the link sets [B/s].

    Args:
        link: the link's keys as texts.
    """
    rate = link.get("rate")
    return {} if rate is None else {DEVICE: RATE.of(rate)}


def pids_behind(
    network_namespace: str, root: Path | None = None
) -> Callable[[], Mapping[int, int]] | None:
    """A reader of node id → process id of the testbed whose clients use this namespace.

    None where no testbed of this machine has it.

    Args:
        root: folder of all testbeds; the cache's by default.
    """
    folder = folder_behind(root or default_root(), network_namespace)
    return None if folder is None else partial(node_pids, folder)

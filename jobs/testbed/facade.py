"""The interface of this package for the rest of the product; its other modules are internal.

`jobs.config.cluster.TestbedOptions` describes the brokers to start. The command group
`redline testbed` is in `jobs.testbed.commands`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from jobs.config.cluster import TestbedOptions
from jobs.config.link import RATE
from jobs.setup.jars import kafka_jars
from jobs.testbed.handle import Testbed
from jobs.testbed.known_properties import require_known, without_newer
from jobs.testbed.launcher import require_possible, start
from jobs.testbed.model import HOST
from jobs.testbed.places import default_root, free_ports, node_pids, readable_states
from jobs.testbed.planted_devices import DEVICE, require_devices
from jobs.testbed.profile import profile_of

JVM_OVERHEAD_BYTES = 350_000_000
"""Memory of a broker's JVM in addition to the heap, for code, threads and direct buffers [B].

250 to 330 MB were measured."""

StartedBrokers = Testbed
"""Brokers that a run started, with control over their processes."""


# --- before the start -------------------------------------------------------


def require_startable(options: TestbedOptions) -> None:
    """Check the settings of a testbed, and start nothing.

    The profile's properties are checked only at the start, because that check requires Kafka's
    jars.

    Raises:
        ConfigError: the profile or a value is wrong, this machine lacks a requirement of the
            testbed, or Kafka does not know a property in the cluster's file or in an option.
    """
    profile, given = profile_of(options), options.properties
    require_possible(profile)
    require_known([name for name in given if name in profile.broker], profile.kafka_version)


def check_kafka(options: TestbedOptions) -> str:
    """A phrase with Kafka's release and the number of its jars.

    Raises:
        ConfigError: a value is wrong, or Kafka does not know a property.
        RedlineError: the jars are missing and cannot be downloaded.
    """
    profile = profile_of(options)
    without_newer({**profile.broker, **profile.controller}, options.kafka_version)
    jars = kafka_jars(options.kafka_version)
    return f"{options.kafka_version}, {len(jars)} files in {jars[0].parent}"


def check_link(options: TestbedOptions) -> str | None:
    """Check that the link can be created, and return a phrase for the link; None if there is no
    link.

    Raises:
        ConfigError: this machine cannot create the link.
    """
    link = profile_of(options).link
    if link is None:
        return None
    require_devices(link, None)
    return f"{link.words()}; it can be created"


def check_disk(options: TestbedOptions) -> str | None:
    """Check that the disks can be created, and return a phrase for the disks; None if there are
    none.

    Raises:
        ConfigError: this machine cannot create the disks.
    """
    disk = profile_of(options).disk
    if disk is None:
        return None
    require_devices(None, disk)
    return f"{disk.words()}; they can be created"


def check_ports(options: TestbedOptions) -> str:
    """A phrase with the number of free ports that the testbed requires.

    Raises:
        TestbedStartError: too few ports are free.
    """
    # For each broker a client listener, an internal listener and JMX; two for the controller.
    count = 3 * options.brokers + 2
    free_ports(count)
    return f"{count} free on {HOST}"


def memory_bytes(options: TestbedOptions) -> int:
    """Memory that the testbed's brokers and controller use on this machine [B]."""
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
    """Network interface at the ends of a link → its speed [B/s], which is the rate of the link.

    Args:
        link: key → value of the link, as texts.
    """
    rate = link.get("rate")
    return {} if rate is None else {DEVICE: RATE.of(rate)}


def pids_behind(network_namespace: str) -> Callable[[], Mapping[int, int]] | None:
    """A function that returns node id → process id for one testbed: the testbed whose clients
    connect from this network namespace. None if no testbed of this machine has the namespace.

    Args:
        network_namespace: file of the network namespace; empty for no namespace.
    """
    for folder, state in readable_states(default_root()) if network_namespace else []:
        if state.network_namespace == network_namespace:
            return partial(node_pids, folder)
    return None

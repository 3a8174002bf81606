"""The two sides of a comparison, from what the command line names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jobs.config import Configuration, load
from jobs.config.loading import load_cluster
from jobs.setup.preflight import Machine, memory_problem, this_machine
from jobs.testbed.profile import adapted, load_profile
from metrics.comparing.pairs import Side
from search.errors import ConfigError

TESTBED_KEYS = {
    "kafka": "kafka_version",
    "profile": "profile",
    "brokers": "brokers",
    "security": "security",
    "jmx_secured": "jmx_secured",
}
"""Settings of a side that are no broker properties → keys of `testbed` in a cluster's file."""

FULL_WINDOWS = "workload.trial.early_end_error_rate=0"
"""Windows are held for their full time: one that ends by what it saw is no fair sample."""

JVM_OVERHEAD_BYTES = 350_000_000
"""Of a broker's JVM beside its heap: code, threads, direct buffers [B]; measured 250 to 330 MB."""
SPARK_BYTES = 1_500_000_000
"""Driver, its JVM and the Python workers [B]."""


@dataclass(frozen=True)
class SideSetup:
    """One side as ordered.

    Attributes:
        label: as the command line has it.
        config: complete.
    """

    label: str
    config: Configuration

    @property
    def memory_bytes(self) -> int:
        """What the side's own brokers take on this machine [B]; 0 for real clusters."""
        testbed = self.config.cluster.testbed
        if testbed is None:
            return 0
        profile = adapted(
            load_profile(testbed.profile), brokers=testbed.brokers, overrides=testbed.overrides
        )
        nodes = profile.brokers + 1  # and the controller
        return nodes * (profile.heap_mb * 2**20 + JVM_OVERHEAD_BYTES)


def settings_of(spec: str) -> dict[str, str] | None:
    """`kafka=3.9.2,num.io.threads=2` as settings; None when it names a cluster's file.

    A comma ends a setting only where another one follows, as values can hold commas.

    Raises:
        ConfigError: a setting is given twice, or has no name.
    """
    if "=" not in spec:
        return None
    settings: dict[str, str] = {}
    for part in re.split(r",(?=\s*[\w.-]+=)", spec):
        key, _, value = (text.strip() for text in part.partition("="))
        if not key or not value or key in settings:
            raise ConfigError(
                f"{part.strip()!r} in {spec!r} is no setting, or one that was given before; "
                "expected settings such as kafka=4.3.1,num.io.threads=2; correct it"
            )
        settings[key] = value
    return settings


def _overrides(settings: Mapping[str, str]) -> list[str]:
    """The settings as `--set` options have them."""
    return [
        f"cluster.testbed.{TESTBED_KEYS.get(key, f'properties.{key}')}={value}"
        for key, value in settings.items()
    ]


def load_sides(
    specs: Mapping[Side, str], cluster: str, workload: str, goal: str, overrides: Sequence[str]
) -> dict[Side, SideSetup]:
    """Both sides, each checked as `redline find-limit` checks its own.

    Args:
        specs: for each side a cluster (a file of conf/clusters, or a path), or settings of the
            testbed `cluster`.

    Raises:
        ConfigError: a file or a setting is wrong, or the goal is not along np.
    """
    sides = {}
    for side, spec in specs.items():
        settings = settings_of(spec)
        if settings is None:
            config = load(spec, workload, goal, (*overrides, FULL_WINDOWS))
        else:
            if load_cluster(cluster, overrides).testbed is None:
                raise ConfigError(
                    f"--{side.value.lower()} {spec} gives settings, and cluster {cluster} is no "
                    "testbed; expected a testbed, whose brokers a comparison may start as it "
                    "likes; name two cluster files instead, or another --cluster"
                )
            given = (*overrides, *_overrides(settings), FULL_WINDOWS)
            config = load(cluster, workload, goal, given)
        _require_np(config)
        sides[side] = SideSetup(spec, config)
    return sides


def _require_np(config: Configuration) -> None:
    axis = config.goal.search.axis
    if axis != "np":
        raise ConfigError(
            f"goal {config.goal.name} searches along {axis}; a comparison offers more than either "
            "side takes, which is a number of producers; expected goal.search.axis np; choose "
            "another goal"
        )


def needed_bytes(sides: Mapping[Side, SideSetup]) -> int:
    """Memory that both sides and Spark take on this machine, all at the same time [B]."""
    return SPARK_BYTES + sum(side.memory_bytes for side in sides.values())


def require_memory(sides: Mapping[Side, SideSetup], machine: Machine | None = None) -> None:
    """Refuse testbeds that do not fit into the memory beside each other.

    Raises:
        ConfigError: there is too little.
    """
    problem = memory_problem(machine or this_machine(), needed_bytes(sides))
    if problem is not None:
        raise ConfigError(
            f"both sides' brokers run at the same time. {problem} Or compare with fewer brokers, "
            "for example --set cluster.testbed.brokers=1 "
            "--set workload.topic.replication_factor=1"
        )

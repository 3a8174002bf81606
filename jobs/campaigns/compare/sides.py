"""The two sides of a comparison, from the command line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jobs.config import Configuration, Goal, Workload, load
from jobs.config.fields import all_keys
from jobs.config.files import SUFFIXES
from jobs.config.loading import (
    available,
    describe,
    load_cluster,
    require_endless,
    require_open_loop,
)
from jobs.config.overrides import FILES
from jobs.setup.preflight import Machine, memory_problem, this_machine
from jobs.testbed import facade
from metrics.common.errors import ConfigError
from metrics.comparing.pairs import Side
from metrics.planning.setups import PROPERTIES_PREFIX
from metrics.traffic.axes import NP, SCALE

TESTBED_KEYS = {
    "kafka": "kafka_version",
    "profile": "profile",
    "brokers": "brokers",
    "metadata": "metadata",
    "security": "security",
    "jmx_secured": "jmx_secured",
}
"""Settings of a side beside broker properties, with their keys of `testbed` in a cluster's file."""

SAME_ON_BOTH = (
    ("workload", "message_bytes"),
    ("workload", "np"),
    ("workload", "producer", "rate"),
    ("workload", "producer", "rate_bytes_per_s"),
    ("workload", "producer", "rate_records_per_s"),
    ("goal", "search"),
)
"""Keys, and those below them, by which a comparison chooses the load that both sides get."""

SAME_IN_PARTS = (
    ("producers",),
    ("message_bytes",),
    ("producer", "rate_bytes_per_s"),
    ("producer", "rate_records_per_s"),
)
"""The same keys in each part of a mix."""

FULL_WINDOWS = "workload.trial.early_end_error_rate=0"
"""The setting that gives all windows their full time; a window that ends early is biased."""

SPARK_BYTES = 1_500_000_000
"""Memory of the driver, its JVM and the Python workers [B]."""


@dataclass(frozen=True)
class SideSetup:
    """The set-up of one side.

    Attributes:
        label: the side as on the command line.
        config: its complete configuration.
    """

    label: str
    config: Configuration

    @property
    def settings(self) -> dict[str, str]:
        """The values of the workload's and the goal's keys, by their paths."""
        found = {}
        for file, model in (("workload", self.config.workload), ("goal", self.config.goal)):
            found.update({f"{file}.{key}": str(value) for key, value in describe(model).items()})
        return {key: found[key] for key in found if not key.endswith((".name", ".description"))}

    @property
    def memory_bytes(self) -> int:
        """The memory of the side's own brokers on this machine [B]; 0 for other clusters."""
        testbed = self.config.cluster.testbed
        return 0 if testbed is None else facade.memory_bytes(testbed)


def settings_of(spec: str) -> dict[str, str] | None:
    """The settings in a text such as `kafka=3.9.2,num.io.threads=2`; None for a cluster's file.

    A comma ends a setting only before another one, as values can contain commas.

    Raises:
        ConfigError: a setting is given twice, or has no name or no value.
    """
    if "=" not in spec:
        return None
    settings: dict[str, str] = {}
    for part in re.split(r",(?=\s*[\w.-]+=)", spec):
        key, _, value = (text.strip() for text in part.partition("="))
        if not key or not value or key in settings:
            raise ConfigError(
                f"{part.strip()!r} in {spec!r} is no setting, or repeats one; expected settings "
                "such as kafka=4.3.1,num.io.threads=2; correct it"
            )
        settings[key] = value
    return settings


def _overrides(settings: Mapping[str, str], option: str) -> list[str]:
    """The settings in the form of `--set` options.

    Raises:
        ConfigError: a setting must be the same on both sides, or is a key of a workload or a goal
            without its file.
    """
    found = []
    for key, value in settings.items():
        path = tuple(key.split("."))
        if path[0] in FILES:
            _require_comparable(key, path, option)
            found.append(f"{key}={value}")
        elif key in TESTBED_KEYS:
            found.append(f"cluster.testbed.{TESTBED_KEYS[key]}={value}")
        else:
            _require_broker_property(key, path, option)
            found.append(f"{PROPERTIES_PREFIX}{key}={value}")
    return found


def _require_comparable(key: str, path: tuple[str, ...], option: str) -> None:
    if path[:2] == ("workload", "mix"):
        own = path[3:]  # a key of a part, or of several of its keys
        is_fixed = any(own[: len(same)] == same[: len(own)] for same in SAME_IN_PARTS)
    else:
        is_fixed = any(path[: len(same)] == same for same in SAME_ON_BOTH)
    if is_fixed:
        raise ConfigError(
            f"{option} sets {key}, from which a comparison chooses the load of both sides; "
            f"expected the same value on both; give it with --set {key}=VALUE"
        )


def _require_broker_property(key: str, path: tuple[str, ...], option: str) -> None:
    for file, model in (("workload", Workload), ("goal", Goal)):
        if path in set(all_keys(model)):
            raise ConfigError(
                f"{option} sets {key}, and a name without a file in front is a broker property; "
                f"did you mean {file}.{key}? Expected the full path of a key of the {file}, as "
                "--set takes it"
            )


def load_sides(
    specs: Mapping[Side, str], cluster: str, workload: str, goal: str, overrides: Sequence[str]
) -> dict[Side, SideSetup]:
    """Load and check the configurations of both sides.

    Args:
        specs: for each side a cluster (a file of conf/clusters, or a path), or settings: of the
            brokers of the testbed `cluster`, or any key by its full path, as `--set` has it.

    Raises:
        ConfigError: a file or a setting is invalid, or the goal is not along np, or scale for a
            mix.
    """
    sides = {}
    for side, spec in specs.items():
        settings, option = settings_of(spec), f"--{side.value.lower()}"
        if settings is None:
            _require_cluster(spec, option)
            config = load(spec, workload, goal, (*overrides, FULL_WINDOWS))
        else:
            own = _overrides(settings, option)
            of_brokers = [each for each in own if each.startswith("cluster.")]
            if of_brokers and not load_cluster(cluster, overrides).starts_brokers:
                raise ConfigError(
                    f"{option} {spec} sets properties of brokers, and cluster {cluster} is no "
                    "testbed; expected a testbed, whose brokers the comparison starts; name two "
                    "cluster files, or another --cluster"
                )
            config = load(cluster, workload, goal, (*overrides, *own, FULL_WINDOWS))
        require_endless(config)
        require_open_loop(config)
        _require_producers(config)
        sides[side] = SideSetup(spec, config)
    return sides


def _require_cluster(spec: str, option: str) -> None:
    known = available("cluster")
    if spec in known or len(Path(spec).parts) > 1 or Path(spec).suffix in SUFFIXES:
        return
    raise ConfigError(
        f"{option} {spec} is neither a setting nor a cluster; expected settings such as "
        f"num.io.threads=2 or kafka=4.3.1, one of the clusters {', '.join(known)}, or the path of "
        "a cluster's file; correct it"
    )


def _require_producers(config: Configuration) -> None:
    axis = config.goal.search.axis
    if config.workload.mix is not None and config.axis is not SCALE:
        raise ConfigError(
            f"goal {config.goal.name} searches along {axis}; expected scale, as a comparison "
            "changes how many times the whole mix is offered; leave out goal.search.axis"
        )
    if config.workload.mix is None and config.axis is not NP:
        raise ConfigError(
            f"goal {config.goal.name} searches along {axis}; expected goal.search.axis np, as a "
            "comparison changes the number of producers; choose another goal"
        )


def share_brokers(sides: Mapping[Side, SideSetup]) -> bool:
    """Whether the sides differ in the workload or the goal only, and load the same brokers."""
    a, b = sides[Side.A].config, sides[Side.B].config
    return a.cluster == b.cluster and a != b


def needed_bytes(sides: Mapping[Side, SideSetup]) -> int:
    """The memory that both sides and Spark need on this machine at the same time [B]."""
    each = [side.memory_bytes for side in sides.values()]
    return SPARK_BYTES + (max(each) if share_brokers(sides) else sum(each))


def require_memory(sides: Mapping[Side, SideSetup], machine: Machine | None = None) -> None:
    """Require enough memory for the brokers of both sides.

    Raises:
        ConfigError: the machine has too little memory.
    """
    problem = memory_problem(machine or this_machine(), needed_bytes(sides))
    if problem is not None:
        raise ConfigError(
            f"brokers of both sides run at the same time. {problem} Or compare with fewer brokers, "
            "for example --set cluster.testbed.brokers=1 "
            "--set workload.topic.replication_factor=1"
        )

"""Reading clusters, workloads and goals from conf/ or from a path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from jobs.config.cluster import Cluster
from jobs.config.files import names_in, read_conf
from jobs.config.goal import Goal
from jobs.config.overrides import apply_overrides, parse_overrides
from jobs.config.problems import config_error
from jobs.config.source import Source, parse_map
from jobs.config.workload import Workload
from search.errors import ConfigError

Loaded = TypeVar("Loaded", Cluster, Workload, Goal)


@dataclass(frozen=True)
class Configuration:
    """All that a run is told.

    Attributes:
        goals: judged from the same trials, each with its own answer; the first one orders
            the search, and its search section is that of the run.
    """

    cluster: Cluster
    workload: Workload
    goals: tuple[Goal, ...]

    @property
    def goal(self) -> Goal:
        """The first goal."""
        return self.goals[0]

    @property
    def in_full(self) -> Configuration:
        """The same without early ends: a fixed load is to be held, not decided about."""
        trial = self.workload.trial.model_copy(update={"early_end_error_rate": 0.0})
        return replace(self, workload=self.workload.model_copy(update={"trial": trial}))

    @property
    def goal_names(self) -> str:
        """`strict,tolerant`, as the command line has them."""
        return ",".join(goal.name for goal in self.goals)


def load_cluster(name_or_path: str, overrides: Sequence[str] = ()) -> Cluster:
    """Read a cluster.

    Args:
        name_or_path: a file of conf/clusters/ by its name without .yaml, or a path.
        overrides: all `--set` options of the command, `cluster.` ones are used.

    Raises:
        ConfigError: when it cannot be read or is wrong; says where and what to do.
    """
    return _load(Cluster, "cluster", name_or_path, overrides)


def load_workload(name_or_path: str, overrides: Sequence[str] = ()) -> Workload:
    """Read a workload of conf/workloads/ or a path; see `load_cluster`."""
    return _load(Workload, "workload", name_or_path, overrides)


def load_goal(name_or_path: str, overrides: Sequence[str] = ()) -> Goal:
    """Read a goal of conf/goals/ or a path; see `load_cluster`."""
    return _load(Goal, "goal", name_or_path, overrides)


def load_goals(names_or_paths: str, overrides: Sequence[str] = ()) -> tuple[Goal, ...]:
    """Read goals that are separated by commas; see `load_cluster`.

    Raises:
        ConfigError: also when two have one name or search along different axes.
    """
    goals = tuple(load_goal(name.strip(), overrides) for name in names_or_paths.split(","))
    names = [goal.name for goal in goals]
    if len(set(names)) < len(names):
        raise ConfigError(
            f"--goal {names_or_paths} names a goal twice; expected each once; remove the repetition"
        )
    axes = sorted({goal.search.axis for goal in goals})
    if len(axes) > 1:
        raise ConfigError(
            f"--goal {names_or_paths} searches along {' and '.join(axes)}; goals that share "
            "trials need one axis; set goal.search.axis, or run them one by one"
        )
    return goals


def load(cluster: str, workload: str, goal: str, overrides: Sequence[str] = ()) -> Configuration:
    """Read all three, and check what only the three together can tell.

    Args:
        goal: one or more, separated by commas; overrides hold for each of them.

    Raises:
        ConfigError: see `load_cluster`.
    """
    loaded = Configuration(
        load_cluster(cluster, overrides),
        load_workload(workload, overrides),
        load_goals(goal, overrides),
    )
    testbed, replicas = loaded.cluster.testbed, loaded.workload.topic.replication_factor
    if testbed is not None and replicas > testbed.brokers:
        raise ConfigError(
            f"workload {loaded.workload.name} wants topic.replication_factor {replicas}, and "
            f"cluster {loaded.cluster.name} has testbed.brokers {testbed.brokers}; expected at "
            f"most as many replicas as brokers; change one of them, for example by --set "
            f"workload.topic.replication_factor={testbed.brokers}"
        )
    return loaded


def available(kind: str) -> tuple[str, ...]:
    """Names of the files that come with the project, of kind cluster, workload or goal."""
    return names_in(f"{kind}s")


def describe(config: BaseModel) -> dict[str, Any]:
    """The keys of a configuration by their paths, for tables: `producer.linger_ms` → 10.

    Maps with free keys stay one value; unset keys are left out.
    """
    flat: dict[str, Any] = {}
    for name in type(config).model_fields:
        value = getattr(config, name)
        if isinstance(value, BaseModel):
            flat.update({f"{name}.{key}": part for key, part in describe(value).items()})
        elif value is not None:
            flat[name] = dict(value) if isinstance(value, Mapping) else value
    return flat


def _load(model: type[Loaded], kind: str, name_or_path: str, overrides: Sequence[str]) -> Loaded:
    parsed = [each for each in parse_overrides(overrides) if each.file == kind]
    file = read_conf(f"{kind}s", name_or_path, f"--{kind}")
    source = parse_map(file.text, file.label)
    source.data.setdefault("name", file.stem)
    apply_overrides(source, model, parsed)
    return _validated(model, source)


def _validated(model: type[Loaded], source: Source) -> Loaded:
    try:
        return model.model_validate(source.data)
    except ValidationError as error:
        raise config_error(error, source, model) from None

"""Loads clusters, workloads and goals from conf/ or from a path."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from jobs.config.client_properties import KEY as CLIENT_PROPERTIES
from jobs.config.client_properties import keys_of
from jobs.config.cluster import Cluster
from jobs.config.files import names_in, read_conf
from jobs.config.goal import Goal
from jobs.config.omb import PREFIX, finder, translated
from jobs.config.overrides import (
    apply_overrides,
    option_with_own_name,
    parse_override,
    with_own_names,
)
from jobs.config.problems import Written, as_written, config_error, with_values
from jobs.config.tokens import end_of
from jobs.config.workload import OF_PARTS, Workload, sections_of_mix
from jobs.config.yaml_file import ParsedFile, parse_map
from metrics.common.errors import ConfigError
from metrics.traffic.axes import (
    MESSAGE_BYTES,
    NP,
    PARTITIONS,
    RATE,
    SCALE,
    Axis,
    ScaleAxis,
    axis_named,
)
from metrics.traffic.pattern import TrafficPattern

Loaded = TypeVar("Loaded", Cluster, Workload, Goal)


@dataclass(frozen=True)
class Configuration:
    """The complete configuration of a run.

    Attributes:
        goals: goals that judge the same trials, each with its own answer. The first goal's section
            `search` controls the search.
    """

    cluster: Cluster
    workload: Workload
    goals: tuple[Goal, ...]

    @property
    def goal(self) -> Goal:
        """The first goal."""
        return self.goals[0]

    def goal_named(self, name: str) -> Goal:
        """The goal with this name."""
        return next(goal for goal in self.goals if goal.name == name)

    def with_workload(self, **parts: object) -> Configuration:
        """A copy of the configuration in which `parts` replace keys or sections of the workload."""
        return replace(self, workload=self.workload.model_copy(update=parts))

    def with_search(self, **keys: object) -> Configuration:
        """A copy of the configuration, with other values in the first goal's section `search`."""
        search = self.goal.search.model_copy(update=keys)
        goal = self.goal.model_copy(update={"search": search})
        return replace(self, goals=(goal, *self.goals[1:]))

    @property
    def in_full(self) -> Configuration:
        """A copy of the configuration in which no window ends early, for the holds of a load."""
        return self.with_workload(trial=self.workload.trial.in_full)

    def sampled_every(self, least_s: float) -> Configuration:
        """A copy with at least `least_s` [s] between two samples of a broker."""
        trial = self.workload.trial
        if least_s <= trial.sample_interval_s:
            return self
        return self.with_workload(trial=replace(trial, sample_interval_s=least_s))

    @property
    def axis(self) -> Axis:
        """The axis of the search."""
        return axis_named(self.goal.search.axis)

    def pattern(self, message_bytes: int, load: int, brokers: int = 0) -> TrafficPattern:
        """The traffic at a load; the load is a value of the axis.

        Args:
            message_bytes: message size of the boundary point [B].
            load: value of the axis.
            brokers: number of brokers of the cluster.
        """
        return self.axis.apply(self.workload.pattern(message_bytes, brokers), load)

    def heaviest(self, message_bytes: int) -> TrafficPattern:
        """The traffic of a boundary point at the load whose batches are the largest. A run checks
        before its first load that a topic accepts these batches.
        """
        return self.pattern(
            message_bytes, self.goal.search.load_cap if self.axis.grows_batches else 1
        )

    @property
    def goal_names(self) -> str:
        """The names of the goals as on the command line, such as `strict,tolerant`."""
        return ",".join(goal.name for goal in self.goals)


def load_cluster(name_or_path: str, overrides: Sequence[str] = ()) -> Cluster:
    """Read a cluster.

    Args:
        name_or_path: a file of conf/clusters/ by its name without .yaml, or a path.
        overrides: all `--set` options of the command; options for other files are ignored.

    Raises:
        ConfigError: the file cannot be read or is wrong; the message states the place.
    """
    found = _load(Cluster, "cluster", name_or_path, overrides)
    found.keep(given=name_or_path)
    return found


def load_workload(name_or_path: str, overrides: Sequence[str] = ()) -> Workload:
    """Read a workload of conf/workloads/ or from a path; see `load_cluster`.

    A path with the prefix `omb:` is a workload file of the OpenMessaging Benchmark.
    """
    return _load(Workload, "workload", name_or_path, overrides)


def load_goal(name_or_path: str, overrides: Sequence[str] = ()) -> Goal:
    """Read a goal of conf/goals/ or from a path; see `load_cluster`."""
    return _load(Goal, "goal", name_or_path, overrides)


def load_goals(names_or_paths: str, overrides: Sequence[str] = ()) -> tuple[Goal, ...]:
    """Read goals that are separated by commas; see `load_cluster`.

    Raises:
        ConfigError: see `load_cluster`; or two goals have the same name, or different axes.
    """
    goals = tuple(load_goal(name.strip(), overrides) for name in names_or_paths.split(","))
    names = [goal.name for goal in goals]
    if len(set(names)) < len(names):
        raise ConfigError(
            f"--goal {names_or_paths} names a goal twice; expected each goal once; remove one"
        )
    axes = sorted({goal.search.axis for goal in goals})
    if len(axes) > 1:
        raise ConfigError(
            f"--goal {names_or_paths} searches along {' and '.join(axes)}; expected one axis for "
            "goals of one run; set goal.search.axis, or run the goals one by one"
        )
    return goals


def load(cluster: str, workload: str, goal: str, overrides: Sequence[str] = ()) -> Configuration:
    """Read a cluster, a workload and goals, and check them against each other.

    Args:
        goal: one or more goals, separated by commas; overrides apply to each goal.

    Raises:
        ConfigError: see `load_cluster`.
    """
    made = _with_all_mistakes(
        partial(load_cluster, cluster, overrides),
        partial(load_workload, workload, overrides),
        partial(load_goals, goal, overrides),
    )
    return _consistent(Configuration(*made))


def _with_all_mistakes(*parts: Callable[[], object]) -> tuple[Any, ...]:
    """Call the functions in `parts` one after another, and return their results. If some calls
    fail, the function raises one error with the messages of all failed calls.
    """
    made, mistakes = [], []
    for part in parts:
        try:
            made.append(part())
        except ConfigError as error:
            mistakes.append(str(error))
    if mistakes:  # without repetitions, because each call reports a wrong --set
        raise ConfigError("\n".join(dict.fromkeys(mistakes)))
    return tuple(made)


Settings = Mapping[str, Mapping[str, Any]]
"""A recorded configuration: part → path of a key → value, as `describe` returns them. The parts are
`cluster`, `workload`, `goal`, and `goal NAME` for each further goal.
"""


def load_recorded(
    settings: Settings,
    cluster: str | None = None,
    workload: str | None = None,
    goal: str | None = None,
    overrides: Sequence[str] = (),
) -> Configuration:
    """The configuration that a run recorded, with some parts replaced.

    A recorded cluster does not decide which hosts, secrets, environment variables or files this
    process uses, because another user may have written the record. The cluster comes from the file
    with the cluster's name in conf/clusters on this machine. Only the workload, the goals, and the
    options of a testbed come from the record.

    Args:
        cluster, workload, goal: names or paths that replace the recorded parts, as for `load`; None
            keeps the recorded part.
        overrides: `--set` options; they apply also to the recorded parts.

    Raises:
        ConfigError: see `load`; or the record has keys of an older version that are unknown now; or
            the recorded cluster is not a file of conf/clusters.
    """
    kept = (_recorded(Goal, kind, settings, overrides) for kind in settings if "goal" in kind[:5])
    return _consistent(
        Configuration(
            load_cluster(cluster, overrides)
            if cluster is not None
            else _own_cluster(settings["cluster"], overrides),
            load_workload(workload, overrides)
            if workload is not None
            else _recorded(Workload, "workload", settings, overrides),
            load_goals(goal, overrides) if goal is not None else tuple(kept),
        )
    )


def _own_cluster(recorded: Mapping[str, Any], overrides: Sequence[str]) -> Cluster:
    """The cluster with the recorded name, read from conf/clusters on this machine. If the cluster
    is a testbed, its recorded options replace the options of the file.
    """
    name = str(recorded.get("name"))
    if name not in available("cluster"):
        raise ConfigError(
            f"the recorded cluster {name} is not a file of conf/clusters; expected the cluster's "
            "file, because addresses and secrets are not read from tables; name the file with "
            "--cluster"
        )
    own = load_cluster(name, overrides)
    if not own.starts_brokers:
        return own
    kept = (key for key in recorded if key.startswith("testbed.") and key not in _CODE_OF_TESTBED)
    options = (f"cluster.{key}={json.dumps(recorded[key])}" for key in kept)
    return load_cluster(name, (*options, *overrides))


_CODE_OF_TESTBED = ("testbed.profile", "testbed.properties")
"""Keys that name files or classes. The values of these keys come from the cluster's file on this
machine, not from a run's record.
"""


def _recorded(
    model: type[Loaded], kind: str, settings: Settings, overrides: Sequence[str]
) -> Loaded:
    source = ParsedFile(f"the {kind} that the run recorded", {})
    for path, value in settings[kind].items():
        *above, key = path.split(".")
        place = source.data
        for part in above:
            place = place.setdefault(part, {})
        place[key] = value
    return _made(model, source, kind.partition(" ")[0], overrides, is_json=True)


def _consistent(loaded: Configuration) -> Configuration:
    """The configuration, after its cluster, workload and goals were checked against each other."""
    loaded = _along_scale(loaded)
    brokers = loaded.cluster.brokers_known
    for part in loaded.workload.parts:
        replicas, key = part.topic.replication_factor, _key(loaded.workload, part, "topic")
        if brokers is not None and replicas > brokers:
            raise ConfigError(
                f"workload {loaded.workload.name} has {key}.replication_factor {replicas}, and "
                f"cluster {loaded.cluster.name} has {brokers} broker{'s' * (brokers > 1)}; "
                "expected at most as many replicas as brokers; change one, for example by --set "
                f"workload.{key}.replication_factor={brokers}"
            )
    _require_login(loaded)
    _require_axis_of_mix(loaded)
    if loaded.workload.mix is None:
        _require_axis_of_producers(loaded)
    _require_survivors(loaded)
    _require_topics(loaded)
    return loaded


def _key(workload: Workload, part: Workload, section: str) -> str:
    """The path of a section in the workload, below the part's name if the workload is a mix."""
    return section if workload.mix is None else f"mix.{part.name}.{section}"


def _along_scale(config: Configuration) -> Configuration:
    """The configuration; if the workload is a mix and the goals have the default axis, the axis
    becomes `scale`.
    """
    if config.workload.mix is None or config.axis is not NP:
        return config
    goals = (
        goal.model_copy(update={"search": goal.search.model_copy(update={"axis": SCALE.name})})
        for goal in config.goals
    )
    return replace(config, goals=tuple(goals))


def _require_login(config: Configuration) -> None:
    """Refuse a mechanism that a client does not support, and a token that expires during a load."""
    mechanism, workload = config.cluster.security.sasl_mechanism, config.workload
    clients = {}
    for part in workload.parts:
        clients[_key(workload, part, "producer")] = part.producer.client
        if part.consumers.groups:
            clients[_key(workload, part, "consumers")] = part.consumers.client
    for role, client in clients.items():
        if mechanism == "GSSAPI" and client == "librdkafka":
            raise ConfigError(
                f"cluster {config.cluster.name} has security.sasl_mechanism GSSAPI, and workload "
                f"{workload.name} has {role}.client librdkafka, whose packages do not support "
                "GSSAPI; expected wire or kafka-python; add --set "
                f"workload.{role}.client=wire"
            )
    trial = workload.trial
    require_token(config, trial.load_s, "the load of a trial (workload.trial)")
    steady_s = config.goal.search.steady_s or 0.0
    require_token(config, trial.warmup_s + steady_s, "the steady hold (goal.search.steady_s)")


def require_token(config: Configuration, load_s: float, load: str) -> None:
    """Refuse a token in an environment variable if the token expires before a load ends.

    Tokens from a file or from a token server are renewed during a load.

    Args:
        load_s: duration of the load [s].
        load: a noun phrase for the load, for messages.

    Raises:
        ConfigError: the token expires before the load ends.
    """
    kind, _, name = (config.cluster.security.token_from or "").partition(":")
    end_s = end_of(os.environ.get(name, "")) if kind == "env" else None
    left_s = math.inf if end_s is None else end_s - time.time()
    if left_s < load_s:
        raise ConfigError(
            f"the token in security.token_from env:{name} of cluster {config.cluster.name} "
            f"expires in {left_s:.0f} s, and {load} lasts {load_s:g} s; expected a token that "
            "lasts longer, because an environment variable cannot be renewed; shorten the load, "
            "use file:PATH (which is read again during a load), or use oauth_token_url"
        )


def _require_axis_of_mix(config: Configuration) -> None:
    """Check the goal's axis for the workload. A mix requires the axis `scale` or `scale.PART`, and
    `scale.PART` requires a mix with this part.
    """
    workload, axis = config.workload, config.axis
    parts = tuple(workload.mix or ())
    is_scale = isinstance(axis, ScaleAxis)
    if parts and not is_scale:
        raise ConfigError(
            f"goal.search.axis is {axis.name} and workload {workload.name} is a mix; expected "
            f"scale, or scale.PART for one of its parts ({', '.join(parts)}), because "
            f"{axis.name} differs from part to part; choose one of them"
        )
    if isinstance(axis, ScaleAxis) and axis.part and axis.part not in parts:
        known = f"the parts of workload {workload.name} are {', '.join(parts)}"
        raise ConfigError(
            f"goal.search.axis is {axis.name} and "
            f"{known if parts else f'workload {workload.name} is not a mix'}; expected "
            f"{'one of these parts' if parts else 'scale, or a mix'}; correct it"
        )


def _require_axis_of_producers(config: Configuration) -> None:
    workload, search, axis = config.workload, config.goal.search, config.axis
    if axis is RATE and workload.producer.rate is not None:
        raise ConfigError(
            f"goal.search.axis is {axis.name} and workload {workload.name} has producer.rate "
            f"{workload.producer.rate}; expected a rate in records per second; set "
            "rate_records_per_s, and set rate to null, or choose another axis"
        )
    if axis is NP:
        if workload.np is not None:
            raise ConfigError(
                f"workload {workload.name} has np {workload.np} and the goal searches along np, "
                "the number of producers; expected no np; remove np, offer this load with redline "
                "traffic, or choose another goal.search.axis"
            )
        return
    if workload.np is None:
        raise ConfigError(
            f"the goal searches along {axis.name} and workload {workload.name} has no np; expected "
            "a fixed number of producers; add it, for example by --set workload.np=16"
        )
    if axis.maximum is not None and search.load_cap > axis.maximum:
        raise ConfigError(
            f"goal.search.load_cap is {search.load_cap}; expected at most {axis.maximum}, the "
            f"largest {axis.name}; add --set goal.search.load_cap={axis.maximum}"
        )
    for goal in config.goals if axis.needs_latency else ():
        if not goal.indicators.latency_objectives:
            raise ConfigError(
                f"goal {goal.name} searches along {axis.name} and has no latency objective; "
                f"expected an objective, because a higher {axis.name} only makes records wait "
                "longer, and adds no work for the brokers; add it, for example by "
                "--set goal.indicators.latency_p99_ms_max=100"
            )
    if axis is MESSAGE_BYTES:
        _require_growing_size(workload, search.load_cap)
    try:
        config.pattern(
            workload.message_bytes[0], search.load_cap
        ).producer.options.require_consistent()
    except ValueError as error:
        raise ConfigError(
            f"at goal.search.load_cap {search.load_cap} of {axis.name}: {error}; or lower load_cap"
        ) from None


def _require_survivors(config: Configuration) -> None:
    """Refuse a planned broker outage if partitions would have no leader, or if there are several
    goals.
    """
    count, workload = config.goal.search.brokers_offline, config.workload
    if count is None:
        return
    given = f"goal.search.brokers_offline (--offline) is {count}"
    for part in () if config.cluster.topics else workload.parts:  # see `given_topics`
        topic, key = part.topic, _key(workload, part, "topic")
        least = int(topic.config.get("min.insync.replicas", "1"))
        if topic.replication_factor < count + least:
            raise ConfigError(
                f"{given} and workload {workload.name} has {key}.replication_factor "
                f"{topic.replication_factor}; expected {count + least} or more, so that each "
                "partition keeps a leader; add --set "
                f"workload.{key}.replication_factor={count + least}"
            )
    if len(config.goals) > 1:
        raise ConfigError(
            f"{given} with the goals {config.goal_names}; expected one goal, because brokers catch "
            "up only once in a run; run the goals one by one"
        )
    if config.axis is PARTITIONS:
        raise ConfigError(
            f"{given} and the goal searches along {config.axis.name}; expected an axis that keeps "
            "the topic unchanged, because the run must know how many replicas are on the stopped "
            "brokers; choose another axis"
        )


def _require_topics(config: Configuration) -> None:
    """Refuse `cluster.topics` if it has too few topics for the workload, or if the axis is
    partitions.
    """
    given, workload = config.cluster.topics, config.workload
    needed = sum(part.topic.count for part in workload.parts)
    if given and len(given) < needed:
        raise ConfigError(
            f"cluster.topics of cluster {config.cluster.name} has {len(given)} names, and "
            f"workload {workload.name} writes to {needed} topics (the sum of topic.count over all "
            f"parts); expected at least {needed} names; name more topics, or lower topic.count"
        )
    if given and config.axis is PARTITIONS:
        raise ConfigError(
            f"goal.search.axis is {config.axis.name} and cluster {config.cluster.name} has the key "
            "topics; expected another axis, because a run does not change the partitions of "
            "existing topics; choose another axis"
        )


def _require_growing_size(workload: Workload, load_cap: int) -> None:
    if len(workload.message_bytes) != 1:
        raise ConfigError(
            f"the goal searches along message_bytes and workload {workload.name} has "
            f"{len(workload.message_bytes)} sizes; expected one size, which names the boundary "
            "point; remove the others"
        )
    if workload.producer.rate_bytes_per_s is not None:
        raise ConfigError(
            "the goal searches along message_bytes and the producers' rate is in bytes per "
            "second, so the load does not grow with the size; expected "
            "producer.rate_records_per_s; set this key, and set rate_bytes_per_s to null"
        )
    problem = workload.trouble_with_size(load_cap)
    if problem is not None:
        raise ConfigError(
            f"goal.search.load_cap allows messages of {load_cap} B, and in the workload "
            f"{problem}, or lower goal.search.load_cap"
        )


def available(kind: str) -> tuple[str, ...]:
    """The names of the project's files of one kind: cluster, workload or goal."""
    return names_in(f"{kind}s")


def describe(config: Any) -> dict[str, Any]:
    """Path of each key → value of the key, for tables; for example `producer.linger_ms` → 10.

    A map with keys of the user's choice stays one value. Keys without a value are left out.
    References to environment variables in a cluster's file stay references.

    Args:
        config: a model, or the dataclass of one of its sections.
    """
    flat: dict[str, Any] = {}
    for name in _keys(config):
        value = getattr(config, name)
        if isinstance(config, Workload) and config.mix is not None and name in OF_PARTS:
            continue  # the parts determine these values
        if isinstance(value, Mapping) and any(map(_keys, value.values())):
            for own, each in value.items():
                flat.update({f"{name}.{own}.{key}": part for key, part in describe(each).items()})
        elif _keys(value):
            flat.update({f"{name}.{key}": part for key, part in describe(value).items()})
        elif value is not None:
            flat[name] = dict(value) if isinstance(value, Mapping) else value
    return as_written(flat, config.written) if isinstance(config, Cluster) else flat


def _keys(config: Any) -> tuple[str, ...]:
    if isinstance(config, BaseModel):
        return tuple(type(config).model_fields)
    return tuple(item.name for item in fields(config)) if is_dataclass(config) else ()


def _load(model: type[Loaded], kind: str, name_or_path: str, overrides: Sequence[str]) -> Loaded:
    is_foreign = model is Workload and name_or_path.startswith(PREFIX)
    path = name_or_path.removeprefix(PREFIX if is_foreign else "")
    file = read_conf(f"{kind}s", path, f"--{kind}")
    source = parse_map(file.text, file.label)
    if is_foreign:
        made = translated(source.data, file.stem, file.label, finder(Path(path).parent))
        source = replace(source, data=made)
    source.data.setdefault("name", file.stem)
    if model is Workload:
        with_own_names(source)
    return _made(model, source, kind, overrides)


def _made(
    model: type[Loaded],
    source: ParsedFile,
    kind: str,
    overrides: Sequence[str],
    is_json: bool = False,
) -> Loaded:
    """Apply the `--set` options for this kind of file to the file's data, check the data, and
    return the object.

    Args:
        is_json: whether the data come from JSON. JSON has no tuples, and all keys in JSON are
            texts.
    """
    # Options for other files are parsed, too, so that every typo is an error.
    parsed = [each for each in map(parse_override, overrides) if each.file == kind]
    if model is Workload:
        parsed = [option_with_own_name(each) for each in parsed]
    apply_overrides(source, model, parsed)
    written: Written = {}
    if model is Cluster:
        written = {**with_values(source), **_read_client_properties(source)}
    data = sections_of_mix(source) if model is Workload else source.data
    try:
        made = (
            model.model_validate_json(json.dumps(data)) if is_json else model.model_validate(data)
        )
    except ValidationError as error:
        raise config_error(error, source, model, written) from None
    if isinstance(made, Cluster):
        made.keep(written)
    return made


def _read_client_properties(source: ParsedFile) -> Written:
    """Add keys from the cluster's properties file, except keys that the cluster's own file already
    has.

    The function returns the references in the added values.
    """
    named = source.data.get(CLIENT_PROPERTIES)
    if not isinstance(named, str):
        return {}
    own = source.data.get("security")
    given = {f"security.{key}" for key in own} if isinstance(own, dict) else set()
    keys, written = keys_of(named, source.data)
    for key, value in keys.items():
        own = source.data.setdefault(key, value)
        if isinstance(own, dict) and isinstance(value, dict):
            source.data[key] = {**value, **own}
    return {key: each for key, each in written.items() if ".".join(key.split(".")[:2]) not in given}


def require_open_loop(config: Configuration) -> None:
    """Refuse a closed loop for a search, because a closed loop has no rate.

    Raises:
        ConfigError: the producers send in a closed loop.
    """
    if config.workload.producer.rate is not None:
        raise ConfigError(
            f"workload {config.workload.name} has producer.rate {config.workload.producer.rate}; "
            "expected rate_bytes_per_s or rate_records_per_s, because a limit is the highest "
            "sustained rate; set one of them, and set rate to null; redline traffic and sweeps "
            "also accept a closed loop"
        )


def require_endless(config: Configuration) -> None:
    """Refuse a load with a volume for a search, because the load ends with its volume.

    Raises:
        ConfigError: the workload has a volume.
    """
    volume = config.workload.trial.volume_bytes
    if volume is not None:
        raise ConfigError(
            f"workload {config.workload.name} has trial.volume_bytes {volume}; expected none, "
            "because a limit is the rate of a load without an end; remove volume_bytes; redline "
            "traffic, and sweeps with the measurement fill or drain, accept a volume"
        )

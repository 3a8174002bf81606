"""An experiment: the keys that a sweep varies, its cases, and the figure of each case."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from jobs.config.base import ConfigModel, Name
from jobs.config.cluster import DEFAULT_CLUSTER
from jobs.config.files import read_conf
from jobs.config.loading import Configuration, load
from jobs.config.overrides import FILES
from jobs.config.problems import config_error
from jobs.config.source import ParsedFile, parse_map
from jobs.config.suite import Conf
from metrics.common.bounds import Number, UnexpectedError, Whole
from metrics.common.errors import ConfigError
from metrics.comparing.sweeps import CASE
from metrics.planning.setups import PROPERTIES_PREFIX

CASES_MAX = 200
"""Largest number of cases of an experiment."""
NAME = "name"
"""The key of a listed case for its name, beside its settings."""


def _as_values(value: Any) -> Any:
    """The values of an axis, at least two and each once."""
    texts = [json.dumps(each) for each in value] if isinstance(value, list | tuple) else []
    if len(texts) < 2 or len(set(texts)) < len(texts) or any(each is None for each in value):
        raise UnexpectedError("a list of two values or more, each once, such as [1, all]")
    return tuple(value)


def _as_settings(value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise UnexpectedError("keys by their full paths, such as workload.producer.acks: all")
    return dict(value)


Values = Annotated[tuple[Any, ...], BeforeValidator(_as_values)]
Settings = Annotated[Mapping[str, Any], BeforeValidator(_as_settings)]


class Experiment(ConfigModel):
    """An experiment for `redline sweep`.

    Attributes:
        name: the file's name without .yaml unless the file states another.
        description: the question, a sentence for people.
        published: the result of a published study, for people; empty where there is none.
        asks: the figure of each case: "limit", the highest sustained load, by a search; "load",
            the readings at a fixed load; "fill", the time to write the workload's volume;
            "drain", the time in which consumer groups read it from the start; "failover", the
            time until every leader serves again after a broker of a testbed was killed under load.
        cluster, workload, goal: the name of a file of conf, or a path.
        set: overrides of their keys in all cases, as with --set.
        quick: further overrides, with --quick, that make the experiment short.
        quick_axes: fewer values of some axes, with --quick.
        quick_repeats: replaces `repeats`, with --quick.
        axes: the full path of each key that varies, as in --set, and its values.
        combine: "grid", each value with each value of the other axes; "one at a time", each value
            with the first values of the other axes.
        cases: the settings of each case, instead of axes, with the same keys in all of them; a
            `name` stands for several settings that belong together.
        cold: whether a testbed's machine drops the page cache of the volume before it is read, for
            "drain".
        load: the fixed load on the goal's axis; required unless asks is "limit".
        trials: number of trials of each case and repeat, for "load".
        repeats: number of measurements of each case; all other cases come between two of them.
        seed: seed of the order of the cases.
        budget_s: a case starts only if it would end within this time from the start [s].
    """

    name: Name
    description: str = ""
    published: str = ""
    asks: Literal["limit", "load", "fill", "drain", "failover"] = "limit"
    cluster: Conf = DEFAULT_CLUSTER
    workload: Conf = "1kB"
    goal: Conf = "default"
    set: Annotated[tuple[str, ...], Field(strict=False)] = ()
    quick: Annotated[tuple[str, ...], Field(strict=False)] = ()
    quick_axes: Mapping[str, Values] = Field(default_factory=dict)
    quick_repeats: Annotated[int, Whole(1, 100, "repeats")] = 1
    axes: Mapping[str, Values] = Field(default_factory=dict)
    combine: Literal["grid", "one at a time"] = "grid"
    cases: Annotated[tuple[Settings, ...], Field(strict=False)] = ()
    cold: bool = False
    load: Annotated[int, Whole(1, 10_000_000, "on the goal's axis")] | None = None
    trials: Annotated[int, Whole(1, 100, "trials")] = 1
    repeats: Annotated[int, Whole(1, 100, "repeats")] = 1
    seed: int = 1
    budget_s: Annotated[float, Number(0, 604_800, "seconds", above=True)] | None = None

    @model_validator(mode="after")
    def _varies_in_one_way(self) -> Experiment:
        if bool(self.axes) == bool(self.cases):
            given = "both axes and cases" if self.axes else "neither axes nor cases"
            raise ValueError(f"there are {given}; expected one of them; correct it")
        for key, values in self.quick_axes.items():
            others = [each for each in values if each not in self.axes.get(key, ())]
            if key not in self.axes or others:
                raise ValueError(
                    f"quick_axes has {key}: {list(values)}; expected some of the values that axes "
                    f"has of it, {list(self.axes.get(key, ()))}; correct it"
                )
        keys = {frozenset(each) for each in self.cases}
        if len(keys) > 1 or keys & {frozenset(), frozenset({NAME})}:
            raise ValueError(
                "cases do not set the same keys, or none; expected the same keys in each case, so "
                "that the cases can be compared; complete them"
            )
        if (self.asks != "limit") != (self.load is not None):
            raise ValueError(
                "load is given, and asks is limit; remove it"
                if self.load is not None
                else f"asks is {self.asks}, and no load is given; expected load: NUMBER; add it"
            )
        if self.trials > 1 and self.asks != "load":
            raise ValueError(
                f"trials is {self.trials} and asks {self.asks}; expected trials only with asks: "
                "load; set repeats instead"
            )
        if len(self.settings) > CASES_MAX:
            raise ValueError(
                f"there are {len(self.settings):,} cases; expected at most {CASES_MAX}; take fewer "
                "values, or combine: one at a time"
            )
        return self

    @model_validator(mode="after")
    def _names_are_unique(self) -> Experiment:
        unnamed = [each[NAME] for each in self.cases if NAME in each and not each[NAME]]
        if unnamed:
            raise ValueError(f"a case has the name {unnamed[0]!r}; expected a text; write one")
        if len(set(self.names)) < len(self.names):
            raise ValueError("two cases have the same name; expected unique names; change one")
        if self.names and len(self.settings) < len(self.names):
            raise ValueError("two cases have the same settings; expected each once; remove one")
        return self

    @property
    def varied(self) -> tuple[str, ...]:
        """The full paths of the keys that vary, in the order of the file."""
        return tuple(self.axes or (key for key in self.cases[0] if key != NAME))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the listed cases; empty where they have none."""
        return tuple(str(each[NAME]) for each in self.cases if NAME in each)

    @property
    def settings(self) -> tuple[dict[str, Any], ...]:
        """Full path → value for each case, each case once."""
        if self.cases:
            found = [{k: each[k] for k in each if k != NAME} for each in self.cases]
        elif self.combine == "grid":
            values = itertools.product(*self.axes.values())
            found = [dict(zip(self.axes, each, strict=True)) for each in values]
        else:
            base = {key: values[0] for key, values in self.axes.items()}
            changed = ({**base, k: v} for k, values in self.axes.items() for v in values[1:])
            found = [base, *changed]
        unique = {json.dumps(each, sort_keys=True): each for each in found}
        return tuple(unique.values())


@dataclass(frozen=True)
class SweepCase:
    """One combination of values.

    Attributes:
        name: a unique name in its sweep, such as `acks=all`.
        settings: full path → value, as text.
        shown: the settings by which people recognize it, or its own name under the key `CASE`.
        config: the complete configuration.
    """

    name: str
    settings: Mapping[str, str]
    shown: Mapping[str, str]
    config: Configuration


@dataclass(frozen=True)
class Sweep:
    """An experiment with its checked cases."""

    experiment: Experiment
    cases: tuple[SweepCase, ...]


def load_sweep(
    name_or_path: str,
    overrides: Sequence[str] = (),
    cluster: str | None = None,
    *,
    quick: bool = False,
    repeats: int | None = None,
) -> Sweep:
    """Read an experiment, and check each of its cases as `redline find-limit` checks its own.

    Args:
        name_or_path: a file of conf/experiments/ by its name without .yaml, or a path.
        overrides: `--set` options, which take precedence over the file's `set`, but not over its
            axes.
        cluster: replaces the cluster of the experiment.
        quick: whether the keys for --quick apply.
        repeats: replaces the repeats of the experiment.

    Raises:
        ConfigError: the file or one of the cases is wrong; the message states the place.
    """
    file = read_conf("experiments", name_or_path, "experiment")
    source = parse_map(file.text, file.label)
    source.data.setdefault("name", file.stem)
    if repeats is not None:
        source.data["repeats"] = repeats
    try:
        experiment = Experiment.model_validate(source.data)
    except ValidationError as error:
        raise config_error(error, source, Experiment) from None
    _require_paths(experiment, source)
    if quick:
        axes = {**experiment.axes, **experiment.quick_axes}
        count = experiment.quick_repeats if repeats is None else repeats
        experiment = experiment.model_copy(update={"axes": axes, "repeats": count})
    given = (*experiment.set, *(experiment.quick if quick else ()), *overrides)
    return Sweep(experiment, tuple(_cases(experiment, source, given, cluster)))


def _require_paths(experiment: Experiment, source: ParsedFile) -> None:
    for key in experiment.varied:
        if key.split(".")[0] not in FILES or "." not in key:
            where = source.origin(("axes", key) if experiment.axes else ("cases", 0, key))
            raise ConfigError(
                f"{where}: {key} is not the full path of a key; expected a path that begins with "
                "cluster, workload or goal, such as workload.producer.acks or "
                "cluster.testbed.properties.num.io.threads; correct it"
            )


def _cases(
    experiment: Experiment, source: ParsedFile, given: Sequence[str], cluster: str | None
) -> Iterator[SweepCase]:
    names = _short_names(experiment.varied)
    for number, settings in enumerate(experiment.settings):
        own = tuple(f"{key}={json.dumps(value)}" for key, value in settings.items())
        texts = {key: _text(value) for key, value in settings.items()}
        name = " ".join(f"{names[key]}={value}" for key, value in texts.items())
        shown = texts
        if experiment.names:
            name = experiment.names[number]
            shown = {CASE: name}
        try:
            config = load(
                cluster or experiment.cluster, experiment.workload, experiment.goal, (*given, *own)
            )
            _require_one(experiment, config)
        except ConfigError as error:
            where = source.origin(("cases", number) if experiment.cases else ("axes",))
            raise ConfigError(f"{where}: case {name}: {error}") from error
        yield SweepCase(name, texts, shown, config)


def _require_one(experiment: Experiment, config: Configuration) -> None:
    """Refuse a case that has several goals, or several sizes at a fixed load."""
    if len(config.goals) > 1:
        raise ConfigError(
            f"goal {config.goal_names} names several goals; expected one; write an experiment for "
            "each goal"
        )
    offline = config.goal.search.brokers_offline
    if offline is not None:
        raise ConfigError(
            f"goal.search.brokers_offline is {offline}; expected none in an experiment, as a case "
            "is one limit for each size; remove it, and use redline find-limit --offline"
        )
    sizes = config.workload.message_bytes
    if experiment.asks != "limit" and len(sizes) > 1:
        raise ConfigError(
            f"workload {config.workload.name} has {len(sizes)} sizes; expected one for a fixed "
            "load; add set: [workload.message_bytes=[1000]]"
        )
    volume = config.workload.trial.volume_bytes
    if bool(volume) != (experiment.asks in {"fill", "drain"}):
        raise ConfigError(
            f"asks is {experiment.asks} and workload.trial.volume_bytes {volume}; expected a "
            "volume for fill and drain, and none otherwise; change one of them"
        )
    if experiment.asks == "failover":
        _require_survivors(config)
    if experiment.cold and (experiment.asks != "drain" or not config.cluster.starts_brokers):
        raise ConfigError(
            f"cold is true, asks is {experiment.asks} and cluster {config.cluster.name}; expected "
            "asks: drain on a testbed, as only its page cache can be dropped; remove it"
        )
    if experiment.asks == "drain" and not config.workload.consumers.groups:
        raise ConfigError(
            "asks is drain and workload.consumers.groups 0; expected 1 or more, which read the "
            "volume; set it"
        )


def _require_survivors(config: Configuration) -> None:
    """Refuse to kill a broker that others use, or that holds the only replica of a partition."""
    brokers, replicas = config.cluster.brokers_known, config.workload.topic.replication_factor
    if not config.cluster.starts_brokers or brokers is None or brokers < 2 or replicas < 2:
        cluster = f"a testbed of {brokers}" if brokers else "running brokers"
        raise ConfigError(
            f"asks is failover on {cluster} with replication_factor {replicas}; expected a testbed "
            "of 2 brokers or more, and 2 replicas or more, as one broker is killed; change them"
        )


def _short_names(paths: Sequence[str]) -> dict[str, str]:
    """Full path → the shortest name that is unique among them, such as Kafka's property name."""
    short = {}
    for path in paths:
        of_broker = path.removeprefix(PROPERTIES_PREFIX)
        short[path] = of_broker if of_broker != path else path.rsplit(".", 1)[-1]
    taken = list(short.values())
    return {path: name if taken.count(name) == 1 else path for path, name in short.items()}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)

"""An experiment: what a sweep varies, how its cases are made of it, and what is asked of each."""

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
"""More cases than anybody waits for."""
NAME = "name"
"""In a listed case, beside its settings: what people call it."""


def _as_values(value: Any) -> Any:
    """The values of an axis: plain ones, at least two, each once."""
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
    """What `redline sweep` measures.

    Attributes:
        name: the file's name without .yaml unless the file says another.
        description: the question, a sentence for people.
        published: what a published study saw, for people; empty where there is none.
        asks: of each case: "limit", the highest load that is sustained, by a search; "load",
            what a fixed load gives; "fill", how long the workload's volume takes to be written;
            "drain", how long consumer groups take to read it from the start; "failover", how long
            until every leader serves again after a broker of a testbed was killed under load.
        cluster, workload, goal: a file of conf each, or a path.
        set: overrides of their keys for all cases, as with --set.
        quick: more of them, with --quick: what makes the experiment short.
        quick_axes: with --quick, of some axes fewer values.
        quick_repeats: with --quick, instead of `repeats`.
        axes: what varies: the full path of a key, as --set has it, and its values.
        combine: "grid", each value with each of the other axes; "one at a time", each value with
            the first values of the other axes.
        cases: instead of axes: the settings of each case, the same keys in all of them; and where
            several belong together, a `name` that is told in their place.
        cold: whether a testbed's machine forgets what was written before it is read, where "drain"
            is asked.
        load: on the goal's axis, where no limit is asked for.
        trials: of each case and repeat, where "load" is asked.
        repeats: how often each case is measured; between two of its repeats come all others.
        seed: of the order in which cases are measured.
        budget_s: no case is begun that would end later than so long after the start [s].
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
                "cases do not set the same keys, or none; expected the same keys in each of them, "
                "or nobody can tell what made a difference; complete them"
            )
        if (self.asks != "limit") != (self.load is not None):
            raise ValueError(
                "load is given, and asks is limit; remove it"
                if self.load is not None
                else f"asks is {self.asks}, and no load is given; expected load: NUMBER; add it"
            )
        if self.trials > 1 and self.asks != "load":
            raise ValueError(
                f"trials is {self.trials} and asks {self.asks}; expected trials only where a load "
                "is asked; set repeats instead"
            )
        if len(self.settings) > CASES_MAX:
            raise ValueError(
                f"there are {len(self.settings):,} cases; expected at most {CASES_MAX}; take fewer "
                "values, or combine: one at a time"
            )
        return self

    @model_validator(mode="after")
    def _tells_its_cases_apart(self) -> Experiment:
        unnamed = [each[NAME] for each in self.cases if NAME in each and not each[NAME]]
        if unnamed:
            raise ValueError(f"a case has the name {unnamed[0]!r}; expected a text; write one")
        if len(set(self.names)) < len(self.names):
            raise ValueError("two cases have one name; expected one for each; change one")
        if self.names and len(self.settings) < len(self.names):
            raise ValueError("two cases set the same; expected each once; remove one")
        return self

    @property
    def varied(self) -> tuple[str, ...]:
        """Full paths of the keys that vary, in their order."""
        return tuple(self.axes or (key for key in self.cases[0] if key != NAME))

    @property
    def names(self) -> tuple[str, ...]:
        """What people call each of the listed cases; nothing where they have no names."""
        return tuple(str(each[NAME]) for each in self.cases if NAME in each)

    @property
    def settings(self) -> tuple[dict[str, Any], ...]:
        """Full paths and values of each case, each case once."""
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
        name: unique in its sweep, such as `acks=all`.
        settings: full path → value, as text.
        told: by what people tell it from the others: the settings, or its own name as that of
            `CASE`.
        config: complete.
    """

    name: str
    settings: Mapping[str, str]
    told: Mapping[str, str]
    config: Configuration


@dataclass(frozen=True)
class Sweep:
    """An experiment whose cases were checked."""

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
        overrides: `--set` options, which win over those of the file and lose against its axes.
        cluster: instead of the experiment's.
        quick: whether those that make it short hold, too.
        repeats: instead of the experiment's.

    Raises:
        ConfigError: the file or one of the cases is wrong; says where and what to do.
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
                f"{where}: {key} is no full path of a key; expected cluster, workload or goal in "
                "front, as --set takes it, such as workload.producer.acks or "
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
        told = texts
        if experiment.names:
            name = experiment.names[number]
            told = {CASE: name}
        try:
            config = load(
                cluster or experiment.cluster, experiment.workload, experiment.goal, (*given, *own)
            )
            _require_one(experiment, config)
        except ConfigError as error:
            where = source.origin(("cases", number) if experiment.cases else ("axes",))
            raise ConfigError(f"{where}: case {name}: {error}") from error
        yield SweepCase(name, texts, told, config)


def _require_one(experiment: Experiment, config: Configuration) -> None:
    """A case is one figure, or one for each size: one goal, and for a fixed load one size."""
    if len(config.goals) > 1:
        raise ConfigError(
            f"goal {config.goal_names} are several; expected one; make goal an axis of its own "
            "experiment each"
        )
    away = config.goal.search.brokers_offline
    if away is not None:
        raise ConfigError(
            f"goal.search.brokers_offline is {away}; expected none in an experiment, as a case is "
            "one limit for each size; leave it out, and ask redline find-limit --offline"
        )
    sizes = config.workload.message_bytes
    if experiment.asks != "limit" and len(sizes) > 1:
        raise ConfigError(
            f"workload {config.workload.name} has {len(sizes)} sizes; expected one where a load is "
            "held; add set: [workload.message_bytes=[1000]]"
        )
    volume = config.workload.trial.volume_bytes
    if bool(volume) != (experiment.asks in {"fill", "drain"}):
        raise ConfigError(
            f"asks is {experiment.asks} and workload.trial.volume_bytes {volume}; expected a "
            "volume where its time is asked, fill or drain, and none elsewhere; change one of them"
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
            "asks is drain and workload.consumers.groups 0; expected 1 or more, or nobody reads "
            "the volume; set it"
        )


def _require_survivors(config: Configuration) -> None:
    """Refuse to kill a broker that others use, or that has the only replica of a partition."""
    brokers, replicas = config.cluster.brokers_known, config.workload.topic.replication_factor
    if not config.cluster.starts_brokers or brokers is None or brokers < 2 or replicas < 2:
        cluster = f"a testbed of {brokers}" if brokers else "running brokers"
        raise ConfigError(
            f"asks is failover on {cluster} with replication_factor {replicas}; expected a testbed "
            "of 2 brokers or more, and 2 replicas or more, as one broker is killed; change them"
        )


def _short_names(paths: Sequence[str]) -> dict[str, str]:
    """Full path → as little of its end as tells it from the others: Kafka's name of a property."""
    short = {}
    for path in paths:
        of_broker = path.removeprefix(PROPERTIES_PREFIX)
        short[path] = of_broker if of_broker != path else path.rsplit(".", 1)[-1]
    taken = list(short.values())
    return {path: name if taken.count(name) == 1 else path for path, name in short.items()}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)

"""The file of an experiment, the checked cases of a sweep, and the results of their runs."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from jobs.campaigns.campaign import measurement_named
from jobs.config.base import ConfigModel, FileSection, Name
from jobs.config.cluster import DEFAULT_CLUSTER
from jobs.config.files import Conf, load_model
from jobs.config.loading import Configuration, load
from jobs.config.overrides import FILES
from jobs.config.yaml_file import ParsedFile
from jobs.runs.measurement import Case, Measurement, explaining, require_measurable
from metrics.common.bounds import Number, UnexpectedError, Whole
from metrics.common.errors import ConfigError
from metrics.comparing.figures import CASE, Result, last_name, setting_text
from metrics.features.sweep.answer import CaseSettings, Claim
from metrics.reporting.summary import RunSummary, load_summary

CASES_MAX = 200
"""Maximum number of cases of an experiment."""
NAME = "name"
"""The key for the name of a listed case; all other keys of a case are settings."""
CONCLUDED = ("done", "no conclusion")
"""Statuses of runs that ended with an answer, or with a reason why there is no answer."""


def _as_values(value: Any) -> Any:
    """The values of an axis. An axis has at least two values, and no value occurs twice."""
    texts = [json.dumps(each) for each in value] if isinstance(value, list | tuple) else []
    if len(texts) < 2 or len(set(texts)) < len(texts) or any(each is None for each in value):
        raise UnexpectedError("a list of at least two different values, such as [1, all]")
    return tuple(value)


Values = Annotated[tuple[Any, ...], BeforeValidator(_as_values)]
Settings = Annotated[Mapping[str, Any], CaseSettings()]


class Experiment(ConfigModel):
    """An experiment for `redline sweep`.

    Attributes:
        name: the name of the experiment (default: the file's name without .yaml).
        description: the question of the experiment, as a sentence.
        published: the result of a published study, as text; empty without a study.
        claims: claims of published studies. The answer of the sweep compares each claim with the
            figures that the sweep measured.
        asks: the measurement of each case. "limit": the highest sustained load, found by a search.
            "load": the readings at a fixed load. "fill": the time to write the workload's volume.
            "drain": the time in which consumer groups read the volume from the start. "failover":
            the time from the kill of a testbed broker under load until every partition has a leader
            again. Installed packages can add further measurements.
        cluster, workload, goal: the name of a file in conf, or the path of a file.
        set: overrides that apply to all cases, as with --set. They override keys of the cluster,
            the workload and the goal.
        quick: further overrides that apply with --quick and make the experiment short.
        quick_axes: with --quick, some axes have only these values.
        quick_repeats: number of repeats with --quick, instead of `repeats`.
        axes: full path of each varied key (as in --set) → the values of this key.
        combine: "grid" combines each value of an axis with each value of all further axes. "one at
            a time" combines each value of an axis with the first value of each further axis.
        cases: the settings of each case, instead of `axes`. All cases have the same keys. The
            optional key `name` is the name of the case.
        cold: for "drain": whether the volume is dropped from the page cache of the testbed's
            machine before consumers read it.
        load: the fixed load on the goal's axis; required unless asks is "limit".
        trials: for "load": number of trials of each case in each repeat.
        repeats: number of measurements of each case. All cases are measured once before any case is
            measured again.
        seed: seed of the random order of the cases.
        budget_s: time budget of a sweep [s]. A case starts only if it is expected to end within
            this time.
    """

    name: Name
    description: str = ""
    published: str = ""
    claims: Annotated[tuple[Annotated[Claim, FileSection()], ...], Field(strict=False)] = ()
    asks: Name = "limit"
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
            raise ValueError(f"the file has {given}; expected one of them; correct the file")
        for key, values in self.quick_axes.items():
            others = [each for each in values if each not in self.axes.get(key, ())]
            if key not in self.axes or others:
                raise ValueError(
                    f"quick_axes has {key}: {list(values)}; expected only values that "
                    f"axes has for {key}: {list(self.axes.get(key, ()))}; correct the values"
                )
        keys = {frozenset(each) for each in self.cases}
        if len(keys) > 1 or keys & {frozenset(), frozenset({NAME})}:
            raise ValueError(
                "cases set different keys, or no keys; expected the same keys in each case, so "
                "that the cases can be compared; add the missing keys"
            )
        if len(self.settings) > CASES_MAX:
            raise ValueError(
                f"the experiment has {len(self.settings):,} cases; expected at most {CASES_MAX}; "
                'use fewer values, or add the line "combine: one at a time"'
            )
        return self

    @model_validator(mode="after")
    def _names_are_unique(self) -> Experiment:
        unnamed = [each[NAME] for each in self.cases if NAME in each and not each[NAME]]
        if unnamed:
            raise ValueError(f"a case has the name {unnamed[0]!r}; expected a text; write a name")
        if len(set(self.names)) < len(self.names):
            raise ValueError("two cases have the same name; expected unique names; rename one")
        if self.names and len(self.settings) < len(self.names):
            raise ValueError(
                "two cases have the same settings; expected different settings; remove one case"
            )
        return self

    @property
    def varied(self) -> tuple[str, ...]:
        """The full paths of the varied keys, in the order of the file."""
        return tuple(self.axes or (key for key in self.cases[0] if key != NAME))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the listed cases; empty if cases have no names."""
        return tuple(str(each[NAME]) for each in self.cases if NAME in each)

    @property
    def settings(self) -> tuple[dict[str, Any], ...]:
        """For each case a map from full path to value, without duplicate cases."""
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


_REMEDIES = {"trials": "set repeats instead"}
"""Key → the remedy if a measurement does not accept the key. For a key that is not in this map, the
remedy is to remove the key.
"""


@dataclass(frozen=True)
class ExperimentCase:
    """One case of an experiment.

    Attributes:
        name: a name that is unique in the sweep, such as `acks=all`.
        settings: full path of each varied key → its value as text.
        shown: the texts that reports show: the settings, or the case's name under the key `CASE`.
        config: the complete configuration of the case.
    """

    name: str
    settings: Mapping[str, str]
    shown: Mapping[str, str]
    config: Configuration


@dataclass(frozen=True)
class Sweep:
    """An experiment with its checked cases.

    Attributes:
        measurement: the measurement of each case.
    """

    experiment: Experiment
    measurement: Measurement
    cases: tuple[ExperimentCase, ...]


def load_sweep(
    name_or_path: str,
    overrides: Sequence[str] = (),
    cluster: str | None = None,
    *,
    quick: bool = False,
    repeats: int | None = None,
) -> Sweep:
    """Read an experiment, and check the configuration of each case as `redline find-limit` does.

    Args:
        name_or_path: the name of a file in conf/experiments/ without .yaml, or the path of a file.
        overrides: `--set` options. The `--set` options take precedence over the file's key `set`,
            but not over the file's axes.
        cluster: a cluster that replaces the cluster of the experiment; None to keep it.
        quick: whether the keys for --quick apply.
        repeats: a number that replaces the repeats of the experiment; None to keep them.

    Raises:
        ConfigError: the file or a case is invalid. The error's message states the place in the
            file.
    """
    replaced = {} if repeats is None else {"repeats": repeats}
    experiment, source = load_model(
        "experiments", name_or_path, "experiment", Experiment, **replaced
    )
    _require_paths(experiment, source)
    measurement = _measurement_of(experiment, source)
    if quick:
        axes = {**experiment.axes, **experiment.quick_axes}
        count = experiment.quick_repeats if repeats is None else repeats
        experiment = experiment.model_copy(update={"axes": axes, "repeats": count})
    given = (*experiment.set, *(experiment.quick if quick else ()), *overrides)
    cases = _cases(experiment, measurement, source, given, cluster)
    return Sweep(experiment, measurement, tuple(cases))


def case_of(experiment: Experiment, config: Configuration) -> Case:
    """A case in the form that measurements accept, with the keys of its experiment."""
    return Case(config, experiment.load, experiment.trials, experiment.cold)


def _measurement_of(experiment: Experiment, source: ParsedFile) -> Measurement:
    """The measurement whose name is in the key `asks` of an experiment.

    Raises:
        ConfigError: the measurement is unknown, lacks a required key, or does not accept a given
            key.
    """
    try:
        found = measurement_named(experiment.asks)
    except ConfigError as error:
        raise ConfigError(f"{source.origin(('asks',))}: {error}") from error
    given = {
        "load": experiment.load is not None,
        "trials": experiment.trials > 1,
        "cold": experiment.cold,
    }
    for key, is_given in given.items():
        if is_given and key not in found.takes:
            raise ConfigError(
                f"{source.origin((key,))}: {key} is given together with asks: {found.name}, which "
                f"does not accept {key}; {_REMEDIES.get(key, f'remove {key}')}"
            )
    if "load" in found.takes and experiment.load is None:
        raise ConfigError(
            f"{source.origin(('asks',))}: asks: {found.name} is given without load; expected "
            "load: NUMBER; add load"
        )
    return found


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
    experiment: Experiment,
    measurement: Measurement,
    source: ParsedFile,
    given: Sequence[str],
    cluster: str | None,
) -> Iterator[ExperimentCase]:
    names = _short_names(experiment.varied)
    for number, settings in enumerate(experiment.settings):
        own = tuple(f"{key}={json.dumps(value)}" for key, value in settings.items())
        texts = {key: setting_text(value) for key, value in settings.items()}
        name = " ".join(f"{names[key]}={value}" for key, value in texts.items())
        shown = texts
        if experiment.names:
            name = experiment.names[number]
            shown = {CASE: name}
        try:
            config = load(
                cluster or experiment.cluster, experiment.workload, experiment.goal, (*given, *own)
            )
            _require_one(config)
            _require_effect(config, settings)
            require_measurable(measurement, case_of(experiment, config))
        except ConfigError as error:
            where = source.origin(("cases", number) if experiment.cases else ("axes",))
            raise ConfigError(f"{where}: case {name}: {error}") from error
        yield ExperimentCase(name, texts, shown, config)


def _require_one(config: Configuration) -> None:
    """Refuse a case that has several goals, or that also searches limits with offline brokers."""
    if len(config.goals) > 1:
        raise ConfigError(
            f"goal {config.goal_names} names several goals; expected one; write an experiment for "
            "each goal"
        )
    offline = config.goal.search.brokers_offline
    if offline is not None:
        raise ConfigError(
            f"goal.search.brokers_offline is {offline}; expected no such key in an experiment, "
            "because a case has one limit for each message size; remove the key, and use redline "
            "find-limit --offline"
        )


def _require_effect(config: Configuration, settings: Mapping[str, object]) -> None:
    """If there are existing topics in the cluster's file, refuse to vary topic properties."""
    without = [key for key in settings if key.startswith("workload.topic.")]
    if without and config.cluster.topics:
        raise ConfigError(
            f"the experiment varies {without[0]}, and a run does not change existing topics, which "
            f"cluster {config.cluster.name} names; expected only keys that a run can change; vary "
            "cluster.topics to compare existing topics"
        )


def _short_names(paths: Sequence[str]) -> dict[str, str]:
    """Full path → the shortest unique name, for example the name of a broker property."""
    short = {path: last_name(path) for path in paths}
    taken = list(short.values())
    return {path: name if taken.count(name) == 1 else path for path, name in short.items()}


def finished(folder: Path) -> RunSummary | None:
    """The summary of the run in a folder; None if the run has not finished."""
    path = folder / "summary.json"
    if not path.exists():
        return None
    summary = load_summary(path)
    return summary if summary.status in CONCLUDED else None


def results_of(
    measurement: Measurement, settings: Mapping[str, str], repeat: int, summary: RunSummary
) -> Iterator[Result]:
    """The results of a case's run, one for each message size.

    Args:
        settings: full path of each varied key → its value.
        repeat: number of the repeat, from 1.
    """
    with explaining(measurement):
        found = list(measurement.results(summary))
    for each in found:
        yield replace(each, settings=settings, repeat=repeat, brokers=summary.brokers,
                      run_id=summary.run_id)  # fmt: skip

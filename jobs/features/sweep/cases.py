"""The cases of an experiment, each checked as `redline find-limit` checks its configuration."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from jobs.campaigns.campaign import measurement_named
from jobs.config.files import load_model
from jobs.config.loading import Configuration, load
from jobs.config.overrides import FILES
from jobs.config.source import ParsedFile
from jobs.features.sweep.experiment import Experiment
from jobs.runs.measurement import Case, Measurement, require_measurable
from metrics.common.errors import ConfigError
from metrics.comparing.figures import CASE, PROPERTIES_PREFIX, setting_text

_REMEDIES = {"trials": "set repeats instead"}
"""Key that a measurement does not take → its remedy where that is not to remove the key."""


@dataclass(frozen=True)
class ExperimentCase:
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
    """An experiment with its checked cases.

    Attributes:
        measurement: the question that is asked of each case.
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
    """A case with the keys of its experiment, as a measurement takes it."""
    return Case(config, experiment.load, experiment.trials, experiment.cold)


def _measurement_of(experiment: Experiment, source: ParsedFile) -> Measurement:
    """The measurement that an experiment names, which takes the experiment's keys.

    Raises:
        ConfigError: it is unknown, a key that it requires is missing, or it does not take one.
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
                f"{source.origin((key,))}: {key} is given, and asks is {found.name}, which does "
                f"not take it; {_REMEDIES.get(key, 'remove it')}"
            )
    if "load" in found.takes and experiment.load is None:
        raise ConfigError(
            f"{source.origin(('asks',))}: asks is {found.name}, and no load is given; expected "
            "load: NUMBER; add it"
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
    """Refuse a case that has several goals, or limits in several states of the cluster."""
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


def _require_effect(config: Configuration, settings: Mapping[str, object]) -> None:
    """Refuse a comparison of properties that topics of `cluster.topics` do not take."""
    without = [key for key in settings if key.startswith("workload.topic.")]
    if without and config.cluster.topics:
        raise ConfigError(
            f"{without[0]} is varied, and cluster {config.cluster.name} has the key topics, whose "
            "topics keep their own shape; expected other keys; compare topics instead, as values "
            "of cluster.topics"
        )


def _short_names(paths: Sequence[str]) -> dict[str, str]:
    """Full path → the shortest name that is unique among them, such as Kafka's property name."""
    short = {}
    for path in paths:
        of_broker = path.removeprefix(PROPERTIES_PREFIX)
        short[path] = of_broker if of_broker != path else path.rsplit(".", 1)[-1]
    taken = list(short.values())
    return {path: name if taken.count(name) == 1 else path for path, name in short.items()}

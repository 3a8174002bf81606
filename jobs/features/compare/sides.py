"""The two sides of a comparison from the command line, and the comparison of two finished runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from jobs.config import Configuration, Goal, Workload, load
from jobs.config.base import all_keys
from jobs.config.files import SUFFIXES
from jobs.config.loading import (
    available,
    describe,
    load_cluster,
    require_endless,
    require_open_loop,
)
from jobs.config.overrides import FILES
from jobs.console.events import Reporter, Table, note
from jobs.runs.outcome import RunOutcome, finish, outcome_of
from jobs.setup.preflight import Machine, memory_problem, this_machine
from jobs.testbed import facade
from metrics.columns import as_document
from metrics.common.errors import ConfigError, NoConclusionError, RegressionError
from metrics.comparing.cause import changed_release, release_of
from metrics.comparing.effects import BETWEEN_NIGHTS_SD, Conclusion, Side
from metrics.comparing.figures import (
    PROPERTIES_PREFIX,
    AxisEffect,
    Result,
    concluded,
    effects_of,
    figure,
    limit_result,
    sentence,
)
from metrics.reporting.files import write_json_file
from metrics.reporting.summary import RunSummary, load_summary
from metrics.tables.boundary import Boundary
from metrics.tables.rows import Difference, difference
from metrics.traffic.axes import MESSAGE_BYTES, NP, SCALE, axis_named
from metrics.units import UNKNOWN, format_size

TESTBED_KEYS = {
    "kafka": "kafka_version",
    **{key: key for key in ("profile", "brokers", "metadata", "security", "jmx_secured")},
}
"""Setting of a side → the key of `testbed` in a cluster's file that the setting changes. All other
settings are broker properties.
"""

SAME_ON_BOTH = (
    ("workload", "message_bytes"),
    ("workload", "np"),
    ("workload", "producer", "rate"),
    ("workload", "producer", "rate_bytes_per_s"),
    ("workload", "producer", "rate_records_per_s"),
    ("goal", "search"),
)
"""Keys that determine the load of a comparison. A key stands for all keys below it. Both sides must
have equal values of these keys.
"""

SAME_IN_PARTS = (
    ("producers",),
    ("message_bytes",),
    ("producer", "rate_bytes_per_s"),
    ("producer", "rate_records_per_s"),
)
"""Keys of each part of a mix. Their values determine the load of a comparison, so both sides must
have equal values.
"""

FULL_WINDOWS = "workload.trial.early_end_error_rate=0"
"""The setting that prevents an early end of windows, because the readings of a window that ends
early are biased.
"""

SPARK_BYTES = 1_500_000_000
"""Memory for the driver, its JVM and the Python workers [B]."""


@dataclass(frozen=True)
class SideSetup:
    """The set-up of one side.

    Attributes:
        label: the side, as written on the command line.
        config: the complete configuration of the side.
    """

    label: str
    config: Configuration

    @property
    def settings(self) -> dict[str, str]:
        """Path of each key of the workload and the goal → its value as text."""
        found = {}
        for file, model in (("workload", self.config.workload), ("goal", self.config.goal)):
            found.update({f"{file}.{key}": str(value) for key, value in describe(model).items()})
        return {key: found[key] for key in found if not key.endswith((".name", ".description"))}

    @property
    def memory_bytes(self) -> int:
        """The memory of the side's testbed on this machine [B]; 0 if the cluster is not
        a testbed.
        """
        testbed = self.config.cluster.testbed
        return 0 if testbed is None else facade.memory_bytes(testbed)


def settings_of(spec: str) -> dict[str, str] | None:
    """The settings in a text such as `kafka=3.9.2,num.io.threads=2`; None if the text names a
    cluster.

    A value may contain commas: a comma ends a setting only if another setting follows.

    Raises:
        ConfigError: a setting is given twice, has no name, or has no value.
    """
    if "=" not in spec:
        return None
    settings: dict[str, str] = {}
    for part in re.split(r",(?=\s*[\w.-]+=)", spec):
        key, _, value = (text.strip() for text in part.partition("="))
        if not key or not value or key in settings:
            raise ConfigError(
                f"{part.strip()!r} in {spec!r} is not a setting, or repeats a setting; expected "
                "settings such as kafka=4.3.1,num.io.threads=2; correct the option"
            )
        settings[key] = value
    return settings


def _overrides(settings: Mapping[str, str], option: str) -> Iterator[str]:
    """The settings in the form of `--set` options.

    Raises:
        ConfigError: a setting determines the load of both sides, so it cannot belong to one side;
            or a setting lacks its prefix `workload.` or `goal.`.
    """
    for key, value in settings.items():
        path = tuple(key.split("."))
        if path[0] in FILES:
            _require_comparable(key, path, option)
            yield f"{key}={value}"
        elif key in TESTBED_KEYS:
            yield f"cluster.testbed.{TESTBED_KEYS[key]}={value}"
        else:
            _require_broker_property(key, path, option)
            yield f"{PROPERTIES_PREFIX}{key}={value}"


def _require_comparable(key: str, path: tuple[str, ...], option: str) -> None:
    if path[:2] == ("workload", "mix"):
        own = path[3:]  # the path below the part's name
        is_fixed = any(own[: len(same)] == same[: len(own)] for same in SAME_IN_PARTS)
    else:
        is_fixed = any(path[: len(same)] == same for same in SAME_ON_BOTH)
    if is_fixed:
        raise ConfigError(
            f"{option} sets {key}, which determines the load of both sides; expected the same "
            f"value on both sides; use --set {key}=VALUE"
        )


def _require_broker_property(key: str, path: tuple[str, ...], option: str) -> None:
    for file, model in (("workload", Workload), ("goal", Goal)):
        if path in set(all_keys(model)):
            raise ConfigError(
                f"{option} sets {key}, which is a key of the {file}; expected its full path; write "
                f"{file}.{key}"
            )


def load_sides(
    specs: Mapping[Side, str], cluster: str, workload: str, goal: str, overrides: Sequence[str]
) -> dict[Side, SideSetup]:
    """Load and check the configurations of both sides.

    Args:
        specs: side → a cluster (the name of a file in conf/clusters, or a path), or settings. A
            setting is a broker property of the testbed `cluster`, or the full path of any key, as
            with `--set`.

    Raises:
        ConfigError: a file, a setting or the axis of the goal's search is invalid. The only valid
            axis is `scale` for a mix, and `np` (the number of producers) for traffic without a mix.
    """
    sides = {}
    for side, spec in specs.items():
        settings, option = settings_of(spec), f"--{side.value.lower()}"
        if settings is None:
            _require_cluster(spec, option)
            config = load(spec, workload, goal, (*overrides, FULL_WINDOWS))
        else:
            own = list(_overrides(settings, option))
            of_brokers = [each for each in own if each.startswith("cluster.")]
            if of_brokers and not load_cluster(cluster, overrides).starts_brokers:
                raise ConfigError(
                    f"{option} {spec} sets properties of brokers, and cluster {cluster} is not "
                    "a testbed; expected a testbed, because the comparison starts the brokers; "
                    "name two cluster files, or name a testbed with --cluster"
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
    wanted = (
        "np, because a comparison varies the number of producers; choose a goal with "
        "goal.search.axis np"
        if config.workload.mix is None
        else "scale, because a comparison scales all parts of the mix by the same factor; "
        "remove goal.search.axis"
    )
    if config.axis is not (NP if config.workload.mix is None else SCALE):
        raise ConfigError(
            f"goal {config.goal.name} searches along {config.goal.search.axis}; expected {wanted}"
        )


def share_brokers(sides: Mapping[Side, SideSetup]) -> bool:
    """True if both sides load the same brokers, because the sides differ only in the workload or
    the goal.
    """
    a, b = sides[Side.A].config, sides[Side.B].config
    return a.cluster == b.cluster and a != b


def needed_bytes(sides: Mapping[Side, SideSetup]) -> int:
    """The memory [B] on this machine that suffices for both sides and Spark at the same time."""
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
            f"the brokers of both sides run at the same time. {problem} Or use fewer brokers, "
            "for example --set cluster.testbed.brokers=1 "
            "--set workload.topic.replication_factor=1"
        )


AXIS = "run"
SEARCHED = 0
"""Placeholder for the message size of a limit whose search varied the message size."""
DIFFERENCES_SHOWN = 12
Kind = tuple[str, str, str]
"""The kind of a limit: the goal, the state of the cluster, and the axis of the search. Only limits
of the same kind are compared.
"""


def compare_finished(
    run_ids: Sequence[str], out: Path, min_effect: float, json_file: Path | None, reporter: Reporter
) -> None:
    """Compare the limits of two runs, and show the differences with their intervals.

    Args:
        run_ids: the ids of two runs in the folder `out`.
        min_effect: the smallest relevant loss [ratio].

    Raises:
        ConfigError: a run does not exist, both ids are equal, the runs have no common limit, or the
            file cannot be written. A common limit has the same goal, cluster state and message size
            in both runs.
        NoConclusionError: no message size has a limit with an interval in both runs.
        RegressionError: a limit of the second run is significantly lower.
    """
    if len(set(run_ids)) < len(run_ids):
        raise ConfigError(
            f"the run {run_ids[0]} is given twice; expected two different runs; name another run"
        )
    first, second = (load_summary(out / run_id / "summary.json") for run_id in run_ids)
    names = (first.run_id, second.run_id)
    results = _results_in_common(first, second)
    if not results:
        raise ConfigError(
            f"{names[0]} and {names[1]} have 0 limits with the same goal, cluster state and "
            "message size; expected two runs of redline find-limit with at least 1; name other runs"
        )
    found = [
        replace(each, where=_where(kind) if len(results) > 1 else {})
        for kind, own in results.items()
        for each in effects_of(own, {AXIS: names}, between_sd=BETWEEN_NIGHTS_SD)
    ]
    effects = concluded(found, min_effect)
    changed = difference(first.environment, second.environment)
    columns = ("run", *(("goal", "state") if len(results) > 1 else ()), "size", "sustained",
               "limit at 90 %")  # fmt: skip
    reporter.report(Table("Limits", columns, tuple(_rows(results))))
    reasons = (f"{each.settings[AXIS]}, {_size(each.message_bytes)}: {each.why}"
               for own in results.values() for each in own if each.why)  # fmt: skip
    for text in (*reasons, *_sentences(first, second, effects, changed)):
        note(reporter, text)
    document = {
        "runs": names,
        "effects": [as_document(each) | {"words": sentence(each)} for each in effects],
        "differences": [as_document(each) for each in changed],
        "caveats": list(_caveats(first, second)),
    }
    finish(_outcome(effects), reporter, partial(write_json_file, json_file, document))


def _limits(run: RunSummary) -> dict[tuple[Kind, int], Boundary]:
    """(Kind, message size [B]) → limit of a run. Summaries of early versions have no goal.

    The size is `SEARCHED` if the search varied the message size.
    """
    return {
        (
            (each.goal or run.goal, each.state, each.axis),
            SEARCHED if each.along is MESSAGE_BYTES else each.message_bytes,
        ): each
        for each in run.boundaries
    }


def _size(message_bytes: int) -> str:
    return format_size(message_bytes) if message_bytes else "the searched size"


def _results_in_common(first: RunSummary, second: RunSummary) -> dict[Kind, list[Result]]:
    """Kind → the results of both runs at the message sizes that both runs have."""
    common = _limits(first).keys() & _limits(second).keys()
    found: dict[Kind, list[Result]] = {}
    for run in (first, second):
        for (kind, message_bytes), limit in _limits(run).items():
            if (kind, message_bytes) in common:
                made = limit_result(limit)
                own = replace(made, settings={AXIS: run.run_id}, message_bytes=message_bytes,
                              brokers=run.brokers, run_id=run.run_id)  # fmt: skip
                found.setdefault(kind, []).append(own)
    return found


def _where(kind: Kind) -> dict[str, str]:
    goal, state, _ = kind
    return {"goal": goal, "state": state}


def _rows(results: Mapping[Kind, Sequence[Result]]) -> Iterator[tuple[str, ...]]:
    for kind, own in results.items():
        unit = axis_named(kind[-1]).unit
        for each in own:
            interval = f"{figure(each.low)} to {figure(each.high)} {unit}"
            yield (
                each.settings[AXIS],
                *(_where(kind).values() if len(results) > 1 else ()),
                _size(each.message_bytes),
                f"{figure(each.value)} {unit}" if each.value else "no conclusion",
                interval if each.has_interval else UNKNOWN,
            )


def _sentences(
    first: RunSummary,
    second: RunSummary,
    effects: Sequence[AxisEffect],
    changed: Sequence[Difference],
) -> Iterator[str]:
    yield from map(sentence, effects)
    for name in ("cluster", "workload"):
        before, after = getattr(first, name), getattr(second, name)
        if before != after:
            yield f"the runs differ in the {name}: {before} in the first, {after} in the second"
    upgrade = changed_release(release_of(first.environment), release_of(second.environment))
    if upgrade is not None:
        yield f"the brokers were {upgrade[0]} in the first run and {upgrade[1]} in the second run"
    yield from _caveats(first, second)
    before, after = _limits(first), _limits(second)
    if alone := [each for each in (*before, *after) if (each in before) != (each in after)]:
        limits = "; ".join(
            f"{goal}, {state}, {_size(message_bytes)}" for (goal, state, _), message_bytes in alone
        )
        yield f"limits that are not compared, because only one run has them: {limits}"
    for each in changed[:DIFFERENCES_SHOWN]:
        yield f"differs: {each.name} {each.before} → {each.after}"
    if len(changed) > DIFFERENCES_SHOWN:
        yield f"{len(changed) - DIFFERENCES_SHOWN} more facts of the environments differ"
    yield (
        "the intervals include the precision of each limit, and assume a standard deviation of "
        f"{BETWEEN_NIGHTS_SD:.0%} between runs; redline compare --a … --b … loads both sides in "
        "turns, and needs no such assumption"
    )


def _caveats(first: RunSummary, second: RunSummary) -> Iterator[str]:
    """The caveats of both runs; only one sentence if both are equal."""
    if first.caveat == second.caveat:
        found = {"both runs": first.caveat}
    else:
        found = {run.run_id: run.caveat for run in (first, second)}
    yield from (f"caveat of {which}: {text}" for which, text in found.items() if text)


def _outcome(effects: Sequence[AxisEffect]) -> RunOutcome:
    worse = [each for each in effects if each.conclusion is Conclusion.REGRESSION]
    if worse:
        return outcome_of(RegressionError(sentence(worse[0])))
    if all(each.effect is None for each in effects):
        return outcome_of(NoConclusionError("no size has a limit with an interval in both runs"))
    return RunOutcome()

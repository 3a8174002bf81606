"""The protocol of a measurement. A sweep makes one measurement for each case. Each measurement
gives one figure.

docs/extending.md lists the parts of the protocol on which installed packages can rely.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from jobs.config import Configuration
from jobs.console.events import Plan, note
from jobs.runs.fixed_load import FixedLoad, FixedLoadRun
from jobs.runs.lifecycle import Body, RunState
from jobs.trials.measure import Rig
from jobs.trials.unclean_stop import UncleanStop
from metrics.common.errors import ConfigError, RedlineError
from metrics.common.extensions import explain_failure
from metrics.comparing.figures import FigureKind, Result
from metrics.reporting.summary import RunSummary
from metrics.trial.trial import Trial
from search.model import Verdict


@dataclass(frozen=True)
class Case:
    """A case of an experiment, with the keys of the experiment that its measurement can use.

    Attributes:
        config: the complete configuration.
        load: the fixed load on the goal's axis; None if no load is given.
        trials: number of trials at the fixed load.
        cold: whether the page cache of a testbed is dropped before a volume is read.
        nearby: a limit near which a search may begin; None if no limit is known.
    """

    config: Configuration
    load: int | None = None
    trials: int = 1
    cold: bool = False
    nearby: int | None = None

    @property
    def held(self) -> FixedLoad:
        """The fixed load at the workload's message size."""
        assert self.load is not None, "see require_measurable"
        return FixedLoad(self.config.workload.message_bytes[0], self.load, self.trials)


class Measurement(ABC):
    """A measurement that a sweep makes for each case.

    Attributes:
        api: the version of the protocol that a package implements; the project's own measurements
            do not set it.
        name: the name in experiments (`asks`) and in the table `runs`.
        figure: the name of the figure, and how figures are compared.
        unit: the unit of the figure.
        takes: the keys of the experiment that the measurement uses, out of `load`, `trials` and
            `cold`. If the measurement uses `load`, the experiment must state a load.
        moves_volume: whether the measurement requires `workload.trial.volume_bytes`. If False, the
            measurement refuses a workload with a volume.
        package: the installed package that adds the measurement, with its version; empty for the
            project's own measurements.
    """

    api: ClassVar[int] = 0
    name: ClassVar[str]
    figure: ClassVar[FigureKind]
    unit: ClassVar[str]
    takes: ClassVar[frozenset[str]] = frozenset({"load"})
    moves_volume: ClassVar[bool] = False
    package: str = ""

    def unit_on(self, axis: str) -> str:
        """The unit of the measured figure if the goal's search varies this axis."""
        return self.unit

    def require(self, case: Case) -> None:
        """Refuse a case that cannot be measured. The caller has already checked the case against
        the attributes of the measurement.

        Raises:
            ConfigError: the case cannot be measured; the message has the given value, the expected
                value and the remedy.
        """
        return

    @abstractmethod
    def body(self, case: Case) -> Body:
        """The body of the run that measures a case."""

    @abstractmethod
    def results(self, summary: RunSummary) -> Iterator[Result]:
        """The figure of a finished run at each message size; the caller adds the settings of the
        case.
        """


@contextmanager
def explaining(of: Measurement) -> Iterator[None]:
    """Turn an unexpected error in the code of a package into a message.

    Raises:
        ConfigError: the code of a package's measurement failed.
    """
    try:
        yield
    except RedlineError:
        raise
    except Exception as error:
        if not of.package:
            raise
        raise explain_failure(f"the measurement {of.name} of {of.package}", error) from error


class Loads:
    """Offers the loads of a measurement, one trial after another, on one topic.

    Attributes:
        case: the case, as the experiment states it.
        config: the configuration of the trials; see `HeldMeasurement.configured`.
        run: the state of the run; installed packages must not use this attribute, because it can
            change in any release.
        failure: the error with which a trial ended; None if no trial ended with an error.
    """

    def __init__(self, run: RunState, body: HeldRun, rig: Rig, case: Case) -> None:
        self.run = run
        self.case = case
        self.config = body.config
        self.failure: Exception | None = None
        self._body = body
        self._rig = rig

    def hold(
        self,
        why: str,
        *,
        load: int | None = None,
        left: int = 1,
        config: Configuration | None = None,
        stop: UncleanStop | None = None,
    ) -> Trial:
        """Make one trial, and store it in the tables and the summary.

        Args:
            why: the purpose of the trial, shown as progress.
            load: the load on the goal's axis; the load of the case by default.
            left: number of remaining trials, this one included.
            config: the configuration of this trial; by default, the attribute `config`.
            stop: kills a broker in the window; installed packages must not use this argument,
                because it can change in any release.

        Raises:
            RedlineError: a guard stopped the run, or the cluster failed.
        """
        held = self._body.load
        load = held.load if load is None else load
        try:
            trial = self._rig.trial(held.message_bytes, load, why, left, config, stop)
        except Exception as error:
            self.failure = error
            raise
        self._body.trials.append(trial)
        return trial

    def note(self, text: str) -> None:
        """Show a sentence to the user."""
        note(self.run.order.reporter, text)


class HeldMeasurement(Measurement):
    """A measurement that offers fixed loads, and computes its figure from the trials of these
    loads.
    """

    def configured(self, case: Case) -> Configuration:
        """The configuration of the run's trials."""
        return case.config

    def trials(self, case: Case) -> int:
        """The number of trials, for the plan."""
        return 1

    def writes(self, case: Case) -> int:
        """The number of trials that write the payload, for the plan; all trials by default."""
        return self.trials(case)

    @abstractmethod
    def hold(self, loads: Loads) -> None:
        """Offer the loads.

        Raises:
            NoConclusionError: the measured figure of the case cannot be computed from the trials.
        """

    @abstractmethod
    def result(self, trials: Sequence[Mapping[str, Any]]) -> Result:
        """The figure of one or more trials in the form of summary.json; see `result_at`."""

    def body(self, case: Case) -> Body:
        """The body of a run that offers the loads."""
        return HeldRun(self, case)

    def results(self, summary: RunSummary) -> Iterator[Result]:
        """The figure of a run as a list, which is empty if no trial was made."""
        if summary.trials:
            yield self.result(summary.trials)


class HeldRun(FixedLoadRun):
    """The run of a measurement that offers fixed loads."""

    def __init__(self, of: HeldMeasurement, case: Case) -> None:
        super().__init__(of.configured(case), replace(case.held, trials=1))
        self.measurement = of.name
        self._of = of
        self._case = case

    def plan(self, out: Path) -> Plan:
        """The plan of all trials, computed from the plan of one trial."""
        with explaining(self._of):
            count, writes = self._of.trials(self._case), self._of.writes(self._case)
        one = super().plan(out)
        written, on_disk = one.write_bytes_max, one.disk_bytes_max
        return replace(
            one,
            trials_estimated=count,
            duration_s=count * one.duration_s,
            write_bytes_max=None if written is None else writes * written,
            disk_bytes_max=None if on_disk is None else writes * on_disk,
        )

    def measure(self, run: RunState) -> None:
        """Offer the loads of the measurement.

        Raises:
            ConfigError: the measurement itself failed.
        """
        with Rig.open(run.context, self.config.cluster.warm_up_max_s) as rig:
            loads = Loads(run, self, rig, self._case)
            with explaining(self._of):
                try:
                    self._of.hold(loads)
                except Exception as error:
                    if error is not loads.failure:
                        raise
            if loads.failure is not None:
                raise loads.failure


def require_measurable(of: Measurement, case: Case) -> None:
    """Refuse a case that a measurement cannot measure.

    Raises:
        ConfigError: the number of message sizes or the volume does not fit the measurement, or the
            measurement itself refuses the case.
    """
    sizes = case.config.workload.message_bytes
    if "load" in of.takes and len(sizes) > 1:
        raise ConfigError(
            f"workload {case.config.workload.name} has {len(sizes)} message sizes; expected one "
            "for a fixed load; set one size, such as set: [workload.message_bytes=[1000]]"
        )
    volume = case.config.workload.trial.volume_bytes
    if bool(volume) != of.moves_volume:
        expected = "a volume" if of.moves_volume else "none"
        raise ConfigError(
            f"asks: {of.name} is given with workload.trial.volume_bytes {volume}; expected "
            f"{expected}; change asks or workload.trial.volume_bytes"
        )
    with explaining(of):
        of.require(case)


def why_invalid(trial: Mapping[str, Any]) -> str:
    """The reason why a trial of summary.json is INVALID; empty if the trial is valid."""
    if trial["verdict"] != Verdict.INVALID.value:
        return ""
    return next(iter(trial["reasons"]), "the trial was INVALID")


def result_at(
    trial: Mapping[str, Any], value: float | None, why: str = "", **readings: float | None
) -> Result:
    """The result of one trial of summary.json, with its latencies.

    An INVALID trial gives no figure.

    Args:
        trial: the trial, in the form of summary.json.
        value: the figure; None if it is unknown.
        why: the reason why the figure is unknown.
        readings: further readings; their names are in `FigureKind.columns`.
    """
    invalid = why_invalid(trial)
    found = None if invalid else value
    return Result(
        {},
        1,
        int(trial["bpm"]),
        found,
        p50_ms=trial["latency_p50_ms"],
        p99_ms=trial["latency_p99_ms"],
        p999_ms=trial["latency_p999_ms"],
        limited_by=trial["limited_by"],
        why=invalid or ("" if found is not None else why),
        readings={name: each for name, each in readings.items() if each is not None},
    )

"""Fixed loads on an open cluster, one trial after another: nothing is searched for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from jobs.config import Configuration
from jobs.console.events import Plan
from jobs.runs.estimate import TESTBED_CAVEAT, describe_producer, trial_s
from jobs.trials.axes import Traffic
from jobs.trials.context import Bench
from jobs.trials.guards import planned_bytes
from jobs.trials.measure import Outlook, TrialMeasurer
from jobs.trials.point_topics import PointTopics
from jobs.trials.warm_up import open_gates
from metrics.tables.schema import Trial


def held_in_full(config: Configuration) -> Configuration:
    """The configuration without early ends: a fixed load is to be held, not decided about."""
    trial = config.workload.trial.model_copy(update={"early_end_error_rate": 0.0})
    return replace(config, workload=config.workload.model_copy(update={"trial": trial}))


def held_plan(config: Configuration, loads: Sequence[Traffic], out: Path | None = None) -> Plan:
    """The plan of trials at these loads, one after another."""
    cluster, one_s = config.cluster, trial_s(config.workload)
    return Plan(
        cluster=cluster.name,
        workload=config.workload.name,
        goal=config.goal_names,
        brokers=cluster.testbed.brokers if cluster.testbed else None,
        message_bytes=tuple(dict.fromkeys(load.bpm for load in loads)),
        producer=describe_producer(config.workload),
        resolution=None,
        trial_s=one_s,
        trials_estimated=len(loads),
        duration_s=len(loads) * one_s,
        write_bytes_max=sum(map(planned_bytes, loads)),
        out=out,
        notes=(TESTBED_CAVEAT,) if cluster.testbed else (),
    )


class Holder:
    """Holds loads through the same gates, guards and judgement as a search's trials.

    A context manager: leaving it deletes the topic. Making one looks at the brokers at rest.

    Args:
        warm_up_max_s: load on brokers whose JVMs are cold, at most [s]; 0 is none.
    """

    def __init__(self, bench: Bench, warm_up_max_s: float) -> None:
        self._bench = bench
        self._topics = PointTopics(bench)
        self._gates = open_gates(bench, warm_up_max_s)

    def hold(self, bpm: int, load: int, reason: str = "", trials_left: int = 1) -> Trial:
        """One trial at `load` on the goal's axis, which is appended to the tables.

        Args:
            bpm: message size [B].
            reason: why this trial is made, for progress.
            trials_left: how many are still to come, this one included.

        Raises:
            GuardStopError: a guard tripped; a trial that it ended is kept, as INVALID.
        """
        outlook = Outlook(reason, trials_left)
        return TrialMeasurer(self._bench, self._topics, self._gates, bpm, outlook).hold(load)

    def __enter__(self) -> Holder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._topics.__exit__(kind, error, trace)

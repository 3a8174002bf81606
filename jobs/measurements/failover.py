"""The measurement `failover`: the time from the kill of a broker until each partition has a live
leader.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jobs.runs.measurement import Case, HeldMeasurement, Loads, result_at
from jobs.trials.measure import REPLICATED_DEADLINE_S
from jobs.trials.unclean_stop import UncleanStop
from metrics.common.errors import ConfigError, NoConclusionError
from metrics.comparing import figures
from metrics.comparing.figures import Result


class Failover(HeldMeasurement):
    """The time from the kill of a broker under load until all partitions have a live leader."""

    name = "failover"
    figure = figures.TIME
    unit = "s"

    def require(self, case: Case) -> None:
        """Require a testbed of at least two brokers, and a replication factor of at least 2."""
        cluster, replicas = case.config.cluster, case.config.workload.topic.replication_factor
        brokers = cluster.brokers_known
        if not cluster.starts_brokers or brokers is None or brokers < 2 or replicas < 2:
            where = f"a testbed of {brokers}" if brokers else "running brokers"
            raise ConfigError(
                f"asks: failover is given for {where} with replication_factor {replicas}; expected "
                "a testbed of 2 brokers or more, and 2 replicas or more, because one broker is "
                "killed; change the cluster or the replication factor"
            )

    def hold(self, loads: Loads) -> None:
        """Offer the load, kill a broker in the trial's window, and start the broker again."""
        cluster = loads.run.context.cluster
        assert cluster.broker_control is not None, "see require"
        stop = UncleanStop(cluster, cluster.broker_control)
        try:
            trial = loads.hold("a broker is killed", stop=stop)
        finally:
            stop.undo()
        counts = trial.evidence.client.counts
        if not stop.has_killed:
            why = "; ".join(each.text for each in trial.reasons)
            raise NoConclusionError(
                f"no broker was killed, because the load ended before the measured window: {why}"
            )
        if not trial.is_valid:
            raise NoConclusionError(
                f"the trial in which broker {stop.victim} was killed was INVALID: "
                f"{trial.reasons[0].text}"
            )
        if stop.leaders_back_s is None:
            raise NoConclusionError(
                "some partitions had no live leader until the end of the load; expected a live "
                "leader of every partition; raise workload.trial.measure_s"
            )
        lost = sum(trial.evidence.lost_by_partition.values())
        loads.note(
            f"every partition had a live leader {stop.leaders_back_s:.1f} s after broker "
            f"{stop.victim} was killed; {lost:,} acknowledged records could not be read "
            f"{REPLICATED_DEADLINE_S:g} s after the load; {counts.failed_total:,} records failed, "
            f"and {sum(counts.by_producer.retried.values()):,} were sent again; latency p99.9 "
            f"{trial.evidence.client.latency.p999_ms:,.0f} ms"
        )

    def result(self, trials: Sequence[Mapping[str, Any]]) -> Result:
        """The time from the kill until all partitions had a live leader."""
        last = trials[-1]
        why = "some partitions had no leader until the load ended"
        return result_at(last, last.get("leaders_back_s"), why)


MEASUREMENT = Failover

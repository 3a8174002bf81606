"""A failover: the time from a broker's death until every leader serves again, and its cost."""

from __future__ import annotations

from jobs.console.events import note
from jobs.runs.fixed_load import FixedLoadRun
from jobs.runs.lifecycle import RunState
from jobs.trials.holding import Holder
from jobs.trials.unclean_stop import UncleanStop
from metrics.common.errors import NoConclusionError


class FailoverRun(FixedLoadRun):
    """Holds a load for one trial, and kills a broker in its window."""

    def measure(self, run: RunState) -> None:
        """Hold the load, kill a broker in its window, and start the broker again.

        Raises:
            NoConclusionError: no broker was killed, or not every leader served again during the
                load.
        """
        cluster = run.context.cluster
        assert cluster.broker_control is not None, "see load_sweep"
        stop = UncleanStop(cluster, cluster.broker_control)
        with Holder(run.context, self.config.cluster.warm_up_max_s) as holder:
            try:
                trial = holder.hold(
                    self.load.message_bytes, self.load.load, "a broker is killed", stop=stop
                )
            finally:
                stop.undo()
        self.trials.append(trial)
        counts = trial.evidence.client.counts
        if not stop.has_killed:
            why = "; ".join(each.text for each in trial.reasons)
            raise NoConclusionError(
                f"no broker was killed, as the load ended before its window: {why}"
            )
        if not trial.is_valid:
            raise NoConclusionError(
                f"the trial in which broker {stop.victim} was killed was INVALID: "
                f"{trial.reasons[0].text}"
            )
        if stop.leaders_back_s is None:
            raise NoConclusionError(
                "some partitions had no live leader until the end of the load; expected a leader "
                "for all, as the time is unknown otherwise; raise workload.trial.measure_s"
            )
        note(
            run.order.reporter,
            f"every leader served again {stop.leaders_back_s:.1f} s after broker {stop.victim} was "
            f"killed; {counts.failed_total:,} records failed, "
            f"{sum(counts.by_producer.retried.values()):,} were sent again, latency p99.9 "
            f"{trial.evidence.client.latency.p999_ms:,.0f} ms",
        )

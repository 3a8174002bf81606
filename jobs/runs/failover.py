"""What clients see when a broker dies: how long until every leader serves again, and the cost."""

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
        """Hold, kill, and start the broker again.

        Raises:
            NoConclusionError: no broker was killed, or not every leader served again while the
                load lasted.
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
            raise NoConclusionError(f"no broker was killed, as the load did not come so far: {why}")
        if not trial.is_valid:
            raise NoConclusionError(
                f"the trial in which broker {stop.victim} was killed was INVALID: "
                f"{trial.reasons[0].text}"
            )
        if stop.leaders_back_s is None:
            raise NoConclusionError(
                "not every partition had a leader that lives again while the load lasted; expected "
                "all, or nobody knows how long it takes; raise workload.trial.measure_s"
            )
        note(
            run.order.reporter,
            f"every leader served again {stop.leaders_back_s:.1f} s after broker {stop.victim} was "
            f"killed; {counts.failed_total:,} records failed, "
            f"{sum(counts.by_producer.retried.values()):,} were sent again, latency p99.9 "
            f"{trial.evidence.client.latency.p999_ms:,.0f} ms",
        )

"""The live metrics of a run for Prometheus, at `--metrics-port`.

Units are bytes and seconds, as is usual for Prometheus. A metric is absent while its value is
unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    disable_created_metrics,
    start_http_server,
)

from jobs.console.events import (
    Event,
    PhaseStarted,
    PointFinished,
    RunFinished,
    RunStarted,
    TrialFinished,
    TrialProgress,
    TrialStarted,
)
from metrics.common.errors import ConfigError
from metrics.trial.trial import Trial
from metrics.windows.broker import BrokerWindow
from search.model import Verdict

_MB = 1e6
_GAUGES: Mapping[str, tuple[str, Sequence[str]]] = {
    "redline_run_info": ("The run; always 1", ["run_id", "cluster", "workload", "goal"]),
    "redline_run_status": ("Value 1; the label states how the run ended", ["status"]),
    "redline_phase_info": ("Value 1; the label states the phase", ["phase"]),
    "redline_trials_left": ("Estimated number of trials left", []),
    "redline_time_left_seconds": ("Estimated time left", []),
    "redline_trial_number": ("Number of the current trial", []),
    "redline_message_bytes": ("Message size of the current trial", []),
    "redline_load": ("Load on the searched axis", ["axis"]),
    "redline_offered_bytes_per_second": ("Offered payload", []),
    "redline_achieved_bytes_per_second": ("Acknowledged payload", []),
    "redline_request_handler_idle_ratio": ("Idle share of the busiest broker's handlers",
                                           ["broker"]),
    "redline_isr_changed_ratio": ("Share of the last trial's samples with ISR changes", []),
    "redline_produce_latency_seconds": ("Produce latency of the last trial", ["quantile"]),
}  # fmt: skip
_OF_POINT: Mapping[str, tuple[str, str]] = {
    "redline_limit_bytes_per_second": ("The limit", "mb_per_s"),
    "redline_limit_low_bytes_per_second": ("The lower end of the limit's 90 % interval",
                                           "mb_per_s_low"),
    "redline_limit_high_bytes_per_second": ("The upper end of the limit's 90 % interval",
                                            "mb_per_s_high"),
    "redline_limit_per_broker_bytes_per_second": ("The limit per broker", "mb_per_s_per_broker"),
}  # fmt: skip
"""Name of a metric about a limit → (help text of the metric, name of an attribute). The value of
the metric is the value of this attribute of the boundary.
"""
TRIALS = "redline_trials"


class LiveMetrics:
    """Serves metrics whose values come from the events of a run.

    Args:
        at: host and port to listen on; port 0 chooses a free port.

    Raises:
        ConfigError: the port is in use.
    """

    def __init__(self, at: tuple[str, int]) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the run's id contains its start
        self.registry = CollectorRegistry()
        self._gauges = {
            name: Gauge(name, text, labels, registry=self.registry)
            for name, (text, labels) in _GAUGES.items()
        }
        for name, (text, _) in _OF_POINT.items():
            labels = ["message_bytes", "goal"]
            self._gauges[name] = Gauge(name, text, labels, registry=self.registry)
        self._trials = Counter(TRIALS, "Trials by verdict", ["verdict"], registry=self.registry)
        for verdict in Verdict:
            self._trials.labels(verdict.value)
        host, port = at
        try:
            self._server, _ = start_http_server(port, host, self.registry)
        except OSError as error:
            raise ConfigError(
                f"--metrics-port {host}:{port} is not available ({error.strerror}); expected a "
                "free port of this machine; name another port"
            ) from None

    @property
    def address(self) -> tuple[str, int]:
        """The host and the port on which the server listens."""
        host, port = self._server.server_address[:2]
        return str(host), int(port)

    def follow(self, event: Event) -> None:
        """Update the metrics with the values of an event."""
        if isinstance(event, RunStarted):
            plan = event.plan
            self._only("redline_run_info", event.run_id, plan.cluster, plan.workload, plan.goal)
            self._set("redline_trials_left", plan.trials_estimated)
            self._set("redline_time_left_seconds", plan.duration_s + plan.starting_s)
        elif isinstance(event, PhaseStarted):
            self._only("redline_phase_info", event.text)
        elif isinstance(event, TrialStarted):
            self._gauges["redline_phase_info"].clear()
            self._set("redline_trial_number", event.number)
            self._set("redline_message_bytes", event.pattern.message_bytes)
            self._only("redline_load", event.pattern.axis, value=event.pattern.on_axis)
            self._set("redline_offered_bytes_per_second", event.pattern.mb_per_s * _MB)
        elif isinstance(event, TrialProgress):
            self._measured(event.achieved_mb_per_s, event.busiest)
        elif isinstance(event, TrialFinished):
            self._finished(event)
        elif isinstance(event, PointFinished):
            self._point(event)
        elif isinstance(event, RunFinished):
            self._only("redline_run_status", event.summary.status)
            self._set("redline_trials_left", 0)
            self._set("redline_time_left_seconds", 0)

    def end(self, error: BaseException | None) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()

    def _measured(self, achieved_mb_per_s: float | None, busiest: BrokerWindow | None) -> None:
        if achieved_mb_per_s is not None:
            self._set("redline_achieved_bytes_per_second", achieved_mb_per_s * _MB)
        if busiest is not None and busiest.handler_idle is not None:
            name, broker = "redline_request_handler_idle_ratio", str(busiest.broker_id)
            self._only(name, broker, value=busiest.handler_idle)

    def _finished(self, event: TrialFinished) -> None:
        trial: Trial = event.trial
        evidence = trial.evidence
        self._trials.labels(trial.verdict.value).inc()
        self._measured(evidence.client.achieved_mb_per_s, evidence.busiest_broker)
        if evidence.isr_changed_share is not None:
            self._set("redline_isr_changed_ratio", evidence.isr_changed_share)
        latency = evidence.client.latency
        for quantile, ms in (
            ("0.5", latency.p50_ms),
            ("0.99", latency.p99_ms),
            ("0.999", latency.p999_ms),
        ):
            self._gauges["redline_produce_latency_seconds"].labels(quantile).set(ms / 1000)
        self._set("redline_trials_left", event.trials_left)
        self._set("redline_time_left_seconds", event.time_left_s)

    def _point(self, event: PointFinished) -> None:
        boundary = event.boundary
        for name, (_, attribute) in _OF_POINT.items():
            mb_per_s = getattr(boundary, attribute)
            if mb_per_s is not None:
                gauge = self._gauges[name].labels(str(boundary.message_bytes), boundary.goal)
                gauge.set(mb_per_s * _MB)

    def _set(self, name: str, value: float) -> None:
        self._gauges[name].set(value)

    def _only(self, name: str, *labels: str, value: float = 1) -> None:
        """Set a metric's value for these labels, and remove its values for all other labels."""
        self._gauges[name].clear()
        self._gauges[name].labels(*labels).set(value)

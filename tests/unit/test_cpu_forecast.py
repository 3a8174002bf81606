"""The limit of a broker with a CPU quota, forecast from two light loads."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jobs.config.cluster import stated_environment
from jobs.config.loading import load_workload
from jobs.console.events import RecordingReporter
from jobs.trials import cpu_calibration
from jobs.trials.context import RunContext
from jobs.trials.cpu_calibration import CpuCalibration
from jobs.trials.point_topics import PointTopics
from jobs.trials.unscored_load import UnscoredLoad
from metrics.planning.cpu_forecast import CpuTime, cpu_quota, cpu_times, forecast_producers
from metrics.traffic.pattern import TrafficPattern
from metrics.windows.broker import BrokerWindow, RequestWindow
from search.model import Verdict

TRUTH = CpuTime(own_s=0.000_25, resting_cores=0.04)
PRODUCER = load_workload("planted", ["workload.producer.batch_size=4096"]).pattern(1000).producer


def window(per_s: float | None, cores: float | None, broker: int = 1) -> BrokerWindow:
    produce = RequestWindow(per_s=per_s)
    return BrokerWindow(broker, 0.0, 10.0, 1.0, 10, 0, produce=produce, cpu_cores=cores)


def used(per_s: float, broker: int = 1, truth: CpuTime = TRUTH) -> BrokerWindow:
    return window(per_s, truth.resting_cores + per_s * truth.own_s, broker)


def test_two_light_loads_show_the_time_of_a_request_and_that_at_rest() -> None:
    slow = CpuTime(0.000_5, 0.01)
    light = [used(100.0), used(100.0, 2, slow)]
    heavier = [used(250.0, 2, slow), used(300.0)]
    (first, second) = cpu_times(light, heavier)
    assert (first.own_s, first.resting_cores) == pytest.approx((0.000_25, 0.04))
    assert (second.own_s, second.resting_cores) == pytest.approx((0.000_5, 0.01))
    assert first.requests_per_s(0.3) == pytest.approx(1_040.0)
    assert first.requests_per_s(0.03) == 0.0, "the broker needs more at rest"
    assert math.isinf(CpuTime(0.0).requests_per_s(0.3))


def test_a_time_at_rest_below_zero_is_an_error_of_the_windows() -> None:
    (found,) = cpu_times([window(100.0, 0.02)], [window(300.0, 0.08)])
    assert found.own_s == pytest.approx(0.000_3)
    assert found.resting_cores == 0.0


def test_the_slowest_broker_decides_how_many_producers_the_quotas_carry() -> None:
    one = forecast_producers([TRUTH], PRODUCER, 0.3)
    assert one == pytest.approx(1_040.0 * PRODUCER.batch_interval_s)
    slow = CpuTime(0.000_5, 0.04)
    assert forecast_producers([TRUTH, slow], PRODUCER, 0.3) == pytest.approx(one)


@pytest.mark.parametrize(
    ("light", "heavier"),
    [
        (window(None, 0.1), used(300.0)),
        (window(100.0, None), used(300.0)),
        (used(100.0), window(300.0, None)),
    ],
)
def test_a_broker_that_does_not_show_its_time_is_named(
    light: BrokerWindow, heavier: BrokerWindow
) -> None:
    with pytest.raises(ValueError, match="broker 1 does not report its CPU time"):
        cpu_times([light], [heavier])


@pytest.mark.parametrize("heavier", [window(100.0, 0.9), window(300.0, 0.065), window(90.0, 0.9)])
def test_a_heavier_load_that_takes_no_more_is_refused(heavier: BrokerWindow) -> None:
    with pytest.raises(ValueError, match="expected more at the heavier load"):
        cpu_times([used(100.0)], [heavier])
    with pytest.raises(ValueError, match="expected more at the heavier load"):
        cpu_times([used(100.0)], [used(300.0, 2)])


def test_the_quota_of_a_testbed_is_a_fact_of_the_environment() -> None:
    facts = stated_environment({}, {}, (1,), None, 0.3)
    assert facts == {"cpus": "0.3"}
    assert cpu_quota(facts) == 0.3
    assert cpu_quota(stated_environment({}, {}, (1,))) is None


class Run:
    """A run on a broker whose requests take the time of `TRUTH`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, sustained: int, **facts: str) -> None:
        self.loads: list[tuple[str, int]] = []
        trials = [
            trial(100, sustained, Verdict.SUSTAINED),
            trial(100, 2 * sustained, Verdict.OVERLOADED),
            trial(1_000, 3 * sustained, Verdict.SUSTAINED),
        ]
        overrides = ["workload.producer.batch_size=4096"]
        workload = load_workload("planted", overrides)
        self.context = SimpleNamespace(
            environment=facts,
            reporter=RecordingReporter(),
            history=SimpleNamespace(trials=trials),
            pattern=lambda size, load: replace(workload.pattern(size), producers=load),
        )
        monkeypatch.setattr(cpu_calibration, "offer_unscored", self._offer)

    def _offer(
        self, _context: object, topics: str, pattern: TrafficPattern, name: str
    ) -> UnscoredLoad:
        assert (topics, pattern.phases.measure_s) == ("topics", cpu_calibration.LIGHT_S)
        self.loads.append((name, pattern.producers))
        rate = pattern.producers / pattern.producer.batch_interval_s
        return UnscoredLoad((used(rate),), cast(Any, None))

    def measure(self, calibration: CpuCalibration, size: int) -> float | None:
        topics = SimpleNamespace(open=lambda _pattern: "topics")
        calibration.measure(cast(RunContext, self.context), cast(PointTopics, topics), size)
        return calibration.forecast(size)


def trial(size: int, load: int, verdict: Verdict) -> SimpleNamespace:
    judgements = {"default": SimpleNamespace(verdict=verdict)}
    return SimpleNamespace(point_message_bytes=size, load=load, judgements=judgements)


def test_a_run_forecasts_each_size_once_from_a_quarter_and_half_of_its_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run, calibration = Run(monkeypatch, 40, cpus="0.3"), CpuCalibration()
    found = run.measure(calibration, 100)
    assert run.loads == [("cpu-100-10", 10), ("cpu-100-20", 20)]
    producer = load_workload("planted", ["workload.producer.batch_size=4096"]).pattern(100).producer
    assert found == pytest.approx(forecast_producers([TRUTH], producer, 0.3))
    assert run.measure(calibration, 100) == found and len(run.loads) == 2
    assert calibration.forecast(1_000) is None
    run.measure(calibration, 1_000)
    assert run.loads[2:] == [("cpu-1000-30", 30), ("cpu-1000-60", 60)]


def test_brokers_without_a_quota_and_limits_without_light_loads_have_no_forecast(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for run in (Run(monkeypatch, 40), Run(monkeypatch, 3, cpus="0.3")):
        assert run.measure(CpuCalibration(), 100) is None
        assert run.loads == [] and run.context.reporter.events == []

"""The search finds the limit that two light loads forecast for a broker with a CPU quota.

    python -m pytest -m long tests/kafka/test_planted_cpu_on_brokers.py \
        -o log_cli=true -o log_cli_level=WARNING
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from jobs.config.loading import load_workload
from jobs.testbed.cpu_groups import cpu_groups, group_name
from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import start
from metrics.judging.verdict import judge
from metrics.planning.cpu_forecast import cpu_times, forecast_producers
from metrics.sources.hosts.proc import LocalHost
from metrics.trial.evidence import Evidence
from metrics.windows.host import host_windows
from metrics.windows.resource import Resource
from search.guided import Guided
from search.limits import Limits
from search.loop import run_search
from search.model import Done, Observation, Verdict
from tests.bench.sampling import bare_jvm
from tests.support.host_sampling import HostSampling
from tests.support.loaded_brokers import THRESHOLDS, LoadedBrokers, loaded

log = logging.getLogger(__name__)
QUOTAS = (0.3, 0.45, 0.6)
"""Cores that the broker may use."""
WARM_CORES, WARM_LOAD, WARM_S = 1.0, 240, 20.0
"""The JVM compiles while it has a whole core."""
LIGHT_SHARES = (0.25, 0.5)
"""The light loads over the load that uses up the quota at the CPU time of a warm request."""
WARM_REQUEST_S = 0.000_3
NEAR = 0.10
"""Distance from the forecast within which an answer is right [ratio]."""
LEADERS = {partition: [1] for partition in range(4)}
LIMITS = Limits(load_start_max=128, load_cap=1_000, resolution=0.04, invalid_repeats_max=3)
SMALL = ("workload.producer.batch_size=4096", "workload.producer.rate_bytes_per_s=25000")
"""Small batches, so that requests and not their bytes take the CPU time."""
PRODUCER = load_workload("planted", SMALL).pattern(1000).producer

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(280),
    pytest.mark.skipif(cpu_groups() is None, reason="CPU-quota cgroups cannot be created here"),
]


@pytest.fixture(scope="module")
def testbed() -> Iterator[Testbed]:
    overrides: dict[str, object] = {"cpus": WARM_CORES}
    with start("planted-cpu", overrides=overrides, name="quota") as running:
        yield running


@pytest.fixture(scope="module")
def brokers(testbed: Testbed) -> Iterator[LoadedBrokers]:
    host = LocalHost()
    with bare_jvm() as (jvm, _), loaded(testbed, jvm) as under_load:
        source = HostSampling(under_load.source, lambda: host.sample({1: testbed.pids[1]}))
        under_load.source = source  # type: ignore[assignment]
        evidence_of(under_load, WARM_LOAD, WARM_S)
        yield under_load


def evidence_of(brokers: LoadedBrokers, load: int, measure_s: float = 5.0) -> Evidence:
    """The evidence of a load, with the window of the broker's host."""
    source: Any = brokers.source
    source.samples.clear()
    with brokers.topic(LEADERS, {}) as topic:
        found = brokers.trial(topic, LEADERS, PRODUCER, load, measure_s, warmup_s=1.5)
    client, name = found.evidence.client, source.samples[0].host
    windows = host_windows(
        source.samples, client.start_s, client.end_s, {name: (1,)}, {name}, {name}
    )
    return replace(found.evidence, hosts=windows)


class Measurer:
    """Offers loads of a search to the broker, and keeps what limited the overloads."""

    def __init__(self, brokers: LoadedBrokers) -> None:
        self._brokers = brokers
        self.trials = 0
        self.causes: list[Resource | None] = []

    def measure(self, load: int) -> Observation:
        """See `search.loop.Measurer`."""
        evidence = evidence_of(self._brokers, load)
        judgement = judge(evidence, THRESHOLDS)
        self.trials += 1
        if judgement.verdict is Verdict.OVERLOADED:
            self.causes.append(judgement.limited_by)
        (window,), (host,) = evidence.brokers, evidence.hosts
        words = judgement.attribution or judgement.reasons[0].text
        log.warning(
            "%d: %s idle %.2f, %.3f cores, %.0f requests/s, %.0f us each, stopped in %.0f%%, %s",
            load,
            judgement.verdict.value,
            window.handler_idle or 0,
            window.cpu_cores or 0,
            window.produce.per_s or 0,
            1e6 * (window.cpu_cores or 0) / (window.produce.per_s or 1),
            100 * host.throttled_shares.get(1, 0.0),
            words[:150],
        )
        return Observation(load, judgement.verdict, dict(judgement.utilization), 7.0)


@pytest.mark.parametrize("cpus", QUOTAS)
def test_the_search_finds_the_limit_that_light_loads_forecast(
    brokers: LoadedBrokers, testbed: Testbed, cpus: float
) -> None:
    groups = cpu_groups()
    assert groups is not None
    groups.make(group_name(testbed.id, 1), cpus)
    light = [
        evidence_of(
            brokers, max(1, round(share * cpus / WARM_REQUEST_S * PRODUCER.batch_interval_s)), 8.0
        ).brokers
        for share in LIGHT_SHARES
    ]
    times = cpu_times(*light)
    forecast = forecast_producers(times, PRODUCER, cpus)
    log.warning("%s forecast %.1f from %s", cpus, forecast, [w.cpu_cores for (w,) in light])
    measurer = Measurer(brokers)
    answer = run_search(Guided(LIMITS), measurer, check_for_change=False)
    assert isinstance(answer, Done), answer
    bracket = answer.bracket
    log.warning(
        "| %s cores | %.0f us | %.1f | %d-%s | %+.1f%% | %s | %d |",
        cpus,
        1e6 * times[0].own_s,
        forecast,
        bracket.sustained,
        bracket.overloaded,
        100.0 * (bracket.sustained / forecast - 1.0),
        ", ".join(each.value for each in measurer.causes if each),
        measurer.trials,
    )
    assert abs(bracket.sustained / forecast - 1.0) <= NEAR
    assert set(measurer.causes) == {Resource.CPU}

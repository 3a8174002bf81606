"""The search finds the limit that follows from the write rate of the brokers' disks.

Twelve points: three sizes of messages, with one replica and with two, at two rates. The answers
are logged as the table of docs/evidence/planted-limits.md:

    python -m pytest -m long tests/kafka/test_planted_disk_limits_on_brokers.py \
        -o log_cli=true -o log_cli_level=WARNING
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from jobs.config.link import PlantedDisk
from jobs.config.loading import load_workload
from jobs.testbed.places import NodeFiles
from jobs.testbed.planted_devices import plant_rate, planted_disk_problem
from metrics.judging.attribution import VOTING_LOAD_RATIO_MAX, AttributionVote, combine_votes
from metrics.judging.verdict import judge
from metrics.planning.planted import PlantedRates
from metrics.sources.hosts.host_sample import HostSample
from metrics.sources.hosts.proc import LocalHost
from metrics.sources.sample import BrokerSample
from metrics.traffic.pattern import TrafficPattern
from metrics.trial.evidence import Judgement
from metrics.units import format_size
from metrics.windows.host import host_windows
from metrics.windows.use import Resource
from search.guided import Guided
from search.limits import Limits
from search.model import Bracket, Done, Observation, Verdict
from tests.support.loaded_brokers import THRESHOLDS, LoadedBrokers, loaded_testbed
from tests.support.single_goal import run_search

log = logging.getLogger(__name__)
BROKERS = (1, 2)
RATES = ("8MB/s", "12MB/s")
SIZES = (100, 1_000, 10_000)
REPLICAS = (1, 2)
NEAR = 0.05
"""Distance from the planted limit within which an answer is right [ratio]."""
LIMITS = Limits(load_start_max=128, load_cap=2_000, resolution=0.02, invalid_repeats_max=3)
LACKING = planted_disk_problem(PlantedDisk(RATES[0]))

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(280),
    pytest.mark.skipif(LACKING is not None, reason=LACKING or ""),
]


class HostSampling:
    """A source of metrics that samples this machine, too, at each poll of the brokers."""

    def __init__(self, source: Any, sample: Callable[[], HostSample]) -> None:
        self._source, self._sample = source, sample
        self.samples: list[HostSample] = []

    def sample_all(self) -> Sequence[BrokerSample]:
        self.samples.append(self._sample())
        found: Sequence[BrokerSample] = self._source.sample_all()
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)


@pytest.fixture(scope="module")
def brokers() -> Iterator[LoadedBrokers]:
    with loaded_testbed("planted-disk", brokers=len(BROKERS), name="planted") as under_load:
        folders = [NodeFiles(each).data for each in under_load.testbed.brokers.values()]
        host = LocalHost().with_log_dirs(folders)
        under_load.source = HostSampling(under_load.source, host.sample)  # type: ignore[assignment]
        yield under_load


class Measurer:
    """Offers loads of a search to the brokers, and keeps what limited the overloads."""

    def __init__(self, brokers: LoadedBrokers, pattern: TrafficPattern) -> None:
        self._brokers, self._pattern = brokers, pattern
        self.trials = 0
        self._overloads: list[tuple[int, Judgement]] = []

    def measure(self, load: int) -> Observation:
        judgement = self._judged(load)
        self.trials += 1
        if judgement.verdict is Verdict.OVERLOADED:
            self._overloads.append((load, judgement))
        return Observation(load, judgement.verdict, dict(judgement.utilization), 7.0)

    def limiting_resource(self, bracket: Bracket) -> Resource:
        """The resource that most overloads near the limit name, as in the answer of a run."""
        lowest = bracket.overloaded or 0
        near = [
            AttributionVote(judgement, f"{load}", lowest / load)
            for load, judgement in self._overloads
            if lowest <= load <= VOTING_LOAD_RATIO_MAX * lowest
        ]
        found = combine_votes(near)
        return Resource.UNKNOWN if found is None else found.resource

    def _judged(self, load: int) -> Judgement:
        factor = self._pattern.topic.replication_factor
        led = [leader for leader in BROKERS for _ in range(2)]
        replicas = {
            partition: [leader, *(each for each in BROKERS if each != leader)][:factor]
            for partition, leader in enumerate(led)
        }
        config = {"retention.bytes": "33554432", "segment.bytes": "16777216"}
        source: Any = self._brokers.source
        source.samples.clear()
        with self._brokers.topic(replicas, config) as topic:
            found = self._brokers.trial(
                topic, replicas, self._pattern.producer, load, measure_s=5.0, warmup_s=1.5
            )
        client, samples = found.evidence.client, source.samples
        name = samples[0].host
        windows = host_windows(
            samples, client.start_s, client.end_s, {name: BROKERS}, {name}, {name}
        )
        judgement = judge(replace(found.evidence, hosts=windows), THRESHOLDS)
        words = (judgement.verdict.value, judgement.reasons[0].text, judgement.attribution)
        log.warning("%d: %s %s; %s", load, *words)
        return judgement


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("factor", REPLICAS)
@pytest.mark.parametrize("message_bytes", SIZES)
def test_the_search_finds_the_limit_of_the_disks(
    brokers: LoadedBrokers, rate: str, factor: int, message_bytes: int
) -> None:
    disk = PlantedDisk(rate)
    for each in brokers.testbed.brokers.values():
        plant_rate(disk, NodeFiles(each).folder)
    pattern = load_workload("planted", [f"workload.topic.replication_factor={factor}"]).pattern(
        message_bytes
    )
    planted = PlantedRates(disk.write_bytes_per_s).scale(pattern, len(BROKERS))
    assert planted is not None
    measurer = Measurer(brokers, pattern)
    answer = run_search(Guided(LIMITS), measurer, check_for_change=False)
    assert isinstance(answer, Done), answer
    bracket = answer.bracket
    bound = measurer.limiting_resource(bracket)
    log.warning(
        "| %s | %d | %s | %.1f | %d-%s | %+.1f%% | %s | %d |",
        rate,
        factor,
        format_size(message_bytes),
        planted,
        bracket.sustained,
        bracket.overloaded,
        100.0 * (bracket.sustained / planted - 1.0),
        bound.value,
        measurer.trials,
    )
    assert abs(bracket.sustained / planted - 1.0) <= NEAR
    assert bound is Resource.DISK

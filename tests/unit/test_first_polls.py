"""The first polls of a source: refused figures, and the interval that a source can keep."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from jobs.checks.cluster import metrics_findings
from jobs.checks.finding import Severity
from jobs.config import load
from metrics.common.errors import ConfigError
from metrics.sources.first_polls import (
    POLLS,
    FirstPolls,
    least_interval_s,
    slower_sampling,
    take_first_polls,
)
from metrics.sources.hosts.host_sample import HostSample, NoHosts
from metrics.sources.sample import BrokerSample
from tests.support.contexts import run_context
from tests.support.scripted_source import ScriptedSource

IDLE = "handler_idle_ns"


class Polled(ScriptedSource):
    """Brokers whose answers take a time, over connections that are counted."""

    def __init__(
        self, polls: Sequence[Mapping[int, Mapping[str, float]]], took_s: Sequence[float]
    ) -> None:
        super().__init__(tuple(polls[0]))
        self._polls: Iterator[Any] = iter(zip(polls, took_s, strict=True))
        self.reconnected = 0

    def reconnect(self) -> None:
        self.reconnected += 1

    def sample_all(self) -> list[BrokerSample]:
        values, took_s = next(self._polls)
        self.pause(took_s)
        return [BrokerSample(node, self.now_s, own) for node, own in values.items()]


class Slow(NoHosts):
    """Hosts whose answers take a time."""

    def __init__(self, source: Polled, took_s: float) -> None:
        super().__init__()
        self._source, self._took_s = source, took_s

    def sample_all(self) -> tuple[HostSample, ...]:
        self._source.pause(self._took_s)
        return ()


def own(node: int, poll: int) -> dict[str, float]:
    counts = {IDLE: 1e12, "bytes_in": 1e9, "messages_in": 1e6}
    return {name: node * base + poll for name, base in counts.items()}


BOTH = [{node: own(node, poll) for node in (1, 2)} for poll in range(POLLS)]


def test_the_fastest_of_a_few_polls_counts_and_each_has_new_connections() -> None:
    source = Polled(BOTH, [3.0, 0.2, 0.4])
    polls = take_first_polls(source, clock=source.clock)
    assert polls.poll_s == pytest.approx(0.2)
    assert polls.slower == "the brokers' metrics"
    assert [sample.values[IDLE] for sample in polls.rounds[-1]] == [1e12 + 2, 2e12 + 2]
    assert source.reconnected == POLLS - 1
    source = Polled(BOTH, [0.2] * POLLS)
    hosts = Slow(source, 0.7)  # these wait for another program's samples
    assert take_first_polls(source, hosts, clock=source.clock).poll_s == pytest.approx(0.2)
    source = Polled(BOTH, [0.2] * POLLS)
    hosts = Slow(source, 0.7)
    hosts.reconnect = lambda: None  # type: ignore[attr-defined]
    polls = take_first_polls(source, hosts, clock=source.clock)
    assert polls.poll_s == pytest.approx(0.7)
    assert polls.slower == "the brokers' hosts"
    source = Polled(BOTH, [15.0] * POLLS)
    source.nodes = {i: replace(node, interval_s=15.0) for i, node in source.nodes.items()}
    polls = take_first_polls(source, clock=source.clock)
    assert (polls.poll_s, len(polls.rounds)) == (0.0, 1), "it waits for another program's samples"


class Mute(Polled):
    """Brokers of which the second one answers late, or never."""

    answers = 0

    def sample_all(self) -> list[BrokerSample]:
        first, second = super().sample_all()
        self.answers -= 1
        late = replace(second, values={}, error="no answer within 5 s")
        return [first, second if self.answers == 0 else late]


def test_a_broker_without_answers_or_a_process_of_its_own_is_refused(
    snapshot: SnapshotAssertion,
) -> None:
    alike = [{1: own(1, poll), 2: own(1, poll)} for poll in range(POLLS)]
    turns = [{1: own(1, 0), 2: own(2, 0)}, {1: own(1, 1), 2: own(1, 9)}, BOTH[2]]
    mute = Mute(BOTH, [5.0] * POLLS)
    for source in (mute, Polled(alike, [0.1] * POLLS), Polled(turns, [0.1] * POLLS)):
        with pytest.raises(ConfigError) as raised:
            take_first_polls(source, clock=source.clock)
        assert str(raised.value) == snapshot
    late = Mute(BOTH, [5.0] * POLLS)
    late.answers = 2
    assert len(take_first_polls(late, clock=late.clock).rounds) == POLLS


def test_the_interval_leaves_time_between_two_polls() -> None:
    for poll_s, least_s in ((0.01, 0.05), (0.08, 0.1), (0.4, 0.5), (1.5, 1.9), (2.4, 2.5)):
        polls = FirstPolls(nodes_s=(poll_s,))
        assert least_interval_s(polls, 10.0, 4) == pytest.approx(least_s)


def test_an_interval_that_was_not_asked_for_is_stated(snapshot: SnapshotAssertion) -> None:
    polls = FirstPolls(nodes_s=(1.5,))
    assert slower_sampling(polls, 2.0, 1.9) == ()
    (sentence,) = slower_sampling(polls, 1.0, 1.9)
    assert sentence == snapshot
    with pytest.raises(ConfigError) as raised:
        least_interval_s(FirstPolls(nodes_s=(2.6,)), 10.0, 4)
    assert str(raised.value) == snapshot(name="too long")


def test_trials_are_sampled_as_often_as_the_sources_can() -> None:
    config = load("testbed", "demo", "default", ["workload.trial.sample_interval_s=0.5"])
    context = run_context(config=config, addresses={}, sample_interval_min_s=1.9)
    assert context.pattern(1_000, 1).phases.sample_interval_s == 1.9
    often = load("testbed", "demo", "default", ["workload.trial.sample_interval_s=0.1"])
    assert replace(context, config=often).workload.trial.sample_interval_s == 1.9
    seldom = load("testbed", "demo", "default", ["workload.trial.sample_interval_s=2"])
    assert replace(context, config=seldom).config == seldom
    assert run_context(config=config, sample_interval_min_s=0.1).config == config


@pytest.mark.parametrize(("took_s", "severity"), [(0.1, Severity.OK), (0.8, Severity.WARNING)])
def test_doctor_states_the_time_of_a_poll(
    took_s: float, severity: Severity, snapshot: SnapshotAssertion
) -> None:
    trial = load("testbed", "demo", "default").workload.trial
    source = Polled(BOTH, [took_s] * POLLS)
    (found,) = (
        each
        for each in metrics_findings(source, None, trial, source.clock)
        if each.check == "time of a poll"
    )
    assert found.severity is severity
    assert found.sentence == snapshot

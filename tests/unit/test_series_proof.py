"""The proof of the exporters' series by a load of known size, and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from syrupy.assertion import SnapshotAssertion

from jobs.cluster.admin import AdminError
from jobs.cluster.topic_set import TopicSet
from jobs.config.loading import load
from jobs.console.events import RecordingReporter
from jobs.trials import gates, warm_up
from jobs.trials.context import RunContext, TrialHistory
from jobs.trials.gates import Gates
from jobs.trials.load import GeneratorError
from jobs.trials.series_proof import LOOKS_MAX, SeriesProof, is_enough
from jobs.trials.unscored_load import UnscoredLoad
from jobs.trials.warm_up import AtRest, FirstLoads, proof_pattern
from metrics.common.errors import ConfigError
from metrics.judging.series_proof import (
    MESSAGES_LEAST,
    Proof,
    Sent,
    polls_of,
    prove,
    sent_by_broker,
)
from metrics.sources.beans import HANDLER_IDLE_NS, UPTIME_MS
from metrics.sources.sample import BrokerSample
from metrics.sources.source import NodeInfo
from metrics.trial.client import BrokerAccount, ClientWindow, Counts
from tests.support.contexts import run_context
from tests.support.rows import traffic

SIZE = 1_000.0
REST_S, LOAD_S = 2.0, 20.0
SENT = {1: Sent(50_000, 50_000, SIZE), 2: Sent(50_000, 50_000, SIZE)}
TOPIC = cast(TopicSet, SimpleNamespace(names=("t",), message_bytes=1_000, leaders=(1, 2, 1, 2)))
COUNTS = Counts(
    acked_by_partition=dict.fromkeys(range(4), 25_000),
    sent_by_partition=dict.fromkeys(range(4), 25_000),
    log_bytes=100_000 * int(SIZE),
)


def polled(
    at_s: float, idle_s: float, messages: float = 0.0, size: float = SIZE, **changes: float
) -> list[BrokerSample]:
    """A poll of two brokers; the readings of the first one may differ."""
    values = {
        UPTIME_MS: at_s * 1e3,
        HANDLER_IDLE_NS: 1e12 + idle_s * 1e9,
        "messages_in": 7e6 + messages,
        "bytes_in": 9e9 + messages * size,
    }
    return [BrokerSample(1, at_s, values | changes), BrokerSample(2, at_s, values)]


FIRST = polled(100.0, 98.0)
BEFORE = polled(100.0 + REST_S, 98.0 + REST_S * 0.98)


def after(messages: float = 50_000.0, idle: float = 0.6, **changes: float) -> list[BrokerSample]:
    """The poll after the load."""
    return polled(102.0 + LOAD_S, 98.0 + REST_S * 0.98 + LOAD_S * idle, messages, **changes)


def proof_of(
    last: Sequence[BrokerSample],
    sent: Mapping[int, Sent] | None = None,
    before: Sequence[BrokerSample] = BEFORE,
) -> Proof:
    return prove(polls_of(FIRST, before), polls_of(before, last), sent or SENT)


def test_a_load_proves_the_series_within_5_percent() -> None:
    for messages in (50_000, 50_000 * 0.96, 50_000 * 1.04):
        assert proof_of(after(messages)).is_complete
    many = {1: Sent(5e6, 5e6, SIZE), 2: Sent(50_000, 50_000, SIZE)}
    for share in (0.94, 1.06):
        messages_in = {"messages_in": 7e6 + 5e6 * share, "bytes_in": 9e9 + 5e9}
        assert len(proof_of(after(**messages_in), many).disagreements) == 1


def test_a_reading_that_disagrees_is_named_with_its_broker(snapshot: SnapshotAssertion) -> None:
    wrong: tuple[dict[str, float], ...] = (
        {"messages_in": 7e6 + 60},
        {"bytes_in": 9e9 + 2e6},
        {"bytes_in": 9e9 + 1e8},
        {"messages_in": 6e6},
        {HANDLER_IDLE_NS: 1e12 + 130e9},
    )
    assert [proof_of(after(**changes)).disagreements for changes in wrong] == snapshot


def test_what_is_not_shown_or_not_known_is_a_doubt() -> None:
    lacking = [BrokerSample(1, 122.0, {UPTIME_MS: 122e3, "bytes_in": 9e9 + 5e7})]
    cases: list[tuple[Sequence[BrokerSample], Mapping[int, Sent], str]] = [
        # Others begin during the load.
        (after(messages_in=7e6 + 150_000, bytes_in=9e9 + 1.5e8), SENT, "clients wrote more"),
        (lacking, {1: SENT[1]}, "messages_in is not shown"),
        (after(), {1: Sent(50_000, 50_000, None)}, "client library"),
        (after(0.0), {1: Sent(100, 100, SIZE)}, "too small"),
    ]
    silent = [BrokerSample(1, 122.0, error="timeout")]
    restarts: tuple[list[BrokerSample], ...] = (after(**{UPTIME_MS: 5.0}), silent, [])
    cases += [(restarted, {1: SENT[1]}, "restarted") for restarted in restarts]
    for last, sent, words in cases:
        found = proof_of(last, sent)
        assert not found.disagreements
        assert found.doubts and all(words in each for each in found.doubts[:2])


def test_the_level_of_others_is_added() -> None:
    busy = polled(102.0, 98.0 + REST_S * 0.98, messages=1_000 * REST_S)
    assert proof_of(after(50_000 + 22_000), before=busy).is_complete
    busier = polled(102.0, 98.0 + REST_S * 0.98, messages=2_000 * REST_S)
    assert proof_of(after(), before=busier).doubts == (
        "brokers 1, 2: messages_in is not checked, because other clients write too much",
        "brokers 1, 2: bytes_in is not checked, because other clients write too much",
    )


def test_of_many_brokers_some_are_named() -> None:
    sent = dict.fromkeys(range(1, 1_001), Sent(50_000, 50_000, SIZE))
    (doubt,) = prove({}, {}, sent).doubts
    assert doubt == "brokers 1, 2, 3, 4, 5 and 995 more: a poll failed, or the broker restarted"
    polls = [
        [BrokerSample(i, at_s, {"messages_in": float(i * n), "bytes_in": 0.0}) for i in sent]
        for n, at_s in enumerate((100.0, 102.0, 122.0))
    ]
    found = prove(polls_of(*polls[:2]), polls_of(*polls[1:]), sent)
    assert len(found.disagreements) == 6
    assert found.disagreements[-1].startswith("and ")


def test_the_time_at_rest_lasts_until_the_load() -> None:
    # Two polls that are 2 s apart know the idle time to 0.15 only.
    rest, begin = polls_of(FIRST, BEFORE), polled(110.0, 98.0 + 10 * 0.98)
    end = polled(130.0, 98.0 + 10 * 0.98 + 20 * 0.85, 50_000)
    assert prove(rest, polls_of(begin, end), SENT).is_complete
    early = polled(122.0, 98.0 + 2 * 0.98 + 20 * 0.85, 50_000)
    assert set(prove(rest, polls_of(BEFORE, early), SENT).idle_unproven) == {1, 2}


def test_what_was_sent_to_each_broker_is_counted_by_the_leaders_of_its_partitions() -> None:
    counts = Counts(
        acked_by_partition={0: 10, 1: 20, 2: 30},
        sent_by_partition={0: 10, 1: 25, 2: 30},
        retried_by_partition={2: 4},
        control_records_by_partition={0: 1},
        transaction_log_records=3,
        log_bytes=600,
        by_broker={1: BrokerAccount(requests=7)},
    )
    assert sent_by_broker(counts, (1, 2, 1), others_messages=2.0) == {
        1: Sent(40.0, 50.0, 10.0, 7, is_transactional=True),
        2: Sent(20.0, 30.0, 10.0, is_transactional=True),
    }
    assert sent_by_broker(Counts(), (1,)) == {1: Sent(0.0, 0.0, None)}


class Cluster:
    """A cluster whose polls after the load are given, in turn; the last one repeats."""

    def __init__(self, *polls: Sequence[BrokerSample], has_series: bool = True) -> None:
        series = {"bytes_in": "b_total"} if has_series else {}
        self.nodes = {1: NodeInfo(1, "4.1", frozenset(), series=series)}
        self.polls = list(polls)
        self.pauses: list[float] = []
        self.moved: dict[int, int] | AdminError = {}
        self.history = TrialHistory()
        context: Any = SimpleNamespace(
            source=self, history=self.history, reporter=RecordingReporter(), topics=self,
            environment={},
        )  # fmt: skip
        self.context: RunContext = context
        self.proof = SeriesProof(context, self.pauses.append)

    def sample_all(self) -> Sequence[BrokerSample]:
        return self.polls.pop(0) if len(self.polls) > 1 else self.polls[0]

    def moved_leaders(self, _topics: TopicSet) -> dict[int, int]:
        if isinstance(self.moved, AdminError):
            raise self.moved
        return self.moved

    def examine(self, requests: int = 0, **options: Any) -> None:
        accounts = {broker: BrokerAccount(requests) for broker in (1, 2)}
        client = ClientWindow(102.0, 122.0, replace(COUNTS, by_broker=accounts))
        self.proof.examine((FIRST, BEFORE, BEFORE), client, TOPIC, traffic(**options))


def test_the_idle_time_must_fall_under_a_load_of_many_requests_only() -> None:
    light = Cluster(after(idle=0.98))
    light.examine(requests=2_000)
    assert set(light.history.idle_unproven) == {1, 2}
    assert light.history.series_doubt == ""
    (caveat,) = light.history.series_caveats
    assert "(brokers 1, 2)" in caveat
    heavy = Cluster(after(idle=0.98))
    with pytest.raises(ConfigError, match=r"broker 1: handler_idle_ns shows .* idle 0.98"):
        heavy.examine(requests=2_000_000)
    proven = Cluster(after(10_000.0), after())  # a poll that is late is repeated
    assert proven.proof.is_due
    proven.examine(requests=2_000)
    assert proven.history.series_doubt == ""
    assert proven.history.series_caveats == ()
    assert len(proven.pauses) == 1
    assert not proven.proof.is_due
    assert proven.proof.poll() == ()


def test_a_disagreement_ends_the_run_with_the_reading(snapshot: SnapshotAssertion) -> None:
    cluster = Cluster(after(bytes_in=9e9 + 2e6))
    with pytest.raises(ConfigError) as error:
        cluster.examine()
    assert str(error.value) == snapshot
    assert len(cluster.pauses) == LOOKS_MAX - 1
    assert cluster.history.series_doubt is None


def test_without_answers_or_without_a_load_the_caveat_says_so(snapshot: SnapshotAssertion) -> None:
    unanswered, unloaded = Cluster(after()), Cluster(after())
    unanswered.examine(acks="0")
    unloaded.proof.skip("the cluster's warm_up_max_s is 0")
    assert [unanswered.history.series_doubt, unloaded.history.series_doubt] == snapshot
    for moved in ({2: 1}, AdminError("no answer", "TimeoutError")):
        cluster = Cluster(after(bytes_in=9e9 + 2e6))
        cluster.moved = moved
        cluster.examine()
        assert "leaders moved" in (cluster.history.series_doubt or "")
    named = Cluster(after(0.0), has_series=False)  # by rules, which are not examined
    named.examine()
    named.proof.skip("no load")
    assert named.history.series_doubt is None


def test_the_lightest_load_that_proves_the_series_is_offered() -> None:
    config = load("calibrated", "calibrated", "default")
    rate = config.pattern(1_000, 1, 3).producer.rate_records_per_s
    context = SimpleNamespace(
        config=config,
        workload=config.workload,
        brokers=3,
        pattern=lambda size, number: config.pattern(size, number, 3),
        guards=SimpleNamespace(cap_violation=lambda _: None),
    )
    chosen = proof_pattern(cast(RunContext, context), 1_000)
    messages = rate * chosen.producers * chosen.phases.load_s / 3
    assert 2 * MESSAGES_LEAST <= messages < 4 * MESSAGES_LEAST + rate * chosen.phases.load_s
    assert is_enough(chosen, 3) and not is_enough(chosen, 3_000)
    context.guards = SimpleNamespace(cap_violation=lambda pattern: pattern.producers > 2 or None)
    assert proof_pattern(cast(RunContext, context), 1_000).producers <= 2


def test_a_failed_load_leaves_a_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    config = load("calibrated", "calibrated", "default")
    cluster = Cluster(after())

    def fail(*_: object) -> None:
        raise GeneratorError("no broker 2")

    monkeypatch.setattr(warm_up, "offer_unscored", fail)
    monkeypatch.setattr(warm_up, "proof_pattern", lambda *_: config.pattern(1_000, 1, 3))
    assert FirstLoads(cluster.context, 0.0).light(TOPIC, AtRest())
    assert "no broker 2" in (cluster.history.series_doubt or "")


def test_the_gates_of_a_run_prove_its_series(monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(cluster: Cluster, warm_up_max_s: float) -> Gates:
        context = run_context(
            source=cluster, history=cluster.history, reporter=RecordingReporter(), environment={},
            topics=SimpleNamespace(moved_leaders=cluster.moved_leaders),
            cluster=SimpleNamespace(last_load=None, admin=None),
            config=SimpleNamespace(cluster=SimpleNamespace(is_exclusive=True)),
        )  # fmt: skip
        return gates.open_gates(context, warm_up_max_s)

    client = ClientWindow(102.0, 122.0, COUNTS)
    config = load("calibrated", "calibrated", "default")
    monkeypatch.setattr(Gates, "take_baseline", lambda _: None)
    monkeypatch.setattr(Gates, "level", None)
    monkeypatch.setattr(warm_up, "offer_unscored", lambda *_: UnscoredLoad((), client))
    monkeypatch.setattr(warm_up, "proof_pattern", lambda *_: config.pattern(1_000, 1, 3))
    warm = Cluster(BEFORE, after())
    made = opened(warm, 60.0)
    made.polls_at_rest = (FIRST, BEFORE)
    assert warm.history.series_doubt is None and made.first is not None
    assert made.first.light(TOPIC, made.at_rest) and not made.first.light(TOPIC, made.at_rest)
    assert warm.history.series_doubt == ""
    unloaded = Cluster(after())
    assert opened(unloaded, 0.0).first is None
    assert "warm_up_max_s is 0" in (unloaded.history.series_doubt or "")

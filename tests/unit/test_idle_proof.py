"""The idle time of the request handlers proves itself by its fall under a load."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import product
from types import SimpleNamespace
from typing import cast

import pytest
from syrupy.assertion import SnapshotAssertion

from jobs.trials.context import RunContext, TrialHistory
from jobs.trials.series_proof import SeriesProof
from metrics.judging.series_proof import BrokerProof, HandlerPool, Polls, Sent
from metrics.sources.beans import HANDLER_IDLE_NS, TICKED_S
from metrics.sources.one_minute_rates import TICK_S
from metrics.sources.sample import BrokerSample
from metrics.sources.source import NodeInfo
from metrics.trial.evidence import Evidence
from tests.support.evidence import broker, client
from tests.support.rows import trial

REST_S, LOAD_S = 5.0, 30.0
EIGHT = HandlerPool(8)


def proof(
    rest: float,
    load: float,
    requests: int = 2_000,
    pool: HandlerPool = EIGHT,
    *,
    local_ms: float | None = None,
    of_others: float = 0.0,
    is_transactional: bool = False,
) -> BrokerProof:
    """The proof of a broker.

    Args:
        rest, load: idle time of its handlers at rest and under the load [ratio].
        local_ms: mean local time of its produce requests, if the page shows it.
        of_others: produce requests of others, at rest and under the load [1/s].
    """
    polls: list[BrokerSample] = []
    idle_s, count = 7_000.0, 500.0
    for second, idle, own in (
        (0.0, 0.0, 0.0),
        (REST_S, rest, of_others * REST_S),
        (REST_S + LOAD_S, load, of_others * LOAD_S + requests),
    ):
        idle_s += idle * (second - polls[-1].at_s if polls else 0.0)
        count += own
        values = {HANDLER_IDLE_NS: idle_s * 1e9, "produce_local_ms_count": count}
        if local_ms is not None:
            values["produce_local_ms_mean"] = local_ms
        polls.append(BrokerSample(1, second, values))
    first, before, after = polls
    sent = Sent(0.0, 0.0, None, requests, is_transactional)
    return BrokerProof(Polls(first, before), Polls(before, after), sent, pool)


def test_a_fall_beyond_the_error_of_the_edges_proves_the_reading() -> None:
    # 0.3 s of 5 s and of 30 s at the edges, and 0.02: a fall of 0.09.
    assert proof(0.98, 0.88).is_shown
    assert not proof(0.98, 0.90).is_shown
    assert not proof(0.98, 0.88, pool=HandlerPool(8, idle_error=0.05)).is_shown
    found = proof(0.98, 0.80)
    assert found.proven_below == pytest.approx(0.89)
    blind = Polls(replace(found.rest.first, values={}), found.rest.last)
    assert replace(found, rest=blind).proven_below is None
    assert not replace(found, rest=blind).is_shown
    assert not replace(found, load=blind).too_idle()


def test_handlers_are_as_busy_as_the_requests_of_the_load_make_them(
    snapshot: SnapshotAssertion,
) -> None:
    for idle in (0.99, 1.0, 1.02):
        tiny = proof(0.98, idle)
        assert tiny.busy_least == pytest.approx(2_000 * 20e-6 / 8 / LOAD_S)
        assert not tiny.too_idle() and not tiny.is_shown
    unknown = HandlerPool(None)
    assert proof(0.98, 1.3, pool=unknown).too_idle() == snapshot(name="more than all the time")
    assert not proof(0.98, 1.3, pool=HandlerPool(None, idle_error=0.3)).too_idle()
    # 20,000 requests/s take 8 handlers 0.05 of their time or more; the error is 0.03.
    many = int(20_000 * LOAD_S)
    assert proof(0.98, 0.99, many).too_idle() == snapshot(name="many requests")
    assert not proof(0.98, 0.97, many).too_idle()
    for pool in (unknown, HandlerPool(64)):
        assert not proof(0.98, 0.99, many, pool).too_idle()
    # 40 requests/s of 60 ms keep 4 handlers busy for 0.6 of the time.
    slow = partial(proof, 0.98, requests=int(40 * LOAD_S), pool=HandlerPool(4))
    assert slow(0.98, local_ms=60.0).busy_least == pytest.approx(0.2975)
    assert "expected 0.70 or less" in slow(0.98, local_ms=60.0).too_idle()
    assert not slow(0.40, local_ms=60.0).too_idle()
    assert slow(0.98, local_ms=0.5).busy_least < 0.01, "a time of 0.5 ms may be 0"
    assert not slow(0.98, local_ms=60.0, of_others=5.0).too_idle()
    assert not slow(0.98, local_ms=60.0, is_transactional=True).too_idle(), "they wait"


def test_neighbors_who_stop_or_begin_with_the_load_refuse_nothing() -> None:
    # The load keeps 4 handlers busy for 0.1 of the time; the rest is others'.
    for rest, load in product((0.98, 0.7, 0.4), (0.9, 0.6, 0.2)):
        found = proof(rest, load, 200, HandlerPool(4), local_ms=60.0)
        assert not found.too_idle()
        assert found.is_shown == (load < rest - 0.09)


def test_whole_ticks_of_one_minute_rates_may_lie_a_tick_beside_the_load() -> None:
    def polled(at_s: float, ticks: int, idle_s: float) -> BrokerSample:
        clock = f"{TICKED_S}:{HANDLER_IDLE_NS}"
        return BrokerSample(1, at_s, {clock: ticks * TICK_S, HANDLER_IDLE_NS: idle_s * 1e9})

    first, before = polled(0.0, 0, 0.0), polled(12.0, 2, 9.8)

    def ticked_proof(after: BrokerSample) -> BrokerProof:
        sent = Sent(0.0, 0.0, None)
        return BrokerProof(Polls(first, before), Polls(before, after), sent, EIGHT)

    # Seven ticks within 31 s: 35 s of idle time are no more than there can be.
    full = ticked_proof(polled(43.0, 9, 44.8))
    assert not full.too_idle()
    assert not full.is_shown
    # Errors of 0.3 s in 10 s and in 35 s, and 0.02.
    assert full.proven_below == pytest.approx(0.98 - 0.03 - 0.3 / 35 - 0.02)
    # Forty requests/s of 60 ms require a fall, of all ticks but one.
    slow = proof(0.98, 0.98, int(40 * LOAD_S), HandlerPool(4), local_ms=60.0)
    late = [
        replace(each, values={**each.values, f"{TICKED_S}:{HANDLER_IDLE_NS}": ticks * TICK_S})
        for each, ticks in zip(
            (slow.rest.first, slow.load.first, slow.load.last), (0, 1, 7), strict=True
        )
    ]
    ticked = replace(slow, rest=Polls(late[0], late[1]), load=Polls(late[1], late[2]))
    assert "expected 0.70 or less" in ticked.too_idle()
    assert not replace(ticked, pool=HandlerPool(8)).too_idle()
    assert replace(slow, pool=HandlerPool(8)).too_idle()
    half = ticked_proof(polled(43.0, 9, 17.8))
    assert half.is_shown


def test_a_trial_shows_what_the_first_load_was_too_small_for(snapshot: SnapshotAssertion) -> None:
    def caveats(*idles: float | None) -> tuple[str, ...]:
        history = TrialHistory()
        history.idle_unproven = {1: 0.89, 2: 0.88}
        windows = tuple(broker(i, handler_idle=idle) for i, idle in enumerate(idles, 1))
        if windows:
            history.add(trial(evidence=Evidence(client(), windows)), ())
        return history.series_caveats

    assert caveats() == snapshot
    assert caveats(0.9, 0.9) == caveats(None, None) == caveats()
    (one,) = caveats(0.7, 0.9)
    assert "(broker 2)" in one
    assert caveats(0.7, 0.7) == ()


@pytest.mark.parametrize(
    ("facts", "numbers"),
    [
        ({}, [8, 8]),
        ({"broker.config.num.io.threads": "16"}, [16, 16]),
        ({"broker.2.config.num.io.threads": "4"}, [8, 4]),
        ({"broker.config": "unreadable (ClusterAuthorizationFailed)"}, [None, None]),
    ],
)
def test_the_number_of_handlers_is_that_of_the_brokers_properties(
    facts: dict[str, str], numbers: list[int | None]
) -> None:
    nodes = {i: NodeInfo(i, "4.1", frozenset(), controller_share=0.1) for i in (1, 2)}
    context = SimpleNamespace(source=SimpleNamespace(nodes=nodes), environment=facts)
    pools = SeriesProof(cast(RunContext, context)).pools()
    assert pools == {i: HandlerPool(number, 0.05) for i, number in enumerate(numbers, 1)}

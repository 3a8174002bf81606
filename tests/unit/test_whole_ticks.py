"""Waits for whole ticks of one-minute rates: for rest, and after a load."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jobs.trials.recovery import wait_until_at_rest
from jobs.trials.series_proof import DEADLINE_S, poll_after_ticks
from jobs.trials.warm_up import step_length_s
from metrics.common.errors import ConfigError
from metrics.judging.doubts import reasons_of_doubt
from metrics.judging.series_proof import BrokerProof, Polls, Sent
from metrics.judging.thresholds import Thresholds
from metrics.judging.validity import metrics_incomplete
from metrics.judging.verdict import judge, window_least_s
from metrics.sources.beans import HANDLER_IDLE_NS, Role
from metrics.sources.one_minute_rates import RateCounts, rate_caveats, require_whole_ticks
from metrics.sources.rules import ONE_MINUTE_RATE
from metrics.sources.sample import BrokerSample
from metrics.sources.source import NodeInfo
from metrics.trial.evidence import ClusterFacts
from metrics.trial.others import ClientTraffic
from search.model import Verdict
from tests.support.evidence import broker, evidence
from tests.support.gated_cluster import gates_of
from tests.support.rate_pages import SimulatedMeter
from tests.support.scripted_source import ScriptedSource

STEP_S = 0.1
NOTHING = Sent(0.0, 0.0, None)


class RateSource(ScriptedSource):
    """A source of one broker that shows one-minute rates; time passes in `pause` alone."""

    def __init__(self, ticks: bool = True) -> None:
        super().__init__()
        rates = (HANDLER_IDLE_NS, "messages_in", "bytes_in") if ticks else ()
        self.nodes = {1: NodeInfo(1, "4.1", frozenset({Role.BROKER}), rates=rates)}
        self.idle, self.messages_per_s, self.ticks = 0.97, 0.0, ticks
        self.pool = SimulatedMeter(995.9, 1.0)
        self.messages, self.bytes = SimulatedMeter(997.1), SimulatedMeter(996.2)
        self.counts = RateCounts()
        self.polls = 0
        self.pause(30.0)

    def pause(self, duration_s: float) -> None:
        for _ in range(round(duration_s / STEP_S)):
            self.now_s += STEP_S
            self.pool.mark(int(1e9 * STEP_S * self.idle))
            self.messages.mark(int(self.messages_per_s * STEP_S))
            self.bytes.mark(1_071 * int(self.messages_per_s * STEP_S))
            for meter in (self.pool, self.messages, self.bytes):
                while meter.next_tick_s <= self.now_s:
                    meter.tick()

    def sample_all(self) -> list[BrokerSample]:
        self.polls += 1
        if not self.ticks:
            values = {HANDLER_IDLE_NS: float(self.pool.count)}
            return [BrokerSample(1, self.now_s, values)]
        rates = {
            f"{ONE_MINUTE_RATE}:{HANDLER_IDLE_NS}": self.pool.one_minute_rate * 1e9,
            f"{ONE_MINUTE_RATE}:messages_in": self.messages.one_minute_rate,
            f"{ONE_MINUTE_RATE}:bytes_in": self.bytes.one_minute_rate,
        }
        return [BrokerSample(1, self.now_s, self.counts.counted(rates, self.now_s, 1.1))]


def loaded(source: RateSource, seconds: float, idle: float = 0.1) -> list[BrokerSample]:
    """Load a source, polled each second, and return its poll before the load."""
    before = source.sample_all()
    source.idle, source.messages_per_s = idle, 1_000.0
    for _ in range(round(seconds)):
        source.pause(1.0)
        source.sample_all()
    source.idle, source.messages_per_s = 0.97, 0.0
    return before


@pytest.mark.parametrize("passed_s", [0.0, 2.3])
@pytest.mark.parametrize("seconds", [1.0, 2.0, 4.0, 17.0])
def test_a_poll_after_a_load_counts_all_of_it(seconds: float, passed_s: float) -> None:
    source = RateSource()
    source.pause(passed_s)
    (before,) = loaded(source, seconds)
    (after,) = poll_after_ticks(source, source.clock, source.pause)
    for name, sent in (("messages_in", 1_000), ("bytes_in", 1_071_000)):
        assert after.values[name] - before.values[name] == sent * seconds
    traffic = ClientTraffic.between([before], [after], [1])
    assert traffic is not None
    assert traffic.messages == 1_000 * seconds


def test_a_poll_of_rates_that_never_move_ends() -> None:
    source = RateSource()
    source.sample_all()
    source.pool.begun_s = source.messages.begun_s = source.bytes.begun_s = 1e9
    begun_s = source.now_s
    poll_after_ticks(source, source.clock, source.pause)
    assert source.now_s - begun_s == pytest.approx(DEADLINE_S, abs=1.01)
    counts = RateSource(ticks=False)
    poll_after_ticks(counts, counts.clock, counts.pause)
    assert counts.polls == 1, "no wait where counts are shown"


def test_brokers_are_at_rest_after_a_whole_tick_of_rest() -> None:
    source = RateSource()
    loaded(source, 12.0)
    ended_s = source.now_s
    recovery = wait_until_at_rest(source, clock=source.clock, pause=source.pause)
    assert not recovery.not_idle
    ticks_s = (source.pool.begun_s + 5 * tick for tick in range(1, source.pool.ticks + 1))
    last_of_load = next(tick_s for tick_s in ticks_s if tick_s > ended_s)
    assert source.now_s >= last_of_load + 5.0
    assert source.now_s - ended_s <= 13.0


class TwoSources(ScriptedSource):
    """Two brokers whose meters tick at different moments."""

    def __init__(self) -> None:
        self.first, self.second = RateSource(), RateSource()
        for meter in (self.second.pool, self.second.messages, self.second.bytes):
            meter.late_s = dict.fromkeys(range(1, 100), 2.0)
        self.nodes = {i: replace(self.first.nodes[1], node_id=i) for i in (1, 2)}

    def clock(self) -> float:
        return self.first.clock()

    def pause(self, duration_s: float) -> None:
        self.first.pause(duration_s)
        self.second.pause(duration_s)

    def sample_all(self) -> list[BrokerSample]:
        (own,), (other,) = self.first.sample_all(), self.second.sample_all()
        return [own, replace(other, broker_id=2)]


def test_rest_and_the_level_of_others_are_found_where_brokers_tick_at_different_moments() -> None:
    both = TwoSources()
    gates = gates_of(both)
    recovery = wait_until_at_rest(both, clock=both.clock, pause=both.pause)
    assert not recovery.not_idle and recovery.duration_s <= 12.0
    both.first.messages_per_s = both.second.messages_per_s = 200.0
    both.pause(10.0)
    gates.take_baseline()
    before = gates.level
    both.first.messages_per_s = both.second.messages_per_s = 600.0
    both.pause(10.0)
    gates.renew_level()
    after = gates.level
    assert before is not None and after is not None
    assert before.messages.mean == pytest.approx(400.0, rel=0.02)
    assert before.messages.deviation < 20.0
    assert after.messages.mean > 600.0


def test_ticks_around_polls_that_are_close_do_not_add_idle_time() -> None:
    source = RateSource()
    source.idle = 1.0
    for _ in range(12):
        source.pause(1.0)
        source.sample_all()
    source.pause(max(0.0, source.pool.next_tick_s - source.now_s - 0.3))
    (before,) = source.sample_all()
    for _ in range(6):
        source.pause(1.0)
        (after,) = source.sample_all()
    grown = after.values[HANDLER_IDLE_NS] - before.values[HANDLER_IDLE_NS]
    assert grown > 1.5e9 * (after.at_s - before.at_s)
    assert BrokerProof(Polls(before, after), Polls(before, after), NOTHING).too_idle() == ""


RATES = {1: NodeInfo(1, "4.1", frozenset({Role.BROKER}), rates=("bytes_in", HANDLER_IDLE_NS))}


def test_what_rates_require_is_said_before_the_load() -> None:
    (whole,) = rate_caveats(RATES, 1.0)
    assert "broker 1" in whole and "bytes_in, handler_idle_ns" in whole and "5 s" in whole
    _, missed = rate_caveats(RATES, 10.0)
    assert "every 10 s" in missed and "±0.022" in missed and "to 4 or less" in missed
    dear = {1: NodeInfo(1, "4.1", frozenset(), poll_s=0.6, rates=("bytes_in",))}
    _, sentence = rate_caveats(dear, 2.0)
    assert "0.60 s of a broker's CPU" in sentence and "includeObjectNames" in sentence
    counts = {1: NodeInfo(1, "4.1", frozenset())}
    assert not list(rate_caveats(counts, 60.0))
    require_whole_ticks(RATES, 12.0, 1.0)
    require_whole_ticks(counts, 1.0, 1.0)
    assert step_length_s(1.0) < 10.0 < step_length_s(1.0, reads_rates=True) == 11.0
    with pytest.raises(ConfigError, match=r"measure_s is 11 .* expected 12 s or longer"):
        require_whole_ticks(RATES, 11.0, 1.0)


def test_a_trial_is_invalid_where_the_error_of_rates_decides() -> None:
    for idle, error, is_doubtful in (
        (0.21, 0.02, True),
        (0.19, 0.02, True),
        (0.23, 0.02, False),
        (0.17, 0.02, False),
        (0.21, 0.0, False),
        (0.21, None, False),
    ):
        window = broker(1, handler_idle=idle, handler_idle_rate_error=error, ticked_s=30.0)
        seen = evidence(brokers=[window, broker(2)])
        reasons = reasons_of_doubt(seen, Thresholds())
        assert [each.indicator for each in reasons] == ["rate_in_doubt"] * is_doubtful
        assert (judge(seen, Thresholds()).verdict is Verdict.INVALID) is is_doubtful
        for reason in reasons:
            assert f"idle {idle - 0.02:.3f} to {idle + 0.02:.3f}" in reason.text
            assert "one-minute rates over 30 s" in reason.text


def test_a_window_without_a_whole_tick_is_invalid() -> None:
    seen = evidence(brokers=[broker(1, handler_idle=None, ticked_s=0.0), broker(2)])
    (reason,) = metrics_incomplete(seen, Thresholds())
    assert "not updated twice" in reason.text and "measure for 20 s" in reason.text
    assert window_least_s(ClusterFacts(rate_window_s=12.0), is_sustained=False) == 12.0

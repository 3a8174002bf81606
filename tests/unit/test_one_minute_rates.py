"""Counts of meters from their one-minute rates, against a simulation of the meters."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import chain
from random import Random

import pytest

from metrics.sources.beans import HANDLER_IDLE_NS, TICK_ERROR, TICKED_S, UPTIME_MS
from metrics.sources.one_minute_rates import ALPHA, RateCounts, is_whole_tick, rounding_of
from metrics.sources.rules import ONE_MINUTE_RATE, ROUNDING
from metrics.sources.sample import BrokerSample
from metrics.windows.broker import Span, broker_window, find_contradiction
from tests.support.rate_pages import ALPHA as JAVAS_ALPHA
from tests.support.rate_pages import SimulatedMeter

STEP_S = 0.1
Printed = Callable[[float], str]


def rounded(decimals: int) -> Printed:
    return lambda rate: repr(round(rate, decimals))


class Broker:
    """Two meters under a load that changes with time, and the pages that show them."""

    def __init__(self, seed: int, printed: Printed = repr, uptime: bool = False) -> None:
        self.random = Random(seed)
        self.now_s = 1_000.0
        self.printed = printed
        self.has_uptime = uptime
        self.begun_s = self.now_s
        self.idle, self.bytes = self._meters()
        self.counts = RateCounts()
        self.samples: list[BrokerSample] = []

    def _meters(self) -> tuple[SimulatedMeter, SimulatedMeter]:
        def begun_s() -> float:
            return self.now_s - self.random.uniform(0, 5)

        self.begun_s = self.now_s
        return SimulatedMeter(begun_s(), 1.0), SimulatedMeter(begun_s())

    @property
    def meters(self) -> dict[str, SimulatedMeter]:
        return {HANDLER_IDLE_NS: self.idle, "bytes_in": self.bytes}

    def ticks(self) -> dict[str, int]:
        return {name: meter.ticks for name, meter in self.meters.items()}

    def restart(self) -> None:
        """Stop the broker for 7 s, and start it anew."""
        self.now_s += 7.0
        self.idle, self.bytes = self._meters()

    def run(self, seconds: float, idle: float, bytes_per_s: float) -> None:
        """Serve a load, which varies by a tenth."""
        for _ in range(round(seconds / STEP_S)):
            self.now_s += STEP_S
            vary = self.random.uniform(0.9, 1.1)
            self.idle.mark(int(1e9 * STEP_S * (1 - (1 - idle) * vary)))
            self.bytes.mark(int(bytes_per_s * STEP_S * vary))
            for meter in self.meters.values():
                while meter.next_tick_s <= self.now_s:
                    meter.tick()

    def look(self) -> dict[str, float]:
        """Read a page, and keep the sample."""
        values = {}
        for name, meter in self.meters.items():
            unit = 1e9 if name == HANDLER_IDLE_NS else 1.0
            text = self.printed(meter.one_minute_rate)
            values[f"{ONE_MINUTE_RATE}:{name}"] = float(text) * unit
            values[f"{ROUNDING}:{name}"] = rounding_of(text) * unit
        if self.has_uptime:
            values[UPTIME_MS] = (self.now_s - self.begun_s) * 1e3
        found = self.counts.counted(values, self.now_s, idle_most=1.1)
        self.samples.append(BrokerSample(1, self.now_s, found))
        return found

    def watch(
        self, looks: int, interval_s: float, idle: float, bytes_per_s: float
    ) -> Iterator[dict[str, float]]:
        """Serve a load and read a page at each interval."""
        for _ in range(looks):
            self.run(interval_s, idle, bytes_per_s)
            yield self.look()


def started(seed: int, printed: Printed = repr, uptime: bool = False) -> Broker:
    """A broker that has run for two minutes, and was read once."""
    broker = Broker(seed, printed, uptime)
    broker.run(120, 0.97, 1e5)
    broker.look()
    return broker


@pytest.mark.parametrize("interval_s", [0.3, 0.5, 1.0, 2.0, 3.7, 4.4])
@pytest.mark.parametrize("seed", range(5))
def test_counts_are_exact_where_each_tick_is_seen(seed: int, interval_s: float) -> None:
    broker = started(seed)
    before = broker.ticks()
    for found in chain(
        broker.watch(40, interval_s, 0.35, 17e6),
        broker.watch(40, interval_s, 0.9, 3e5),
        broker.watch(40, interval_s, 1.0, 0.0),
    ):
        for key, meter in broker.meters.items():
            assert found[key] == sum(meter.counted[before[key] :])
            assert found[f"{TICKED_S}:{key}"] == 5 * (meter.ticks - before[key])
            assert f"{TICK_ERROR}:{key}" not in found


@pytest.mark.parametrize("interval_s", [5.0, 6.5, 9.0, 14.9, 21.0])
@pytest.mark.parametrize("seed", range(8))
def test_ticks_that_were_not_seen_leave_an_error_that_is_stated(
    seed: int, interval_s: float
) -> None:
    broker = started(seed)
    first = broker.ticks()
    for idle, bytes_per_s in ((0.5, 2e6), (0.2, 17e6), (0.8, 1e6)):
        for found in broker.watch(6, interval_s, idle, bytes_per_s):
            for key, meter in broker.meters.items():
                true = sum(meter.counted[first[key] :])
                error = found.get(f"{TICK_ERROR}:{key}", 0.0)
                ticks = meter.ticks - first[key]
                assert abs(found[key] - true) <= error + 1
                # A tick that may or may not have been before the first look is in the error, too.
                assert abs(found[f"{TICKED_S}:{key}"] / 5 - ticks) <= 1


def test_the_error_of_missed_ticks_is_small_enough_to_judge_by() -> None:
    broker = started(3)
    list(broker.watch(16, 9.0, 0.4, 5e6))
    span = Span(broker.samples[3:])
    error = span.error_per_s(HANDLER_IDLE_NS)
    assert error is not None
    assert 0.002 < error / 1e9 < 0.03
    idle = (span.per_s(HANDLER_IDLE_NS) or 0.0) / 1e9
    assert idle == pytest.approx(0.4, abs=0.03)


@pytest.mark.parametrize("decimals", [2, 3, 4, 6])
@pytest.mark.parametrize("seed", range(5))
def test_rounded_rates_are_within_their_stated_error(seed: int, decimals: int) -> None:
    broker = started(seed, rounded(decimals))
    list(broker.watch(70, 1.0, 0.30, 5e6))
    span = Span(broker.samples[12:])
    error, per_s = span.error_per_s(HANDLER_IDLE_NS), span.per_s(HANDLER_IDLE_NS)
    assert error is not None and per_s is not None
    ticks = round((span.ticked_s(HANDLER_IDLE_NS) or 0.0) / 5)
    assert 8 <= ticks <= 11
    counted = broker.idle.counted[-ticks:]
    true = sum(counted) / (5e9 * ticks)
    # Of a rounded number that happens not to change, a tick may count one look later.
    near = max(abs(sum(broker.idle.counted[-ticks - 1 : -1]) / (5e9 * ticks) - true), 1e-12)
    assert abs(per_s / 1e9 - true) <= error / 1e9 + near
    e = 0.5 * 10**-decimals
    assert error / 1e9 == pytest.approx(e * (1 + 2 / (ALPHA * ticks)), rel=0.01)


def test_a_late_tick_counts_once() -> None:
    broker = started(4)
    first = broker.idle.ticks
    broker.idle.late_s = {first + 3: 1.7, first + 6: 2.5}
    for found in broker.watch(60, 1.0, 0.99, 5e6):
        assert found[HANDLER_IDLE_NS] == sum(broker.idle.counted[first:])
        assert found[f"{TICKED_S}:{HANDLER_IDLE_NS}"] == 5 * (broker.idle.ticks - first)


@pytest.mark.parametrize("uptime", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_counts_begin_anew_after_a_restart(seed: int, uptime: bool) -> None:
    broker = started(seed, uptime=uptime)
    list(broker.watch(30, 1.0, 0.35, 17e6))
    broker.restart()
    list(broker.watch(12, 1.0, 0.6, 4e6))
    first = broker.idle.ticks
    begun = broker.look()[HANDLER_IDLE_NS]
    list(broker.watch(12, 1.0, 0.6, 4e6))
    assert broker.look()[HANDLER_IDLE_NS] - begun == sum(broker.idle.counted[first:])
    contradiction = find_contradiction(broker.samples)
    assert contradiction is not None and "restart" in contradiction
    window = broker_window(broker.samples, 1, broker.samples[0].at_s, broker.now_s, 1.0)
    assert window.contradiction == contradiction


@pytest.mark.parametrize("seed", range(6))
def test_a_rate_that_was_always_0_has_no_clock_until_it_moves(seed: int) -> None:
    broker = Broker(seed)
    broker.run(60, 0.97, 0.0)
    found = broker.look()
    assert found["bytes_in"] == 0
    assert f"{TICKED_S}:bytes_in" not in found
    list(broker.watch(13, 1.0, 0.97, 0.0))
    begun_s = broker.now_s
    list(broker.watch(30, 1.0, 0.5, 8e6))
    span = Span([each for each in broker.samples if each.at_s >= begun_s])
    ticks = round((span.ticked_s("bytes_in") or 0.0) / 5)
    assert ticks >= 4
    assert span.per_s("bytes_in") == sum(broker.bytes.counted[-ticks:]) / (5 * ticks)
    assert span.per_s("bytes_in") == pytest.approx(8e6, rel=0.02)
    assert Span(broker.samples[:12]).per_s("bytes_in") == 0


def test_an_uptime_that_fell_is_a_restart_whatever_the_rates() -> None:
    counts, after = RateCounts(), 2e3 + ALPHA * (1e3 - 2e3)
    looks = ((1_000.0, 2e3, 60e3), (1_001.0, after, 61e3), (1_002.0, after, 2e3))
    seen = [
        counts.counted({f"{ONE_MINUTE_RATE}:bytes_in": rate, UPTIME_MS: uptime_ms}, at_s)
        for at_s, rate, uptime_ms in looks
    ]
    assert [each["bytes_in"] for each in seen] == [0, 5_000, 0]


def test_a_page_from_a_cache_shows_no_tick() -> None:
    broker = started(2)
    page = {f"{ONE_MINUTE_RATE}:{HANDLER_IDLE_NS}": broker.idle.one_minute_rate * 1e9}
    found = [broker.counts.counted(dict(page), broker.now_s + i) for i in range(20)]
    assert {each[f"{TICKED_S}:{HANDLER_IDLE_NS}"] for each in found} == {0.0}


def test_other_averages_show_no_whole_tick() -> None:
    random, hits = Random(5), 0
    for _ in range(200):
        before = random.uniform(1e3, 1e7)
        events = random.randrange(10_000, 100_000_000)
        for minutes in (5, 15):
            alpha = 1 - math.exp(-5 / 60.0 / minutes)
            hits += is_whole_tick(before, before + alpha * (events / 5 - before))
        after = before + ALPHA * (round(5 * before) / 5 - before)
        assert not is_whole_tick(before, before + 0.5 * (after - before) + 0.01)
    assert hits <= 1


def test_the_digits_of_a_number_state_its_error() -> None:
    assert ALPHA == JAVAS_ALPHA, "the weight of a tick is that of the Java code"
    errors = {
        "0.98": 0.005, "1.7E7": 5e5, "12": 0.5, "0.9880349127346512": 0.0,
        "1.6911234567890123E7": 0.0, "0.0": 0.05, "-0.25": 0.005,
    }  # fmt: skip
    assert {text: rounding_of(text) for text in errors} == pytest.approx(errors)

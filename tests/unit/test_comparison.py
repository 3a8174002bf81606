"""The compared figures, the conditions of a conclusion, and published claims."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from metrics.comparing.effects import (
    CAPACITY,
    STEADY,
    Conclusion,
    Effect,
    Side,
    TrialPair,
    compared,
    conclude,
    paired_effect,
)
from metrics.comparing.figures import SIZE, Result
from metrics.features.sweep.answer import Claim, Verdict, judge_claim
from metrics.trial.client import BrokerAccount
from metrics.windows.host import HostWindow, InterfaceWindow
from tests.support.evidence import broker, client
from tests.support.rows import trial


def effect(ratio: float, p_value: float) -> Effect:
    return Effect(ratio, ratio * 0.97, ratio * 1.03, p_value, 0.04, 4)


def test_the_values_of_a_trial() -> None:
    accounts = {1: BrokerAccount(requests=30), 2: BrokerAccount(requests=20)}
    window = client(acked_bytes=60_000_000, latency_p99_ms=12.5, by_broker=accounts)
    brokers = (
        broker(1, handler_idle=0.4, cpu_cores=0.5),
        broker(2, handler_idle=0.25, cpu_cores=0.7),
    )
    link = InterfaceWindow("eth0", received_bytes_per_s=7e6, sent_bytes_per_s=1e6)
    hosts = (
        HostWindow("one", (1,), False, True, interfaces=(InterfaceWindow("lo", 5e5, 5e5), link)),
        HostWindow("two", (2,), False, True, interfaces=(InterfaceWindow("eth0", 1e6, 2e6),)),
        HostWindow("ours", (), True, False, interfaces=(link,)),
    )
    made = trial(client=window, brokers=brokers, hosts=hosts)
    rate = 60 / window.duration_s
    assert CAPACITY.of(made) == pytest.approx(rate / 2)
    assert {each.name: each.of(made) for each in STEADY} == {
        "handlers_busy": pytest.approx(0.75),
        "broker_cpu_ms_per_mb": pytest.approx(1000 * 1.2 / rate),
        "produce_requests_per_1000_records": 5.0,
        "network_bytes_per_payload_byte": pytest.approx((7 + 2) / rate),
        "latency_p50_ms": 2.0,
        "latency_p99_ms": 12.5,
    }


def test_the_ratio_of_the_means_of_known_figures_is_the_effect() -> None:
    pairs = [
        TrialPair(trial(client=client(acked_bytes=a)), trial(client=client(acked_bytes=b)))
        for a, b in ((10_000_000, 8_000_000), (30_000_000, 27_000_000), (9_000_000, 8_000_000))
    ]
    found = compared(CAPACITY, pairs)
    a, b = (found.mean(side) for side in Side)
    assert found.effect is not None and a is not None and b is not None
    assert b / a == pytest.approx(found.effect.ratio)
    assert paired_effect([(1.0, 0.5), (1.0, 0.5)]) is None, "too few pairs"
    unknown = trial(
        client=client(acked_bytes=0, latency_p50_ms=math.nan, latency_p99_ms=math.nan),
        brokers=(broker(1, cpu_cores=None, handler_idle=None),),
    )
    assert {quantity.of(unknown) for quantity in (CAPACITY, *STEADY)} == {None}
    assert compared(CAPACITY, [TrialPair(unknown, unknown)]).pairs == ()


def test_a_difference_has_to_be_seen_and_to_matter() -> None:
    none = Conclusion.NONE_SEEN
    for effects, conclusions in (
        ([effect(0.80, 0.001)], (Conclusion.REGRESSION,)),
        ([effect(1.25, 0.001)], (Conclusion.IMPROVEMENT,)),
        ([effect(0.97, 0.001)], (Conclusion.SMALL,)),
        ([effect(1.04, 0.001)], (Conclusion.SMALL,)),
        ([effect(0.80, 0.2)], (none,)),
        ([None], (Conclusion.NO_ANSWER,)),
        ([effect(0.9, 0.04)], (Conclusion.REGRESSION,)),
        # Several sizes share one chance of a false alarm.
        ([effect(0.9, 0.04), None, effect(0.9, 0.5)], (none, Conclusion.NO_ANSWER, none)),
    ):
        assert conclude(effects, 0.05) == conclusions


GROUPS = "workload.consumers.groups"


def results(of: float, spread: float = 0.02, repeats: int = 5, size: int = 1000) -> list[Result]:
    """Figures of 0 and 8 groups, whose ratio is `of` with a known scatter."""
    scatter = [spread * math.sin(2.0 * n) for n in range(repeats)]
    return [
        Result({GROUPS: groups}, n, size, value, p99_ms=10.0 * value)
        for n, off in enumerate(scatter, 1)
        for groups, value in (("0", 50.0), ("8", 50.0 * of * math.exp(off)))
    ]


def claim(change: str, by: float | None = None, reading: str = "") -> Claim:
    assert change in ("less", "more", "same")
    return Claim("A study", "so it is", {GROUPS: "8"}, {GROUPS: "0"}, change, by, reading)  # type: ignore[arg-type]


def test_a_claim_agrees_only_if_the_whole_interval_does() -> None:
    for asked, of, spread, verdict in (
        (claim("less"), 0.7, 0.02, Verdict.AGREES),
        (claim("less"), 1.3, 0.02, Verdict.DIFFERS),
        (claim("less"), 0.95, 0.4, Verdict.CANNOT_SAY),
        (claim("more"), 1.3, 0.02, Verdict.AGREES),
        (claim("more"), 0.7, 0.02, Verdict.DIFFERS),
        (claim("same"), 1.01, 0.02, Verdict.AGREES),
        (claim("same"), 1.01, 0.4, Verdict.CANNOT_SAY),
        (claim("same"), 0.7, 0.02, Verdict.DIFFERS),
        (claim("less", by=-0.33), 0.67, 0.02, Verdict.AGREES),
        (claim("less", by=-0.33), 0.9, 0.02, Verdict.DIFFERS),
        (claim("less", by=-0.33), 0.8, 0.4, Verdict.CANNOT_SAY),
        (claim("less", reading="p99_ms"), 0.7, 0.02, Verdict.AGREES),
        (claim("more", reading="p99_ms"), 0.7, 0.02, Verdict.DIFFERS),
        (claim("less", reading="commit_ms"), 0.7, 0.02, Verdict.CANNOT_SAY),
    ):
        assert judge_claim(asked, results(of, spread)).verdict is verdict, (asked, of)
    found = judge_claim(claim("less"), results(0.5, repeats=2))
    assert (found.verdict, found.effect) == (Verdict.CANNOT_SAY, None), "too few repeats"
    assert found.seen == pytest.approx(0.5, rel=0.02)
    unmeasured = Claim("A study", "so it is", {GROUPS: "5"}, {GROUPS: "0"}, "same")
    found = judge_claim(unmeasured, results(1.0))
    assert (found.verdict, found.lacks) == (Verdict.CANNOT_SAY, {GROUPS: "5"})
    sizes = Claim("A study", "as much", {SIZE: "100000"}, {SIZE: "1000"}, "same")
    eight_times = [
        replace(each, value=8.0 * (each.value or 0.0)) for each in results(1.0, size=100_000)
    ]
    found = judge_claim(sizes, [*results(1.0), *eight_times])
    assert found.verdict is Verdict.DIFFERS
    assert found.effect is not None and found.effect.ratio == pytest.approx(8.0)

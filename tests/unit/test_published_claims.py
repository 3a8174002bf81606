"""Published claims, held against measured figures."""

from __future__ import annotations

import math

import pytest

from metrics.comparing.published import SIZE, Claim, Verdict, judge_claim
from metrics.comparing.sweeps import Result

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


@pytest.mark.parametrize(
    ("asked", "of", "spread", "verdict"),
    [
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
    ],
)
def test_a_claim_agrees_only_if_the_whole_interval_does(
    asked: Claim, of: float, spread: float, verdict: Verdict
) -> None:
    assert judge_claim(asked, results(of, spread)).verdict is verdict


def test_too_few_repeats_say_nothing() -> None:
    found = judge_claim(claim("less"), results(0.5, repeats=2))
    assert (found.verdict, found.effect) == (Verdict.CANNOT_SAY, None)
    assert found.seen == pytest.approx(0.5, rel=0.02)


def test_a_case_that_was_not_measured_is_named() -> None:
    asked = Claim("A study", "so it is", {GROUPS: "5"}, {GROUPS: "0"}, "same")
    found = judge_claim(asked, results(1.0))
    assert (found.verdict, found.lacks) == (Verdict.CANNOT_SAY, {GROUPS: "5"})


def test_a_claim_compares_message_sizes() -> None:
    asked = Claim("A study", "as much", {SIZE: "100000"}, {SIZE: "1000"}, "same")
    small, large = results(1.0), results(1.0, size=100_000)
    eight_times = [
        Result(each.settings, each.repeat, 100_000, 8.0 * (each.value or 0.0)) for each in large
    ]
    found = judge_claim(asked, [*small, *eight_times])
    assert found.verdict is Verdict.DIFFERS
    assert found.effect is not None and found.effect.ratio == pytest.approx(8.0)

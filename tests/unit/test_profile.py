"""Profiles of a load over time: their files, their arithmetic, and the schedules they make."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.config.files import load_rate_profile, names_in
from jobs.engine.producing.schedule import due_between, schedule_for
from metrics.traffic.profile import RateProfile
from tests.support.patterns import pattern

STEPS = RateProfile("steps", ((0.0, 1.0), (10.0, 1.0), (10.0, 3.0), (20.0, 3.0)))
RAMP = RateProfile("ramp", ((0.0, 0.0), (10.0, 2.0)))


@st.composite
def profiles(draw: st.DrawFn) -> RateProfile:
    gaps = draw(st.lists(st.sampled_from([0.0, 0.5, 3.0, 40.0]), min_size=1, max_size=6))
    times = [0.0]
    for gap in gaps:
        times.append(times[-1] + gap)
    if times[-1] == 0:
        times.append(5.0)
    share = st.sampled_from([0.0, 0.1, 1.0, 2.5])
    shares = [draw(share) for _ in times]
    return RateProfile("drawn", tuple(zip(times, [1.0, *shares[1:]], strict=True)))


@given(profile=profiles(), at_s=st.floats(min_value=0, max_value=500))
def test_elapsed_load_and_its_time_are_inverse(profile: RateProfile, at_s: float) -> None:
    passed_s = profile.passed_s(at_s)
    assert 0 <= passed_s <= profile.peak * at_s + 1e-9
    if not profile.mean:
        return
    back_s = profile.time_s(passed_s)
    assert back_s <= at_s + 1e-6, "the first time at which so much has passed"
    assert profile.passed_s(back_s) == pytest.approx(passed_s, abs=1e-6 * (1 + passed_s))


def test_steps_ramps_and_repeats_by_hand() -> None:
    passed = [STEPS.passed_s(each) for each in (-2, 0, 5, 10, 15, 20, 25)]
    assert passed == [-2, 0, 5, 10, 25, 40, 45]
    assert (STEPS.mean, STEPS.peak, STEPS.length_s) == (2.0, 3.0, 20.0)
    assert [STEPS.time_s(each) for each in (-2, 5, 10, 25, 40, 45)] == [-2, 5, 10, 15, 20, 25]
    assert RAMP.passed_s(5) == pytest.approx(2.5)
    assert RAMP.time_s(2.5) == pytest.approx(5)
    assert RAMP.passed_s(-3) == 0, "nothing is offered before it begins"


@pytest.mark.parametrize("arrivals", ["fixed", "poisson"])
def test_a_schedule_follows_the_profile(arrivals: str) -> None:
    whole = pattern(rate_records_per_s=1_000.0, arrivals=arrivals, warmup_s=2.0)
    schedule = schedule_for(replace(whole, profile=STEPS), 0, 100.0)
    parts = [due_between(schedule, 100.0 + a, 100.0 + b) for a, b in ((0, 2), (2, 12), (12, 22))]
    slack = 0.1 if arrivals == "poisson" else 0.001
    assert parts == pytest.approx([2_000, 10_000, 30_000], rel=slack, abs=20)
    again = due_between(schedule, 122.0, 142.0)
    assert again == pytest.approx(40_000, rel=slack)
    times = [schedule.due_s(record) for record in range(0, 50_000, 500)]
    assert times == sorted(times)
    for number, at_s in zip(range(0, 50_000, 500), times, strict=True):
        assert schedule.due_until(at_s) > number


@pytest.mark.parametrize("name", names_in("profiles"))
def test_the_profiles_of_the_project_are_valid(name: str) -> None:
    found = load_rate_profile(name)
    assert found.name == name
    assert 0 < found.mean <= found.peak <= 2

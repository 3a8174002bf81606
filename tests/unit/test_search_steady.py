"""The loads that are held below a burst limit, until one is proven on disk."""

from __future__ import annotations

from itertools import product

import pytest

from search.confirming import HOLDS_MAX, LEAST, REPEATS_MAX, STEP_DOWN, SteadyHold, next_hold


def failed(load: int, written: float | None = None) -> SteadyHold:
    return SteadyHold(load, is_valid=True, written_share=written)


@pytest.mark.parametrize(
    ("written", "load"),
    [(10 / 64, 9), (0.5, 31), (0.94, 58), (None, int(64 * STEP_DOWN)), (0.001, int(64 * LEAST))],
)
def test_the_next_load_is_what_disks_wrote(written: float | None, load: int) -> None:
    assert next_hold(64, [failed(64, written)]) == load


def test_the_burst_limit_is_held_first_and_a_proof_or_the_last_load_ends_the_search() -> None:
    assert next_hold(64, []) == 64
    assert next_hold(0, []) is None, "no load was sustained"
    assert next_hold(64, [SteadyHold(64, is_valid=True, is_proven=True)]) is None
    assert next_hold(2, [failed(2, 0.99)]) == 1
    assert next_hold(1, [failed(1, 0.5)]) is None, "no load is left"
    holds = [failed(64 - n, 0.94) for n in range(HOLDS_MAX)]
    assert next_hold(64, holds[:-1]) is not None
    assert next_hold(64, holds) is None
    invalid = SteadyHold(64, is_valid=False)  # which is repeated, and counts for nothing
    assert next_hold(64, [invalid]) == 64
    assert next_hold(64, [invalid] * (REPEATS_MAX + 1)) is None
    assert next_hold(64, [invalid, failed(64, 0.5)]) == 31


def test_a_steady_disk_is_found_within_a_twentieth_below_it() -> None:
    for burst, disk in product((64, 200, 1_000), (3, 10, 29, 57, 63)):
        holds: list[SteadyHold] = []
        while (load := next_hold(burst, holds)) is not None:
            share = disk / load
            hold = SteadyHold(load, is_valid=True, is_proven=share >= 0.95, written_share=share)
            holds.append(hold)
        assert holds[-1].is_proven
        if disk / burst >= LEAST:
            assert disk * 0.95 - 1 <= holds[-1].load <= disk / 0.95
            assert len(holds) <= 2

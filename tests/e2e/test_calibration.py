"""The limits that `redline find-limit` finds, compared with those planted in real brokers."""

from __future__ import annotations

import logging

import pytest

from tests.bench.calibration import NEAR, STATED_MS, measure

log = logging.getLogger(__name__)

SIZES = 3


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_95_percent_of_the_answers_lie_within_5_percent_of_the_planted_limit() -> None:
    points = [point for stated_ms in STATED_MS for point in measure(stated_ms, 1)]
    for point in points:
        log.warning("%s: off by %+.1f %%", point, 100.0 * point.off_by)
    expected = len(STATED_MS) * SIZES
    assert len(points) == expected
    assert sum(abs(point.off_by) <= NEAR for point in points) >= 0.95 * expected

"""Values in sentences beside the limit that they are held against."""

from __future__ import annotations

import pytest

from metrics.judging.indicators import RequestHandlerIdle
from metrics.judging.thresholds import Indicators
from metrics.units import format_beside
from tests.support.evidence import broker, evidence


@pytest.mark.parametrize(
    ("value", "limit", "text"),
    [
        (0.1996, 0.2, "0.1996"),
        (0.198, 0.2, "0.198"),
        (0.05, 0.2, "0.05"),
        (0.2, 0.2, "0.20"),
        (0.19999999, 0.2, "0.20"),
    ],
)
def test_no_value_reads_as_the_limit_that_it_misses(value: float, limit: float, text: str) -> None:
    assert format_beside(value, limit) == text


def test_an_overload_does_not_say_idle_020_below_020() -> None:
    seen = evidence(brokers=(broker(1), broker(2, handler_idle=0.1964)))
    (reason,) = RequestHandlerIdle().reasons(seen, Indicators())
    assert reason.text == "broker 2: request handlers idle 0.196, below 0.20"

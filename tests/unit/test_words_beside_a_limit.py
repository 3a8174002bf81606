"""Values in sentences beside the limit that they are held against."""

from __future__ import annotations

from metrics.judging.indicators import RequestHandlerIdle
from metrics.judging.thresholds import Indicators
from metrics.units import format_beside
from metrics.windows.broker import RequestWindow
from tests.support.evidence import broker, client, evidence, goal, judged, with_one


def test_no_value_reads_as_the_limit_that_it_misses() -> None:
    texts = {0.1996: "0.1996", 0.198: "0.198", 0.05: "0.05", 0.2: "0.20", 0.19999999: "0.20"}
    assert {value: format_beside(value, 0.2) for value in texts} == texts


def test_an_overload_is_not_stated_as_idle_020_below_020() -> None:
    seen = evidence(brokers=(broker(1), broker(2, handler_idle=0.1964)))
    (reason,) = RequestHandlerIdle().reasons(seen, Indicators())
    assert reason.text == "broker 2: request handlers idle 0.196, below 0.20"


def test_a_shortfall_is_not_stated_as_99_below_99() -> None:
    (short,) = judged(client(acked_records=9_899)).reasons
    assert short.text.startswith("98.99% of the offered records were acknowledged in the window, ")
    assert "below 99.0% (" in short.text


def test_a_slow_answer_is_not_stated_as_20_above_20() -> None:
    slow = with_one(produce=RequestWindow(per_s=10.0, total_ms=20.04))
    (reason,) = judged(brokers=slow, thresholds=goal(produce_response_ms_max=20.0)).reasons
    assert "20.04 ms, above 20.0 ms" in reason.text

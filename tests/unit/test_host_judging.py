"""Readings of the generator's hosts, and its lateness, make trials invalid."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from metrics.judging.thresholds import Thresholds
from metrics.judging.verdict import judge
from metrics.trial.client import QuotaWindow
from metrics.trial.evidence import Judgement
from metrics.windows.host import HostWindow, InterfaceWindow
from metrics.windows.use import Resource
from search.model import Observation, Verdict
from tests.support.evidence import HOST, client, evidence, goal, judged, links, rules, with_one
from tests.support.rows import trial

S, O, I = Verdict.SUSTAINED, Verdict.OVERLOADED, Verdict.INVALID  # noqa: E741
SHORT = client(acked_records=9_000)
GENERATOR = replace(HOST, host="g", brokers=(), generates=True, shares_machine=False)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"interfaces": links(dropped=600.0)}, "host g dropped 0.99% of the packets of its"),
        ({"swapped_pages_per_s": 256.0}, "host g moved 256 pages/s to and from swap"),
        ({"cpu_busy": 0.95, "running_threads": 6.0},
         "host g was 95% busy, with 2.0 threads waiting for a core; use more executors"),
    ],
    ids=["drops", "just swaps", "no CPU"],
)  # fmt: skip
def test_trouble_of_a_generator_host_makes_a_shortfall_no_answer(
    changes: dict[str, Any], words: str
) -> None:
    host = replace(GENERATOR, **changes)
    short = judged(SHORT, hosts=(HOST, host))
    assert (short.verdict, rules(short)) == (I, {"generator_limited"})
    assert words in short.reasons[0].text
    late, objective = client(latency_p99_ms=900.0), goal(latency_p99_ms_max=100.0)
    assert judged(late, thresholds=objective, hosts=(host,)).verdict is I
    assert judged(hosts=(host,)).verdict is S, "a sustained load stays sustained"


STOPPED = QuotaWindow("g", 0.2, 40.0)


def slow(
    latency_ms: float, late_ms: float = 0.5, quantile: str = "p99", quota: QuotaWindow | None = None
) -> Judgement:
    """The judgement of a latency by an objective of 100 ms."""
    seen = client(**{f"latency_{quantile}_ms": latency_ms, f"lateness_{quantile}_ms": late_ms})
    objective = goal(**{f"latency_{quantile}_ms_max": 100.0})
    return judged(replace(seen, quota=quota or QuotaWindow()), thresholds=objective)


def test_a_latency_that_the_generators_own_lateness_explains_is_no_overload() -> None:
    for quantile in ("p50", "p95", "p99", "p999"):
        late = slow(120.0, 20.5, quantile)
        assert (late.verdict, rules(late)) == (I, {"generator_limited"})
        assert late.reasons[0].text == (
            f"the generator was the limit: it sent records up to 20.5 ms late at {quantile}, and "
            f"produce latency {quantile} 120.0 ms, above 100.0 ms; use more executors or cores"
        )
        assert slow(120.0, 19.5, quantile).verdict is O, "not all of the excess"
        assert slow(104.0, 9.0, quantile).verdict is O, "a delay that is usual"
        assert slow(120.0, math.nan, quantile).verdict is O
        assert slow(99.0, 90.0, quantile).verdict is S
    seen = client(latency_p99_ms=120.0, lateness_p99_ms=50.0)
    busy, two = with_one(handler_idle=0.1), {"latency_p99_ms_max": 100.0, "latency_p50_ms_max": 1.0}
    assert judged(seen, busy, goal(latency_p99_ms_max=100.0)).verdict is O
    assert judged(seen, thresholds=goal(**two)).verdict is O, "p50 is not explained"


def test_a_latency_that_a_quota_of_the_generator_explains_is_no_overload() -> None:
    stopped = slow(130.0, quota=STOPPED)
    text = stopped.reasons[0].text
    assert stopped.verdict is I
    assert "control group on host g stopped it in 20% of the quota periods for 40 ms" in text
    assert "raise the CPU quota of the executors" in text
    assert slow(141.0, quota=STOPPED).verdict is O, "longer than it was stopped"
    assert slow(130.0, quota=QuotaWindow("g", 0.01, 40.0)).verdict is O
    assert slow(130.0, quantile="p50", quota=STOPPED).verdict is O, "a fifth"
    assert slow(130.0, quota=QuotaWindow("g", 0.0)).verdict is O


def observed(
    *hosts: HostWindow, acked: int = 3_900, unsent: int = 6_000, **one: Any
) -> Observation:
    """The observation of a trial whose generator left records unsent."""
    short = client(acked_records=acked, unsent_own_records=unsent)
    seen = evidence(short, with_one(**one), hosts=hosts)
    judgements = {"default": judge(seen, Thresholds())}
    return replace(trial(), evidence=seen, judgements=judgements).observation("default")


def test_the_search_gets_what_a_generator_offered_and_what_its_limit_was() -> None:
    full = replace(GENERATOR, shares_machine=True, cpu_busy=0.97, cores=2.0)
    seen = observed(full)
    assert seen.verdict is I
    assert seen.offered_share == pytest.approx(0.39)
    assert seen.cause == "the generator was the limit: 1.9 cores of 2 busy"
    cause = observed(replace(full, cpu_busy=0.6)).cause
    assert cause.startswith("the generator was the limit: 6000 of 6100 missing records")
    assert ";" not in cause
    assert observed(full, standstill_s=1.4).offered_share is None, "a broker stood still as well"
    sustained = observed(full, acked=10_000, unsent=0)
    assert (sustained.cause, sustained.offered_share) == ("", None)
    alone = observed(full, acked=10_000, unsent=0, standstill_s=1.4)
    assert alone.cause.startswith("broker 2 paused for 1.4 s or more")


def test_a_machine_shared_with_brokers_is_judged_as_theirs() -> None:
    busy: dict[str, Any] = {"cpu_busy": 0.99, "running_threads": 9.0, "swapped_pages_per_s": 900.0}
    shared = replace(GENERATOR, shares_machine=True, **busy)
    assert judged(SHORT, hosts=(shared,)).verdict is O
    drops = replace(shared, interfaces=links(dropped=600.0, speed_bytes_per_s=None))
    assert judged(SHORT, hosts=(drops,)).verdict is I, "its own end of a link"
    for other in (replace(drops, brokers=(1, 2, 3)), replace(drops, generates=False)):
        assert judged(SHORT, hosts=(other,)).verdict is O


def test_drops_for_the_rate_at_either_end_of_a_link_name_the_link() -> None:
    link = InterfaceWindow("link0", 1e6, 19.9e6, 30_000.0, 0.0, 0.0, 20e6)
    drops = (replace(link, dropped=900.0),)
    generator = replace(GENERATOR, shares_machine=True, interfaces=drops)
    brokers = replace(HOST, interfaces=(replace(link, received_bytes_per_s=17e6),))
    found = judged(SHORT, hosts=(brokers, generator))
    assert (found.verdict, found.limited_by) == (O, Resource.NETWORK)
    for part in ("interface link0 of host g at 160 Mbit/s", "dropped 2.91% of its packets"):
        assert part in found.attribution
    elsewhere = replace(generator, shares_machine=False)
    assert judged(SHORT, hosts=(brokers, elsewhere)).limited_by is None

"""The answer about a message size in at most five lines, the same everywhere."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from syrupy.assertion import SnapshotAssertion

from jobs.config import load
from jobs.console.events import RunFinished
from jobs.console.printing import final_lines
from jobs.runs.results import boundary_of, present_trials
from metrics.reporting.limit_answer import answer_of, caveats_of
from metrics.reporting.report_page import kafka_commands
from metrics.tables.boundary import Boundary, make_boundary
from metrics.traffic.axes import NP
from metrics.trial.trial import Trial
from metrics.windows.use import Resource
from search.line import FinishedPoint
from search.model import Bracket, Change, Done, GaveUp, Interval
from tests.support.report_rows import overloaded, summary_of_sizes, sustained, trial_at
from tests.support.rows import traffic

SUMMARY = summary_of_sizes([1000])
QUIET = replace(
    SUMMARY.boundaries[0], load_low=56.0, load_high=62.4, load_estimate=59.2, latency_p50_ms=3.1,
    latency_p99_ms=12.0, latency_p999_ms=40.0, confirmed_s=30.0, interval_max=0.2,
)  # fmt: skip
CHANGED = "the limit changed from 87 (84 to 90 at 90 %) to 58 (56 to 62.4 at 90 %) producers"
NO_LIMIT: dict[str, Any] = {
    "np_overloaded": None, "load_overloaded": None, "mps_overloaded": None, "load_low": None,
    "load_high": None, "load_estimate": None, "confidence": None, "limited_by": None,
    "overload_reasons": (), "evidence": "",
}  # fmt: skip
IN_MEMORY: dict[str, Any] = {
    "proven_s": 30.0, "proven_bytes": 1.9e9, "proven_on_disk": False, "memory_bytes": 1.6e9,
    "memory_full_s": 95.0,
}  # fmt: skip
WIDE: dict[str, Any] = {"load_low": 40.0}
CASES: dict[str, dict[str, Any]] = {
    "quiet": {},
    "changed": {"changed": (CHANGED,), **IN_MEMORY, **WIDE},
    "in memory": {**IN_MEMORY, **WIDE},
    "not steady": {"steady_note": "the budget of 60 s does not allow a hold of 3 min"},
    "did not last": {"lasted": False, "steady_load": 46.0, "steady_mb_per_s": 11.5},
    "wide": WIDE,
    "lower bound": {**NO_LIMIT, "gave_up": "the generator was the limit: 2 cores of 2 busy"},
    "open": {"gave_up": "the budget is used up"},
    "nothing sustained": {
        "np_sustained": 0, "load_sustained": 0, "mps": 0.0, "mb_per_s": 0.0,
        "mb_per_s_per_broker": 0.0, "load_low": None, "load_high": None, "latency_p50_ms": None,
        "latency_p99_ms": None, "latency_p999_ms": None, "notes": ("63 overloaded the cluster",),
    },
    "along partitions": {"axis": "partitions", "load_sustained": 40, "load_overloaded": 48},
}  # fmt: skip


@pytest.mark.parametrize("changes", CASES.values(), ids=CASES)
def test_the_terminal_shows_five_lines_and_then_why(
    changes: dict[str, Any], snapshot: SnapshotAssertion
) -> None:
    found = replace(QUIET, **changes)
    shown = StringIO()
    console = Console(file=shown, width=100)
    event = RunFinished(replace(SUMMARY, boundaries=(found,)), 300.0)
    for line in final_lines(event):
        console.print(line)
    lines = [line.rstrip() for line in shown.getvalue().splitlines()]
    assert "\n".join(lines) == snapshot
    assert len(answer_of(found).lines) <= 5
    assert answer_of(found).lines[0] in " ".join(shown.getvalue().split())


def test_the_caveats_have_an_order() -> None:
    order = [CASES["changed"], CASES["did not last"], CASES["not steady"], IN_MEMORY, WIDE]
    for place, each in enumerate(order):
        (first, *_), later = caveats_of(replace(QUIET, **each)), order[place + 1 :]
        for other in later:
            assert caveats_of(replace(QUIET, **{**other, **each}))[0] == first
    assert caveats_of(QUIET) == []


BOUND = {
    "disk: broker 1: flushes took 9% of their time (1.0 ms each); x":
        "broker 1: flushes took 9% of the handlers' time",
    ("disk: broker 2: request handlers idle 0.07, and flushes took 87% of their time (0.5 ms each)"
     "; produce took 20.0 ms, 18.0 of it local, 1.5 queued; all 3 overloads were limited by this "
     "resource"):
        "broker 2: flushes took 87% of the handlers' time",
    "CPU: broker 2: request handlers idle 0.10 on a machine 97% busy, of which 2 cores":
        "broker 2: request handlers idle 0.10 on a machine 97% busy",
    ("heap: broker 1: request handlers idle 0.00, and garbage collection stopped all threads for "
     "31% of the time, and at least 90% of the heap was always in use; produce took"):
        "broker 1: garbage collection stopped all threads for 31% of the time",
    "request handlers: broker 3: request handlers idle 0.05 with CPU to spare and no wait":
        "broker 3: request handlers idle 0.05",
    "network: broker 1: Kafka's bytes filled 93% of the 16 Mbit/s interface (15 in, 2 out)":
        "broker 1: Kafka's bytes filled 93% of the 16 Mbit/s interface",
    ("replication: broker 2: followers fell behind: ISR changes or under-replicated partitions in "
     "90% of the samples, and the replicas on broker 3 lag by up to 60 records"):
        "broker 2: ISR changes or under-replicated partitions in 90% of the samples",
    "unknown: the cluster shows no broker metrics": "the cluster shows no broker metrics",
}  # fmt: skip
"""Evidence of the limiting resource → the reading that shows it."""


def test_the_line_has_the_reading_that_shows_the_resource() -> None:
    for evidence, reading in BOUND.items():
        resource = evidence.partition(":")[0]
        limit = replace(QUIET, limited_by=resource, evidence=evidence, notes=("outvoted",))
        shown = resource.replace("unknown", "an unknown resource")
        assert answer_of(limit).bound == f"bound by {shown}: {reading}"
        assert answer_of(limit).why[-1] == "outvoted"
    reasons = ("request_handler_idle: broker 2 idle 0.12, below 0.20", "isr: flapping")
    limit = replace(QUIET, limited_by=None, evidence="", overload_reasons=reasons)
    assert answer_of(limit).bound == "bound by an unknown resource: broker 2 idle 0.12, below 0.20"


@given(st.integers(1, 500), st.integers(1, 50), st.floats(1, 600), st.floats(1, 2))
def test_an_answer_lies_in_its_interval(low: int, more: int, least: float, ratio: float) -> None:
    found = make_boundary(
        Bracket(low, low + more), NP, traffic(1, 1000, 250.0, brokers=3), trials=2,
        interval=Interval(least, least * ratio, least),
    )  # fmt: skip
    assert found.load_low is not None and found.load_high is not None
    assert found.load_low <= found.answer_load <= found.load_high


def test_kafkas_own_tools_offer_the_limit_and_the_overload(snapshot: SnapshotAssertion) -> None:
    assert "\n".join(kafka_commands(QUIET, 3)) == snapshot
    lower = kafka_commands(replace(QUIET, **CASES["lower bound"]), 3)
    assert sum(line.startswith("for") for line in lower) == 1
    assert kafka_commands(replace(QUIET, **CASES["nothing sustained"]), 3) == ()
    assert kafka_commands(replace(QUIET, **CASES["along partitions"]), 3) == ()


# --- a change of the limit --------------------------------------------------------

CHANGE = Change(1, 3, 0.97, Interval(84.0, 90.0, 87.0), Interval(38.0, 46.0, 42.0))
"""Between the second trial and the fourth one."""


def trials_of_a_change() -> list[Trial]:
    """Overloads by the disk before the change, and by the handlers after it."""
    disk, handlers = (overloaded(each) for each in (Resource.DISK, Resource.REQUEST_HANDLERS))
    loads = [(80, sustained()), (90, disk), (60, disk), (43, handlers)] + [(41, sustained())] * 2
    return [
        replace(
            trial_at(number, 1000, load, {"default": judged}),
            started_at_s=1_700_000_000.0 + 60 * number,
            checks=number == 6,
        )
        for number, (load, judged) in enumerate(loads, 1)
    ]


def boundary(result: Done | GaveUp, *overrides: str) -> Boundary:
    trials = trials_of_a_change()
    history = tuple(each.observation("default") for each in trials)
    point = FinishedPoint(1000, result, history, checked=True)
    return boundary_of(point, trials, load("testbed", "demo", "default", overrides), "default", 3)


def test_a_change_is_a_sentence_with_its_size_and_time(snapshot: SnapshotAssertion) -> None:
    interval = Interval(40.5, 43.5, 42.0)
    found = boundary(Done(Bracket(41, 43), 0.9, interval, changed=(CHANGE,)))
    assert found.changed == snapshot
    assert found.trials == 6
    assert found.limited_by == Resource.REQUEST_HANDLERS.value
    assert answer_of(found).caveat == f"caveat: {found.changed[0]}"
    first = replace(CHANGE, last_before=0, since=1)
    one, other = boundary(Done(Bracket(41, 43), 0.9, interval, changed=(first, CHANGE))).changed
    assert "to 42 (38 to 46 at 90 %)" in one, "it keeps its own end"
    assert "to 42 (40.5 to 43.5 at 90 %)" in other
    for changed in ((), (CHANGE,)):
        gave_up = GaveUp(Bracket(41, 43), "the budget is used up", None, changed)
        assert len(boundary(gave_up).changed) == len(changed)
    trials = trials_of_a_change()
    trials.append(replace(trials[-1], number=7, checks=False, steady=True))
    for changed, present in (((CHANGE,), [4, 5, 6, 7]), ((), [1, 2, 3, 4, 5, 6, 7])):
        point = FinishedPoint(1000, Done(Bracket(41, 43), changed=changed), ())
        assert [each.number for each in present_trials(point, trials)] == present


def test_an_answer_without_a_look_for_a_change_states_it() -> None:
    off = "goal.search.check_for_change=false"
    done = Done(Bracket(41, 43))
    note = "the limit was not checked for a change, because search.check_for_change is false"
    assert note in boundary(done, off).notes
    assert note not in boundary(done).notes
    assert note not in boundary(GaveUp(Bracket(41, 43), "used up"), off).notes

"""Findings before any load, from facts alone."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from jobs.checks.finding import (
    Finding,
    Severity,
    checked,
    ok,
    problem,
    problems_of,
    require_ready,
    warning,
)
from jobs.checks.session import driver_address, promised_slots, setting_findings, slot_findings
from jobs.checks.survey import ExecutorFacts, clocks_within, executor_findings
from jobs.spark.session import SETTLED_S, await_slots, cause_in
from metrics.common.errors import ConfigError, GuardStopError
from metrics.trial.client import OFFSET_MAX_S
from metrics.trial.sockets import KernelBuffers

PACKAGES = {"kafka-python": "3.0.12", "crc32c": "2.9"}
DRIVER = ExecutorFacts(
    "driver-host", "driver", PACKAGES, code="c0de", offset_s=0.0, offset_error_s=0.0
)
WELL = ExecutorFacts(
    "host-1", "host-1:7000", PACKAGES, code="c0de", offset_s=0.001, offset_error_s=0.0005
)
BROKERS = {"1": ("kafka-1", 9092), "2": ("kafka-2", 9092)}


def found_of(*executors: ExecutorFacts) -> list[Finding]:
    return executor_findings(executors, DRIVER, BROKERS)


def only_problem(findings: Iterable[Finding]) -> str:
    (one,) = problems_of(findings)
    return one.sentence


def test_every_problem_is_a_line_of_one_error_without_the_warnings() -> None:
    found = [ok("a", "fine"), warning("b", "odd"), problem("c", "bad", "good", "repair it")]
    with pytest.raises(ConfigError) as caught:
        require_ready([*found, problem("d", "worse")])
    assert str(caught.value).splitlines() == ["bad; expected good; repair it", "worse"]
    require_ready(found[:2])


def test_a_redline_error_is_a_problem_and_any_other_error_is_raised() -> None:
    def refuse() -> Iterator[Finding]:
        yield ok("x", "so far")
        raise GuardStopError("one\ntwo")

    assert [each.found for each in checked("x", refuse)] == ["one", "two"]
    with pytest.raises(ZeroDivisionError):
        checked("x", lambda: [ok("x", str(1 // 0))])


def test_settings_that_a_load_does_not_support_are_refused() -> None:
    for name in ("spark.dynamicAllocation.enabled", "spark.speculation"):
        sentence = only_problem(setting_findings({name: "True", "spark.app.name": "x"}))
        assert sentence.startswith(f"{name} is True")
        assert f"--conf {name}=false" in sentence
        assert [each.severity for each in setting_findings({name: "false"})] == [Severity.OK]


def test_settings_promise_slots() -> None:
    cases: list[tuple[str, dict[str, str], int | None]] = [
        ("spark://h:7077", {}, None),
        ("spark://h:7077", {"spark.cores.max": "8"}, 8),
        ("spark://h:7077", {"spark.cores.max": "7", "spark.executor.cores": "2"}, 6),
        ("spark://h:7077", {"spark.cores.max": "8", "spark.task.cpus": "2"}, 4),
        ("spark://h:7077", {"spark.executor.cores": "2"}, None),
        ("yarn", {"spark.executor.instances": "3", "spark.executor.cores": "4"}, 12),
        ("k8s://https://h", {"spark.executor.instances": "3"}, 3),
        ("yarn", {"spark.executor.cores": "4"}, None),
        ("local[4]", {"spark.cores.max": "8"}, None),
    ]
    for master, settings, slots in cases:
        assert promised_slots(settings, master) == slots, settings


def test_missing_slots_are_counted_and_without_any_the_drivers_address_is_named() -> None:
    address = driver_address(
        {"spark.driver.host": "driver.example.com", "spark.driver.port": "7078"}
    )
    few = only_problem(slot_findings(3, 8, 60.2, address))
    assert few.startswith(
        "5 slots are missing: after 60 s the registered executors can run 3 tasks"
    )
    assert "driver.example.com" not in few
    assert only_problem(slot_findings(1, 2, 0.0)).startswith("1 slot is missing")
    assert not problems_of(slot_findings(8, 8, 0.0))
    none = only_problem(slot_findings(0, 8, 60.2, address))
    assert none.startswith("no executor has registered within 60 s")
    assert "connect to the driver at driver.example.com:7078" in none
    assert "spark.driver.bindAddress=0.0.0.0" in none


@pytest.mark.parametrize(
    ("at_s", "wanted", "deadline_s", "count", "waited_s"),
    [
        ({0.0: 0, 3.0: 2, 12.0: 4}, 4, 60.0, 4, 12.0),
        ({0.0: 4}, 4, 60.0, 4, 0.0),
        ({0.0: 2}, 4, 60.0, 2, 60.0),
        # Without a promise, the last newcomer decides.
        ({2.0: 2, 5.0: 4, 30.0: 6}, None, 60.0, 4, 5.0 + SETTLED_S),
        ({}, None, 60.0, 0, 60.0),
        ({0.0: 2}, None, 0.0, 2, 0.0),
    ],
)
def test_slots_that_come_late_are_waited_for(
    at_s: dict[float, int], wanted: int | None, deadline_s: float, count: int, waited_s: float
) -> None:
    now_s = 0.0

    def pause(wait_s: float) -> None:
        nonlocal now_s
        now_s += wait_s

    def here() -> int:
        return max((n for each_s, n in at_s.items() if each_s <= now_s), default=0)

    slots = await_slots(here, wanted, deadline_s, lambda: now_s, pause)
    assert slots.count == count
    assert slots.waited_s == pytest.approx(waited_s, abs=0.3)


def test_executors_like_the_driver_have_no_findings() -> None:
    found = found_of(WELL, replace(WELL, executor="host-1:7001"))
    assert {each.severity for each in found} == {Severity.OK}
    assert [each.check for each in found] == [
        "executors' code",
        "executors' packages",
        "executors' clocks",
        "brokers, from executors",
    ]
    assert found[0].found == "the same code as on the driver, on 2 executors"


def test_a_host_without_a_package_or_with_another_version_is_named() -> None:
    packages: dict[str, str | None] = {**PACKAGES, "crc32c": None}
    errors = {"crc32c": "ModuleNotFoundError: No module named 'crc32c'"}
    bare = replace(WELL, host="host-2", packages=packages, package_errors=errors)
    sentence = only_problem(found_of(WELL, bare, bare))
    assert sentence.startswith("host-2 cannot use the package crc32c (ModuleNotFoundError: No")
    assert "pip install crc32c" in sentence
    other = replace(WELL, host="host-2", packages={**PACKAGES, "kafka-python": "2.0.2"})
    (odd,) = [each for each in found_of(WELL, other) if each.severity is not Severity.OK]
    assert odd.severity is Severity.WARNING
    assert odd.found == "host-2 has kafka-python 2.0.2, and the driver has 3.0.12"


def test_executors_without_the_wheel_or_with_an_older_one_are_named(
    snapshot: SnapshotAssertion,
) -> None:
    trouble = "ModuleNotFoundError: No module named 'jobs'"
    bare = replace(WELL, host="host-2", code=None, trouble=trouble)
    stale = replace(WELL, host="host-3", code="0ld")
    found = problems_of(found_of(WELL, bare, stale))
    assert [each.sentence for each in found] == snapshot


def test_round_trips_and_buffers_are_reported() -> None:
    buffers = KernelBuffers("h", (4_096, 131_072, 6_291_456), (4_096, 16_384, 4_194_304), 1, 2)
    near = replace(WELL, round_trip_ms={"1": 0.02, "2": 0.4}, kernel_buffers=buffers)
    far = replace(WELL, host="host-2", round_trip_ms={"1": 50.2}, kernel_buffers=buffers)
    found = {each.check: each for each in executor_findings([near, far], WELL, {})}
    links = found["links to brokers"]
    assert links.found.startswith(
        "round trips of 0.02 ms (broker 1) to 50.2 ms (broker 1 from host-2); socket buffers on "
        "host-1, host-2: receive up to 6.3 MB if tuned by the kernel"
    )
    assert "links to brokers" not in {each.check for each in executor_findings([WELL], WELL, {})}


def test_unreachable_brokers_are_named_by_host_and_broker() -> None:
    shut = replace(WELL, host="host-2", unreachable={"2": "no answer within 3 s"})
    assert only_problem(found_of(WELL, shut)).startswith(
        "host-2 cannot reach broker 2 at kafka-2:9092 (no answer within 3 s); expected"
    )
    many = [replace(WELL, host=f"h{i}", unreadable=("/ca.pem",)) for i in range(9)]
    assert only_problem(found_of(*many)).startswith("h0, h1, h2, h3 and 5 more cannot read /ca.pem")


def test_clocks_far_apart_are_refused_and_doubtful_ones_are_a_warning() -> None:
    for offset_s, error_s, severity in (
        (0.0, 0.001, Severity.OK),
        (-0.24, 0.001, Severity.OK),
        (0.30, 0.001, Severity.PROBLEM),
        (-0.30, 0.001, Severity.PROBLEM),
        (0.20, 0.1, Severity.WARNING),
        (0.30, 0.1, Severity.WARNING),
        (7.0, 1.0, Severity.PROBLEM),
    ):
        skewed = replace(WELL, host="host-2", offset_s=offset_s, offset_error_s=error_s)
        (clock,) = [each for each in found_of(WELL, skewed) if each.check == "executors' clocks"]
        assert clock.severity is severity
        side = "ahead of" if offset_s > 0 else "behind"
        assert severity is Severity.OK or clock.found.startswith(
            f"host-2's clock is {abs(offset_s):.3f} s {side} the driver's"
        )


def test_an_executor_that_cannot_call_the_driver_is_a_problem() -> None:
    trouble = "TimeoutError: timed out"
    deaf = replace(WELL, offset_s=None, offset_error_s=None, channel_trouble=trouble)
    sentence = only_problem(found_of(deaf))
    assert sentence.startswith("host-1 cannot reach the driver (TimeoutError: timed out)")
    assert "spark.redline.control.port" in sentence
    assert clocks_within([WELL, deaf]) is None


def test_the_environment_states_clocks_in_steps() -> None:
    for offsets_s, words in (
        ((0.0001, -0.049), "0.05 s"),
        ((0.0001, -0.06), "0.1 s"),
        ((OFFSET_MAX_S,), "0.25 s"),
        ((-0.3,), "more than 0.25 s"),
        ((), None),
    ):
        assert clocks_within([replace(WELL, offset_s=each) for each in offsets_s]) == words


def test_the_facts_of_an_executor_are_read_back() -> None:
    yielded: dict[str, Any] = {
        "host": "host-2",
        "executor": "10.0.0.2:7000",
        "packages": {"crc32c": None, "kafka-python": "3.0.12"},
        "unreadable": ["/ca.pem"],
        "kernel_buffers": {"tcp_rmem": [4_096, 131_072, 6_291_456], "rmem_max": [212_992]},
    }
    facts = ExecutorFacts.parse(json.dumps(yielded))
    assert facts.packages == yielded["packages"]
    buffers = facts.kernel_buffers
    assert buffers == KernelBuffers("host-2", (4_096, 131_072, 6_291_456), (), 212_992, None)
    assert (facts.code, facts.trouble, facts.unreachable) == (None, "", {})
    assert facts.unreadable == ("/ca.pem",)


# --- messages of Spark for a failed stage ------------------------------------

BARRIER = (
    "Job aborted due to stage failure: Could not recover from a failed barrier ResultStage. Most "
    "recent failure reason: Stage failed because barrier task ResultTask(0, 1) finished "
    "unsuccessfully.\n"
)
PYTHON = """org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 3386, in main
    process()
PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.10

\tat org.apache.spark.api.python.PythonRunner.handle(PythonRunner.scala:645)
"""


def test_the_telling_line_of_a_java_trace_is_shown() -> None:
    for text, cause in (
        (BARRIER + PYTHON, "PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has"),
        (BARRIER + "java.io.IOException: Cannot run program\n\tat java.X", "java.io.IOException: "),
        (BARRIER + "ExecutorLostFailure (executor 0 exited)", "ExecutorLostFailure (executor 0"),
        ("Job 3 cancelled part of cancelled job group g\n\tat org.X", "Job 3 cancelled part"),
        (BARRIER, "Job aborted due to stage failure"),
    ):
        assert cause_in(text).startswith(cause)
        assert "\n" not in cause_in(text)
    assert not cause_in("")

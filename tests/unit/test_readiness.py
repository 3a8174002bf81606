"""Findings before any load, from facts alone."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from jobs.checks.executors import clocks_within, executor_findings
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
from jobs.checks.survey import ExecutorFacts
from jobs.spark.session import SETTLED_S, Slots, await_slots, cause_in
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


# --- findings ---------------------------------------------------------------


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


# --- settings and slots -----------------------------------------------------


@pytest.mark.parametrize("name", ["spark.dynamicAllocation.enabled", "spark.speculation"])
def test_settings_that_a_load_does_not_support_are_refused(name: str) -> None:
    sentence = only_problem(setting_findings({name: "True", "spark.app.name": "x"}))
    assert sentence.startswith(f"{name} is True")
    assert f"--conf {name}=false" in sentence
    assert [each.severity for each in setting_findings({name: "false"})] == [Severity.OK]


@pytest.mark.parametrize(
    ("master", "settings", "slots"),
    [
        ("spark://h:7077", {}, None),
        ("spark://h:7077", {"spark.cores.max": "8"}, 8),
        ("spark://h:7077", {"spark.cores.max": "7", "spark.executor.cores": "2"}, 6),
        ("spark://h:7077", {"spark.cores.max": "8", "spark.task.cpus": "2"}, 4),
        ("spark://h:7077", {"spark.executor.cores": "2"}, None),
        ("yarn", {"spark.executor.instances": "3", "spark.executor.cores": "4"}, 12),
        ("k8s://https://h", {"spark.executor.instances": "3"}, 3),
        ("yarn", {"spark.executor.cores": "4"}, None),
        ("local[4]", {"spark.cores.max": "8"}, None),
    ],
)
def test_settings_promise_slots(master: str, settings: dict[str, str], slots: int | None) -> None:
    assert promised_slots(settings, master) == slots


def test_missing_slots_are_counted() -> None:
    assert only_problem(slot_findings(3, 8, 60.2)).startswith(
        "5 slots are missing: after 60 s the executors that have registered can run 3 tasks"
    )
    assert only_problem(slot_findings(1, 2, 0.0)).startswith("1 slot is missing")
    assert not problems_of(slot_findings(8, 8, 0.0))


def test_the_drivers_address_is_named_where_no_executor_registers() -> None:
    settings = {"spark.driver.host": "driver.example.com", "spark.driver.port": "7078"}
    sentence = only_problem(slot_findings(0, 8, 60.2, driver_address(settings)))
    assert sentence.startswith("no executor has registered within 60 s")
    assert "connect to the driver at driver.example.com:7078" in sentence
    assert "spark.driver.bindAddress=0.0.0.0" in sentence
    assert "driver.example.com" not in only_problem(
        slot_findings(1, 8, 60.2, driver_address(settings))
    )


class Registering:
    """Slots that come at their times, on a clock of the test."""

    def __init__(self, at_s: dict[float, int]) -> None:
        self.now_s = 0.0
        self._at_s = at_s

    def count(self) -> int:
        return max((n for at_s, n in self._at_s.items() if at_s <= self.now_s), default=0)

    def pause(self, wait_s: float) -> None:
        self.now_s += wait_s

    def awaited(self, wanted: int | None, deadline_s: float = 60.0) -> Slots:
        return await_slots(self.count, wanted, deadline_s, lambda: self.now_s, self.pause)


def test_executors_that_come_late_are_waited_for() -> None:
    slots = Registering({0.0: 0, 3.0: 2, 12.0: 4}).awaited(4)
    assert slots.count == 4
    assert slots.waited_s == pytest.approx(12.0, abs=0.2)


def test_all_that_are_there_already_cost_no_wait() -> None:
    assert Registering({0.0: 4}).awaited(4) == Slots(4, 0.0)


def test_without_a_promise_the_last_newcomer_decides() -> None:
    slots = Registering({2.0: 2, 5.0: 4, 30.0: 6}).awaited(None)
    assert slots.count == 4
    assert slots.waited_s == pytest.approx(5.0 + SETTLED_S, abs=0.3)


def test_the_wait_has_an_end() -> None:
    none = Registering({}).awaited(None)
    assert none.count == 0
    assert none.waited_s == pytest.approx(60.0, abs=0.2)
    assert Registering({0.0: 2}).awaited(4).count == 2
    assert Registering({0.0: 2}).awaited(None, deadline_s=0.0) == Slots(2, 0.0)


# --- executors --------------------------------------------------------------


def test_executors_like_the_driver_have_no_findings() -> None:
    found = found_of(WELL, replace(WELL, executor="host-1:7001"))
    assert {each.severity for each in found} == {Severity.OK}
    assert [each.check for each in found] == [
        "executors' code",
        "executors' packages",
        "executors' clocks",
        "brokers, from executors",
    ]
    assert found[0].found == "the driver's, on 2 executors"


def test_a_host_without_a_package_is_named() -> None:
    packages: dict[str, str | None] = {**PACKAGES, "crc32c": None}
    errors = {"crc32c": "ModuleNotFoundError: No module named 'crc32c'"}
    bare = replace(WELL, host="host-2", packages=packages, package_errors=errors)
    sentence = only_problem(found_of(WELL, bare, bare))
    assert sentence.startswith("host-2 cannot use the package crc32c (ModuleNotFoundError: No")
    assert "pip install crc32c" in sentence


def test_a_package_of_another_version_is_a_warning() -> None:
    other = replace(WELL, host="host-2", packages={**PACKAGES, "kafka-python": "2.0.2"})
    (odd,) = [each for each in found_of(WELL, other) if each.severity is not Severity.OK]
    assert odd.severity is Severity.WARNING
    assert odd.found == "host-2 has kafka-python 2.0.2, and the driver 3.0.12"


def test_executors_without_the_wheel_or_with_an_older_one_are_named(
    snapshot: SnapshotAssertion,
) -> None:
    bare = replace(
        WELL, host="host-2", code=None, trouble="ModuleNotFoundError: No module named 'jobs'"
    )
    stale = replace(WELL, host="host-3", code="0ld")
    first, second = problems_of(found_of(WELL, bare, stale))
    assert "host-2 (ModuleNotFoundError: No module named 'jobs')" in first.found
    assert "--py-files" in first.remedy
    assert second.found.startswith("host-3 ")
    assert [first.sentence, second.sentence] == snapshot


def test_round_trips_and_buffers_are_reported() -> None:
    buffers = KernelBuffers("h", (4_096, 131_072, 6_291_456), (4_096, 16_384, 4_194_304), 1, 2)
    near = replace(WELL, round_trip_ms={"1": 0.02, "2": 0.4}, kernel_buffers=buffers)
    far = replace(WELL, host="host-2", round_trip_ms={"1": 50.2}, kernel_buffers=buffers)
    found = {each.check: each for each in executor_findings([near, far], WELL, {})}
    links = found["links to brokers"]
    assert links.found.startswith(
        "round trips of 0.02 ms (broker 1) to 50.2 ms (broker 1 from host-2); socket buffers on "
        "host-2: receive up to 6.3 MB by tuning"
    )
    assert "links to brokers" not in {each.check for each in executor_findings([WELL], WELL, {})}


def test_unreachable_brokers_are_named_by_host_and_broker() -> None:
    shut = replace(WELL, host="host-2", unreachable={"2": "no answer within 3 s"})
    assert only_problem(found_of(WELL, shut)).startswith(
        "host-2 cannot reach broker 2 at kafka-2:9092 (no answer within 3 s); expected"
    )


def test_many_are_counted_and_not_listed() -> None:
    shut = [replace(WELL, host=f"h{i}", unreadable=("/ca.pem",)) for i in range(9)]
    assert only_problem(found_of(*shut)).startswith("h0, h1, h2, h3 and 5 more cannot read /ca.pem")


@pytest.mark.parametrize(
    ("offset_s", "error_s", "severity"),
    [
        (0.0, 0.001, Severity.OK),
        (-0.24, 0.001, Severity.OK),
        (0.30, 0.001, Severity.PROBLEM),
        (-0.30, 0.001, Severity.PROBLEM),
        (0.20, 0.1, Severity.WARNING),
        (0.30, 0.1, Severity.WARNING),
        (7.0, 1.0, Severity.PROBLEM),
    ],
)
def test_clocks_far_apart_are_refused_and_doubtful_ones_are_a_warning(
    offset_s: float, error_s: float, severity: Severity
) -> None:
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
    def within(*offsets_s: float) -> str | None:
        return clocks_within([replace(WELL, offset_s=each) for each in offsets_s])

    assert within(0.0001, -0.049) == "0.05 s"
    assert within(0.0001, -0.06) == "0.1 s"
    assert within(OFFSET_MAX_S) == "0.25 s"
    assert within(-0.3) == "more than 0.25 s"
    assert within() is None


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


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (BARRIER + PYTHON, "PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has"),
        (BARRIER + "java.io.IOException: Cannot run program\n\tat java.X", "java.io.IOException: "),
        (BARRIER + "ExecutorLostFailure (executor 0 exited)", "ExecutorLostFailure (executor 0"),
        ("Job 3 cancelled part of cancelled job group g\n\tat org.X", "Job 3 cancelled part"),
        (BARRIER, "Job aborted due to stage failure"),
        ("", ""),
    ],
)
def test_the_telling_line_of_a_java_trace_is_shown(text: str, cause: str) -> None:
    assert cause_in(text).startswith(cause)
    assert "\n" not in cause_in(text)
    assert cause or not cause_in(text)

"""Rules on what the executors told: facts in, findings out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from jobs.checks.finding import Finding, ok, problem, warning
from jobs.checks.survey import ExecutorFacts
from jobs.console.text import count_words
from metrics.trial.clock import OFFSET_MAX_S, ClockOffset
from metrics.units import format_ms

BOUNDS_S = (0.05, 0.1, OFFSET_MAX_S)
"""Steps in which the environment of a run tells the clocks [s]: two runs on the same machines
shall not differ by a millisecond."""
NAMED_MAX = 4
"""So many hosts or brokers are named; the rest are counted."""


def executor_findings(
    executors: Sequence[ExecutorFacts],
    driver: ExecutorFacts,
    brokers: Mapping[str, tuple[str, int]],
) -> list[Finding]:
    """What is wrong with the executors, or that nothing is.

    Args:
        brokers: broker id → (host, port), those that had to be reached.
    """
    return [
        *_code(executors, driver),
        *_packages(executors, driver),
        *_files(executors),
        *_clocks(executors),
        *_brokers(executors, brokers),
        *_links(executors),
    ]


def clocks_within(executors: Iterable[ExecutorFacts]) -> str | None:
    """How near all clocks are to the driver's, in steps; None where one is not known."""
    offsets = [each.offset_s for each in executors]
    known = [abs(offset) for offset in offsets if offset is not None]
    if len(known) < len(offsets) or not known:
        return None
    bound = next((each for each in BOUNDS_S if max(known) <= each), None)
    return f"more than {OFFSET_MAX_S:g} s" if bound is None else f"{bound:g} s"


def _code(executors: Sequence[ExecutorFacts], driver: ExecutorFacts) -> list[Finding]:
    check = "executors' code"
    found = []
    for why, hosts in _hosts_by(executors, lambda each: each.trouble).items():
        found.append(
            problem(
                check,
                f"our code does not run on {_some(hosts)} ({why})",
                "kafka-redline's wheel and its packages on every executor",
                "give spark-submit the wheel of make dist with --py-files, and install what "
                "setup.py lists into the executors' Python",
            )
        )
    other = [
        each.host
        for each in executors
        if not each.trouble and driver.code is not None and each.code != driver.code
    ]
    if other:
        found.append(
            problem(
                check,
                f"{_some(other)} would run other code of kafka-redline than the driver has",
                "the same on both",
                "build the wheel anew (make dist) and give spark-submit that one, or remove an "
                "older installation from the executors' Python",
            )
        )
    return found or [ok(check, f"the driver's, on {_count(executors)}")]


def _packages(executors: Sequence[ExecutorFacts], driver: ExecutorFacts) -> list[Finding]:
    check = "executors' packages"
    found = []
    for name, version in driver.packages.items():
        found += _lacking(check, name, executors)
        if version is not None:
            found += _of_other_version(check, name, version, executors)
    return found or [ok(check, ", ".join(f"{n} {v}" for n, v in driver.packages.items()))]


def _lacking(check: str, name: str, executors: Sequence[ExecutorFacts]) -> list[Finding]:
    hosts = [each.host for each in executors if each.packages.get(name) is None]
    if not hosts:
        return []
    errors = (each.package_errors.get(name, "") for each in executors)
    why = next((error for error in errors if error), "not installed")
    return [
        problem(
            check,
            f"{_some(hosts)} cannot use the package {name} ({why})",
            "it on every executor",
            f"install it into the executors' Python (pip install {name})",
        )
    ]


def _of_other_version(
    check: str, name: str, version: str, executors: Sequence[ExecutorFacts]
) -> list[Finding]:
    others = _hosts_by(executors, lambda each: each.packages.get(name) or version)
    return [
        warning(
            check,
            f"{_some(hosts)} has {name} {other}, and the driver {version}",
            "one version, the one that was tested together",
            "install the versions of conf/constraints.txt",
        )
        for other, hosts in others.items()
        if other != version
    ]


def _files(executors: Sequence[ExecutorFacts]) -> list[Finding]:
    lacking: dict[str, list[str]] = defaultdict(list)
    for each in executors:
        for path in each.unreadable:
            lacking[path].append(each.host)
    return [
        problem(
            "executors' files",
            f"{_some(hosts)} cannot read {path}",
            "that file, at that path, on every executor",
            "put it there, or name one that is there in the cluster's or workload's file",
        )
        for path, hosts in lacking.items()
    ]


def _clocks(executors: Sequence[ExecutorFacts]) -> list[Finding]:
    check = "executors' clocks"
    found = []
    for why, hosts in _hosts_by(executors, lambda each: each.line_trouble).items():
        found.append(
            problem(
                check,
                f"{_some(hosts)} cannot reach the driver ({why})",
                "a connection from every executor to the driver, for its orders and its clock",
                "set spark.driver.host to an address that executors can reach, and "
                "spark.redline.control.port to a port that the firewall lets through",
            )
        )
    worst = _worst(executors)
    if worst is None:
        return found
    clock = ClockOffset(worst.offset_s or 0.0, worst.offset_error_s or 0.0)
    text = f"{worst.host}'s clock is {clock.text}"
    remedy = "synchronise the clocks (chronyd, or another NTP client, on every host)"
    if clock.least_s > OFFSET_MAX_S:
        expected = f"at most {OFFSET_MAX_S:g} s, as all tasks start at one moment by their clocks"
        return [*found, problem(check, text, expected, remedy)]
    if abs(clock.offset_s) + clock.error_s > OFFSET_MAX_S:
        expected = f"to see that it is within {OFFSET_MAX_S:g} s; the network is too slow for that"
        return [*found, warning(check, text, expected, remedy)]
    return [*found, ok(check, text)]


def _worst(executors: Sequence[ExecutorFacts]) -> ExecutorFacts | None:
    known = [each for each in executors if each.offset_s is not None]
    return max(known, key=lambda each: abs(each.offset_s or 0.0), default=None)


def _brokers(
    executors: Sequence[ExecutorFacts], brokers: Mapping[str, tuple[str, int]]
) -> list[Finding]:
    check = "brokers, from executors"
    if not brokers:
        return []
    found = []
    for each in executors:
        if each.unreachable:
            told = [
                f"broker {broker} at {brokers[broker][0]}:{brokers[broker][1]} ({why})"
                for broker, why in each.unreachable.items()
            ]
            found.append(
                problem(
                    check,
                    f"{each.host} cannot reach {_some(told)}",
                    "every broker's advertised address to take connections from every executor",
                    "open the network between them, or correct advertised.listeners or name "
                    "resolution there",
                )
            )
    return found or [
        ok(check, f"{count_words(len(brokers), 'broker')} reached from {_count(executors)}")
    ]


def _links(executors: Sequence[ExecutorFacts]) -> list[Finding]:
    """Round trips to the brokers, and what the hosts' kernels let the buffers of sockets be."""
    trips = [
        (ms, broker, each.host)
        for each in executors
        for broker, ms in sorted(each.round_trip_ms.items())
    ]
    if not trips:
        return []
    (least_ms, near, _), (most_ms, far, host) = min(trips), max(trips)
    told = f"round trips of {format_ms(least_ms)} ms (broker {near})"
    if len(trips) > 1:
        told += f" to {format_ms(most_ms)} ms (broker {far} from {host})"
    known = {each.kernel_buffers.text: each.host for each in executors if each.kernel_buffers}
    buffers = [f"socket buffers on {at}: {text}" for text, at in known.items()]
    return [ok("links to brokers", "; ".join([told, *buffers[:NAMED_MAX]]))]


def _hosts_by(
    executors: Sequence[ExecutorFacts], told: Callable[[ExecutorFacts], str]
) -> dict[str, list[str]]:
    hosts: dict[str, list[str]] = defaultdict(list)
    for each in executors:
        if told(each):
            hosts[told(each)].append(each.host)
    return hosts


def _some(names: Iterable[str]) -> str:
    once = list(dict.fromkeys(names))
    more = len(once) - NAMED_MAX
    named = ", ".join(once[:NAMED_MAX])
    return f"{named} and {more} more" if more > 0 else named


def _count(executors: Iterable[ExecutorFacts]) -> str:
    return count_words(len({each.executor for each in executors}), "executor")

"""Rules on the facts of executors: facts in, findings out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from jobs.checks.finding import Finding, ok, problem, warning
from jobs.checks.survey import ExecutorFacts
from metrics.trial.client import OFFSET_MAX_S, ClockOffset
from metrics.units import format_counted, format_ms, format_some

BOUNDS_S = (0.05, 0.1, OFFSET_MAX_S)
"""Steps in which the environment of a run states the clocks [s], as the environments of two runs
on the same machines must not differ by a millisecond."""
NAMED_MAX = 4
"""Largest number of hosts or brokers that a message names; it counts the rest."""


def executor_findings(
    executors: Sequence[ExecutorFacts],
    driver: ExecutorFacts,
    brokers: Mapping[str, tuple[str, int]],
) -> list[Finding]:
    """Findings about the executors.

    Args:
        brokers: broker id → (host, port) of the brokers that executors must reach.
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
    """The step within which all clocks agree with the driver's; None if a clock is unknown."""
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
                f"the code of kafka-redline does not run on {_some(hosts)} ({why})",
                "its wheel and its packages on every executor",
                "give spark-submit the wheel of make dist with --py-files, and install the "
                "packages of setup.py into the executors' Python",
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
                f"{_some(other)} has other code of kafka-redline than the driver",
                "the same code on both",
                "build the wheel again (make dist) and give it to spark-submit, or remove an "
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
            "the package on every executor",
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
            "one version, the tested one",
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
            "the file at that path on every executor",
            "copy it there, or name an existing one in the cluster's or workload's file",
        )
        for path, hosts in lacking.items()
    ]


def _clocks(executors: Sequence[ExecutorFacts]) -> list[Finding]:
    check = "executors' clocks"
    found = []
    for why, hosts in _hosts_by(executors, lambda each: each.channel_trouble).items():
        found.append(
            problem(
                check,
                f"{_some(hosts)} cannot reach the driver ({why})",
                "a connection from every executor to the driver, for its orders and its clock",
                "set spark.driver.host to an address that executors can reach (behind NAT the "
                "outer one, in a pod the name of its headless service) with "
                "spark.driver.bindAddress=0.0.0.0, and spark.redline.control.port to a port that "
                "the firewall, the NAT or the service passes on",
            )
        )
    worst = _worst(executors)
    if worst is None:
        return found
    clock = ClockOffset(worst.offset_s or 0.0, worst.offset_error_s or 0.0)
    text = f"{worst.host}'s clock is {clock.text}"
    remedy = "synchronize the clocks (chronyd, or another NTP client, on every host)"
    if clock.least_s > OFFSET_MAX_S:
        expected = f"at most {OFFSET_MAX_S:g} s, as all tasks start at one moment by their clocks"
        return [*found, problem(check, text, expected, remedy)]
    if abs(clock.offset_s) + clock.error_s > OFFSET_MAX_S:
        expected = (
            f"a proof that it is within {OFFSET_MAX_S:g} s, for which the network is too slow"
        )
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
            reasons = [
                f"broker {broker} at {brokers[broker][0]}:{brokers[broker][1]} ({why})"
                for broker, why in each.unreachable.items()
            ]
            found.append(
                problem(
                    check,
                    f"{each.host} cannot reach {_some(reasons)}",
                    "connections from every executor to every broker's advertised address",
                    "open the network between them, or correct advertised.listeners or name "
                    "resolution there",
                )
            )
    return found or [
        ok(check, f"{format_counted(len(brokers), 'broker')} reached from {_count(executors)}")
    ]


def _links(executors: Sequence[ExecutorFacts]) -> list[Finding]:
    """A finding with the round trips to the brokers and the hosts' limits of socket buffers."""
    trips = [
        (ms, broker, each.host)
        for each in executors
        for broker, ms in sorted(each.round_trip_ms.items())
    ]
    if not trips:
        return []
    (least_ms, near, _), (most_ms, far, host) = min(trips), max(trips)
    range_text = f"round trips of {format_ms(least_ms)} ms (broker {near})"
    if len(trips) > 1:
        range_text += f" to {format_ms(most_ms)} ms (broker {far} from {host})"
    known = {each.kernel_buffers.text: each.host for each in executors if each.kernel_buffers}
    buffers = [f"socket buffers on {at}: {text}" for text, at in known.items()]
    return [ok("links to brokers", "; ".join([range_text, *buffers[:NAMED_MAX]]))]


def _hosts_by(
    executors: Sequence[ExecutorFacts], text_of: Callable[[ExecutorFacts], str]
) -> dict[str, list[str]]:
    """Text → hosts of the executors with that text; executors with an empty text are left out."""
    hosts: dict[str, list[str]] = defaultdict(list)
    for each in executors:
        if text := text_of(each):
            hosts[text].append(each.host)
    return hosts


def _some(names: Iterable[str]) -> str:
    return format_some(dict.fromkeys(names), NAMED_MAX)


def _count(executors: Iterable[ExecutorFacts]) -> str:
    return format_counted(len({each.executor for each in executors}), "executor")

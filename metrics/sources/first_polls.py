"""The first polls of a source, before the first load.

The first polls show how long a poll takes, so the interval between samples can be made long enough.
The polls also show whether each broker's figures come from this broker's process. Behind a load
balancer, a translated address or a service of Kubernetes, one process may answer for several
brokers, or several processes may answer for one broker. The first polls show that a broker does not
have a process of its own:

- One process answers for two nodes if their constant readings are equal, and if no counter falls
  from a poll of one node to the next poll of the other node. The counters of two JVMs differ at
  least by some nanoseconds of waiting time or CPU time.
- Several processes answer for a node if a counter of the node falls between two polls, or if the
  node's uptime grows by more than the time between two polls.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Protocol, runtime_checkable

from metrics.common.errors import ConfigError
from metrics.common.grouping import grouped
from metrics.sources.beans import (
    CONTROLLER_HANDLER_NS,
    EVERY_BEAN,
    HANDLER_IDLE_NS,
    POLL_MS,
    SHARED_HANDLER_IDLE_NS,
    SILENT_MS,
    UPTIME_MS,
    Kind,
)
from metrics.sources.sample import BrokerSample, Timed
from metrics.sources.sampler import Sampled
from metrics.sources.source import (
    SAMPLES_SHARE_MAX,
    MetricsSource,
    named_brokers,
    sample_interval_of,
)

Readings = Mapping[str, float]

CLOCK_ERROR_S = 10.0
"""Largest accepted difference between the increase of an uptime and the time between two polls
[s]."""
_COUNTERS_MIN = 3
"""Minimum number of counters above 0 that must agree before two nodes count as one process."""
_COUNTERS = frozenset(
    {UPTIME_MS}
    | {bean.name for bean in EVERY_BEAN if bean.kind is Kind.COUNTER}
    | {f"{bean.name}_count" for bean in EVERY_BEAN if bean.kind is Kind.HISTOGRAM}
)


def same_process(first: Sequence[Readings], second: Sequence[Readings]) -> bool:
    """Whether the metrics of two nodes come from one process.

    Args:
        first, second: readings of the first node, and readings of the second node; one item for
            each poll. Each poll began after the previous polls of both nodes had ended.
    """
    names = set(first[0]).intersection(*first[1:], *second)
    agreeing = 0
    for name in names:
        ones, others = [each[name] for each in first], [each[name] for each in second]
        if name.partition(":")[0] in _COUNTERS:
            if not (_within(ones, others) and _within(others, ones)):
                return False
            agreeing += min(*ones, *others) > 0
        elif len({*ones}) == len({*others}) == 1 and ones != others:
            return False
    return agreeing >= _COUNTERS_MIN


def _within(counts: Sequence[float], others: Sequence[float]) -> bool:
    """Whether each count of one node is at most the other node's count in the next poll."""
    return all(count <= other for count, other in zip(counts, others[1:], strict=False))


def nodes_of_one_process(rounds: Sequence[Sequence[BrokerSample]]) -> list[tuple[int, ...]]:
    """Groups of nodes whose metrics come from one process.

    Args:
        rounds: the samples of two or more successive polls of all nodes.
    """
    readings = _readings_of_each(rounds)
    by_idle = sorted(readings, key=lambda node: (readings[node][0][_key(readings[node])], node))
    groups: dict[int, list[int]] = {}
    for place, node in enumerate(by_idle):
        group, own = groups.setdefault(node, [node]), readings[node]
        for other in by_idle[place + 1 :]:
            if readings[other][0][_key(readings[other])] > own[1][_key(own)]:
                break  # all further nodes waited even longer
            if other not in groups and same_process(own, readings[other]):
                groups[other] = group
                group.append(other)
    return sorted({tuple(sorted(group)) for group in groups.values() if len(group) > 1})


def _key(polls: Sequence[Readings]) -> str:
    """The name of the reading that shows the handlers' idle time. For a broker that shares its
    meter with a controller, this is the reading of the shared meter.
    """
    return SHARED_HANDLER_IDLE_NS if SHARED_HANDLER_IDLE_NS in polls[0] else HANDLER_IDLE_NS


def _readings_of_each(rounds: Sequence[Sequence[BrokerSample]]) -> dict[int, list[Readings]]:
    """Broker id → its readings in each poll, for the brokers that answered all polls."""
    shown = ((each.broker_id, _read(each.values)) for each in chain.from_iterable(rounds))
    found = grouped(
        (broker, values)
        for broker, values in shown
        if HANDLER_IDLE_NS in values or SHARED_HANDLER_IDLE_NS in values
    )
    return {node: polls for node, polls in found.items() if len(polls) == len(rounds) > 1}


def _read(values: Readings) -> Readings:
    """The readings that come from the node, without the readings that kafka-redline computes."""
    derived = {POLL_MS, SILENT_MS, CONTROLLER_HANDLER_NS}
    # A count that is computed from rates has further readings, such as `ticked_s:COUNT`.
    derived |= {name.partition(":")[2] for name in values}
    if CONTROLLER_HANDLER_NS in values:
        derived.add(HANDLER_IDLE_NS)
    return {name: value for name, value in values.items() if name not in derived}


def other_process(before: BrokerSample, after: BrokerSample) -> str | None:
    """The reason why two successive samples come from two processes, or None if one process can
    explain both samples.
    """
    old_ms, new_ms = before.values.get(UPTIME_MS), after.values.get(UPTIME_MS)
    passed_s = after.at_s - before.at_s
    if old_ms is not None and new_ms is not None:
        grown_s = (new_ms - old_ms) / 1e3
        if grown_s > passed_s + CLOCK_ERROR_S:
            return f"its uptime grew by {grown_s:.0f} s within {passed_s:.1f} s"
        if grown_s < 0 and new_ms / 1e3 > passed_s + CLOCK_ERROR_S:
            return f"its uptime fell from {old_ms / 1e3:.0f} s to {new_ms / 1e3:.0f} s"
    return None


def fallen_counter(before: BrokerSample, after: BrokerSample) -> str | None:
    """A text with the first counter that fell between two samples, or None if no counter fell."""
    new_values = _read(after.values)
    for name, old in _read(before.values).items():
        new = new_values.get(name)
        if new is not None and new < old and name in _COUNTERS:
            return f"{name} fell from {old:.0f} to {new:.0f}"
    return None


def changes_of_process(rounds: Sequence[Sequence[BrokerSample]]) -> Iterator[tuple[int, str]]:
    """Pairs (node id, reason) of the nodes for which several processes answered."""
    answers = (each for each in chain.from_iterable(rounds) if each.error is None)
    for node, polls in grouped((each.broker_id, each) for each in answers).items():
        for before, after in pairwise(polls):
            reason = other_process(before, after) or fallen_counter(before, after)
            if reason is not None:
                yield node, reason
                break


_JITTER = 1.01
"""An interval between scrapes is accepted up to the longest allowed interval multiplied by this
value [ratio]. The value is above 1, because the times of scrapes are not exact."""
POLLS = 3
"""Number of polls before the first load. The duration of the fastest poll counts, because other
processes may delay a poll."""
MARGIN = 1.25
"""Minimum interval between two samples, as a multiple of the duration of a poll [ratio]."""
_STEP_S = 0.05

_REMEDY = (
    "set a separate address for each broker in jmx.endpoints or metrics.prometheus.endpoints of "
    "the cluster's file"
)


@runtime_checkable
class Reconnecting(Protocol):
    """A source that can take its next sample over new connections."""

    def reconnect(self) -> None:
        """Close the connections. The next sample opens new connections."""
        ...


@dataclass(frozen=True)
class FirstPolls:
    """The first polls of the brokers' metrics, and the first polls of the brokers' hosts.

    Attributes:
        rounds: one list of the brokers' samples for each poll.
        nodes_s, hosts_s: duration of each poll of the brokers' metrics [s], and duration of each
            poll of the hosts [s].
        interval_s: time between two samples if another program takes the samples [s]. See
            `NodeInfo`.
        spared_s: minimum time between two samples of brokers with many partitions [s]. See
            `NodeInfo`.
    """

    rounds: Sequence[Sequence[BrokerSample]] = ()
    nodes_s: Sequence[float] = field(default=(0.0,))
    hosts_s: Sequence[float] = field(default=(0.0,))
    interval_s: float = 0.0
    spared_s: float = 0.0

    @property
    def poll_s(self) -> float:
        """The duration of the fastest poll of the brokers' metrics, or of the fastest poll of the
        hosts, whichever is longer [s].
        """
        return max(min(self.nodes_s), min(self.hosts_s))

    @property
    def slower(self) -> str:
        """The source whose fastest poll is slower, as text: `the brokers' hosts` or
        `the brokers' metrics`.
        """
        is_host = min(self.hosts_s) > min(self.nodes_s)
        return "the brokers' hosts" if is_host else "the brokers' metrics"


def take_first_polls(
    source: MetricsSource,
    hosts: Sampled[Timed] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> FirstPolls:
    """Poll an open source `POLLS` times. All polls after the first use new connections.

    If another program takes the source's samples, the source is polled once, and the duration of
    this poll counts as 0.

    Args:
        source: the open source of the brokers' metrics.
        hosts: the source of the hosts' metrics, which is polled only if it is `Reconnecting`.
        clock: monotonic clock [s].

    Raises:
        ConfigError: a broker answers no poll, one process answers for several brokers, or several
            processes answer for one broker.
    """
    rounds: list[list[BrokerSample]] = []
    nodes_s: list[float] = []
    hosts_s: list[float] = []
    own_s = sample_interval_of(source, 0.0)
    for each in range(1 if own_s else POLLS):
        if each > 0 and isinstance(source, Reconnecting):
            source.reconnect()
        began_s = clock()
        rounds.append(source.sample_all())
        nodes_s.append(clock() - began_s)
        if isinstance(hosts, Reconnecting):
            hosts.reconnect()
            began_s = clock()
            hosts.sample_all()
            hosts_s.append(clock() - began_s)
    _require_answers(rounds, nodes_s)
    _require_own_figures(rounds)
    spared_s = max((each.spared_s for each in source.nodes.values()), default=0.0)
    return FirstPolls(rounds, (0.0,) if own_s else nodes_s, hosts_s or (0.0,), own_s, spared_s)


def _require_answers(rounds: Sequence[Sequence[BrokerSample]], took_s: Sequence[float]) -> None:
    """Raise a ConfigError if a broker answered no poll."""
    answered = {each.broker_id for samples in rounds for each in samples if each.error is None}
    for each in rounds[-1]:
        if each.broker_id not in answered:
            raise ConfigError(
                f"broker {each.broker_id} gave no sample in {len(rounds)} successive polls of "
                f"at least {min(took_s):.1f} s each: {each.error}; expected an answer within the "
                f"deadline; check the broker's log and the metrics section of the cluster's file, "
                f"or run the driver closer to the brokers"
            )


def _require_own_figures(rounds: Sequence[Sequence[BrokerSample]]) -> None:
    for node, reason in changes_of_process(rounds):
        raise ConfigError(
            f"several processes answer for broker {node}: from one poll to the next {reason}; "
            f"expected one process at its address, and no load balancer or service of Kubernetes "
            f"that chooses a process at each connection; {_REMEDY}"
        )
    for group in nodes_of_one_process(rounds):
        raise ConfigError(
            f"{named_brokers(group)} show the same figures in {len(rounds)} successive polls, so "
            f"one process answers for all of them; expected different figures; {_REMEDY}"
        )


def least_interval_s(polls: FirstPolls, measure_s: float, samples_min: int) -> float:
    """The shortest possible interval between two samples of the sources [s].

    Args:
        polls: the first polls.
        measure_s: length of a window [s].
        samples_min: minimum number of samples in a window.

    Raises:
        ConfigError: a window is too short for `samples_min` samples.
    """
    kept_s, most_s = _rounded_up(MARGIN * polls.poll_s), measure_s / samples_min
    if polls.interval_s > _JITTER * most_s:
        raise ConfigError(
            f"the Prometheus server scrapes the brokers every {polls.interval_s:g} s, so a window "
            f"of workload.trial.measure_s {measure_s:g} s has {int(measure_s / polls.interval_s)} "
            f"scrapes; expected {samples_min} or more; set workload.trial.measure_s to "
            f"{math.ceil(samples_min * polls.interval_s)} or more, or shorten the server's scrape "
            f"interval"
        )
    if polls.poll_s > most_s:
        raise ConfigError(
            f"a poll of {polls.slower} takes {polls.poll_s:.2f} s, and a window of "
            f"workload.trial.measure_s {measure_s:g} s needs {samples_min} samples; expected polls "
            f"of {most_s:.3g} s or less; set workload.trial.sample_interval_s to {kept_s:g} or "
            f"more and workload.trial.measure_s to {math.ceil(samples_min * kept_s)} or more, or "
            f"run the driver closer to the brokers"
        )
    return max(min(max(kept_s, _rounded_up(polls.spared_s)), most_s), polls.interval_s)


def _rounded_up(duration_s: float) -> float:
    return round(math.ceil(duration_s / _STEP_S - 1e-9) * _STEP_S, 3)


def slower_sampling(polls: FirstPolls, interval_s: float, least_s: float) -> tuple[str, ...]:
    """One sentence if the interval between samples must be longer than configured. The tuple is
    empty if the configured interval is long enough.

    Args:
        polls: the first polls.
        interval_s: the configured interval [s].
        least_s: the shortest possible interval [s].
    """
    if least_s <= interval_s:
        return ()
    if least_s == polls.interval_s:
        sentence = (
            f"the Prometheus server scrapes the brokers every {least_s:g} s, so samples are taken "
            f"at this interval instead of every {interval_s:g} s "
            f"(workload.trial.sample_interval_s); shorter events do not show"
        )
    elif least_s > _rounded_up(MARGIN * polls.poll_s):
        sentence = (
            f"the brokers have so many partitions that samples cost them CPU time: samples are "
            f"taken every {least_s:g} s instead of every {interval_s:g} s "
            f"(workload.trial.sample_interval_s)"
        )
        share = SAMPLES_SHARE_MAX * polls.spared_s / least_s
        if share > 2 * SAMPLES_SHARE_MAX:
            sentence += (
                f", which still takes about {share:.0%} of a core of a broker; a longer window "
                f"(workload.trial.measure_s) needs fewer samples per second"
            )
    else:
        sentence = (
            f"a poll of {polls.slower} takes {polls.poll_s:.2f} s, too long for "
            f"workload.trial.sample_interval_s {interval_s:g}: samples are taken every "
            f"{least_s:g} s; set sample_interval_s to {least_s:g} or more, or run the driver "
            f"closer to the brokers"
        )
    return (sentence,)

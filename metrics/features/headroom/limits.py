"""The use of each resource in production and at the limit of a run.

The use of a resource is modeled as a line over the load. The line has a constant part, and a part
that grows with the load.

The use of handlers, threads and CPU, and the number of bytes, grow in proportion to the requests.
An idle broker also uses a little of each resource, for fetches of followers and for heartbeats. A
few trials near the limit cannot show the constant part of the use. So this part has a prior
distribution: it is near 0, and at most some hundredths of the use at the limit.

If the metrics of production show the size of a resource, the use is stated as a share of this size.
The use of the disk and of the network is also stated as a rate [B/s]. If the use is a rate, the
resource is exhausted at the rate that a run measured at its limit. If the use is a share, the
resource is exhausted at a threshold from the goal or from `metrics.judging.nearness`. The use in
production comes from one window, and the scatter of the use comes from shorter parts of this
window.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from metrics.common.errors import NoConclusionError
from metrics.judging.nearness import (
    CPU_SATURATED,
    DISK_BUSY_HIGH,
    LINK_SHARE_HIGH,
    NETWORK_IDLE_LOW,
)
from metrics.judging.thresholds import Indicators
from metrics.planning.load_needs import stored_bytes
from metrics.planning.provisioning import on_any_day
from metrics.reporting.summary import chosen_goal
from metrics.sources.hosts.host_sample import HostSample
from metrics.sources.sample import BrokerSample
from metrics.tables.boundary import Boundary
from metrics.traffic.axes import MESSAGE_BYTES
from metrics.trial.trial import ALL_BROKERS, Trial
from metrics.units import format_size
from metrics.windows.broker import BrokerWindow, broker_windows
from metrics.windows.host import HostWindow, host_windows
from metrics.windows.use import (
    Resource,
    cpu_share,
    link_share,
    network_in,
    network_out,
    produce_throttle_ms,
)
from search.model import Verdict

RATIO, BYTES_PER_S = "ratio", "B/s"

SHARES_APART = 0.05
"""If the summed CPU use of a machine's brokers exceeds the machine's own reading by more than this
value, the brokers run on several machines [ratio]."""

Key = tuple[Resource, str]
"""A resource and the unit of its use, `ratio` or `B/s`."""


@dataclass(frozen=True)
class ResourceLoad:
    """The use of one resource by the traffic of one broker.

    Attributes:
        resource: the resource.
        unit: unit of the use, `ratio` or `B/s`.
        used: the use that grows with the traffic [unit].
        most: the use at which the resource is exhausted, minus the use by other programs [unit];
            None if the use is a rate, whose highest value only a run can measure.
    """

    resource: Resource
    unit: str
    used: float
    most: float | None = None

    @property
    def key(self) -> Key:
        """The resource and the unit of its use."""
        return self.resource, self.unit


def loads_of(
    brokers: Sequence[BrokerWindow],
    hosts: Sequence[HostWindow],
    limits: Indicators,
    machines: Mapping[int, str] | None = None,
) -> dict[int, dict[Key, ResourceLoad]]:
    """Broker id → the use of each resource that the broker's window shows.

    Args:
        brokers: the windows of all brokers.
        hosts: the windows of the hosts on which the brokers run.
        limits: the goal's thresholds for an overload, such as the minimum idle share of handlers.
        machines: broker id → name of its machine; by default each broker has its own machine.
    """
    found = {}
    named = machines or {}
    for window in brokers:
        own = [host for host in hosts if window.broker_id in host.brokers]
        machine = named.get(window.broker_id)
        same = [each for each in brokers if machine and named.get(each.broker_id) == machine]
        loads = (
            *_threads(window, limits),
            *_cpu(window, same or [window], own),
            *_disk(window, own),
            *_network(window, own),
            *_quota(window),
        )
        found[window.broker_id] = {each.key: each for each in loads}
    return found


def _threads(window: BrokerWindow, limits: Indicators) -> Iterator[ResourceLoad]:
    if window.handler_idle is not None:
        most = 1.0 - limits.request_handler_idle_min
        yield _share(Resource.REQUEST_HANDLERS, 1.0 - window.handler_idle, most)
    if window.network_idle is not None:
        most = 1.0 - (limits.network_idle_min or NETWORK_IDLE_LOW)
        yield _share(Resource.NETWORK_THREADS, 1.0 - window.network_idle, most)


def _cpu(
    window: BrokerWindow, beside: Sequence[BrokerWindow], hosts: Sequence[HostWindow]
) -> Iterator[ResourceLoad]:
    """The CPU use of the brokers. The CPU use of the machine's other programs is assumed not to
    grow with the traffic.
    """
    shares = [each.cpu_process_share for each in beside]
    whole = max(
        (each for each in (cpu_share(window), *(host.cpu_busy for host in hosts)) if each),
        default=None,
    )
    if whole is None:
        return
    if None in shares:
        yield _share(Resource.CPU, whole, CPU_SATURATED)
        return
    own = sum(filter(None, shares))
    if window.cpu_machine_share is not None and own > whole + SHARES_APART:
        own = window.cpu_process_share or 0.0  # brokers of several machines have one address
    yield _share(Resource.CPU, own, CPU_SATURATED - max(0.0, whole - own))


def _disk(window: BrokerWindow, hosts: Sequence[HostWindow]) -> Iterator[ResourceLoad]:
    busy = [disk.busy_share for host in hosts for disk in host.disks if disk.busy_share is not None]
    used = max(busy, default=window.flush_threads)
    if used is not None:
        yield _share(Resource.DISK, min(1.0, used), DISK_BUSY_HIGH)
    if window.bytes_in_per_s is not None:
        taken = window.bytes_in_per_s + (window.replication_bytes_in_per_s or 0.0)
        yield ResourceLoad(Resource.DISK, BYTES_PER_S, taken)


def _network(window: BrokerWindow, hosts: Sequence[HostWindow]) -> Iterator[ResourceLoad]:
    shares = [
        link.used_share for host in hosts for link in host.interfaces if link.used_share is not None
    ]
    used = max(shares, default=link_share(window))
    if used is not None:
        yield _share(Resource.NETWORK, used, LINK_SHARE_HIGH)
    rates = [rate for rate in (network_in(window), network_out(window)) if rate is not None]
    if rates:
        yield ResourceLoad(Resource.NETWORK, BYTES_PER_S, max(rates))


def _quota(window: BrokerWindow) -> Iterator[ResourceLoad]:
    """The use of a quota is visible only while the quota throttles, and then the quota is fully
    used.
    """
    if produce_throttle_ms(window):
        yield _share(Resource.QUOTA, 1.0, 1.0)


def _share(resource: Resource, used: float, most: float) -> ResourceLoad:
    return ResourceLoad(resource, RATIO, max(0.0, used), max(0.0, most))


SLICES = 6
"""Maximum number of parts into which the window of production is divided. The scatter of the use
between these parts shows the error of the mean use in the whole window.
"""
IDLE_BYTES_PER_S = 1_000.0
"""A cluster is idle if the input of all its brokers is below this rate [B/s]."""


@dataclass(frozen=True)
class Windows:
    """The windows of all brokers and all hosts for the same time."""

    brokers: tuple[BrokerWindow, ...]
    hosts: tuple[HostWindow, ...] = ()


@dataclass(frozen=True)
class Today:
    """The traffic of production.

    Attributes:
        source: source of the metrics.
        start_s, end_s: start and end of the window of production [s since the epoch].
        whole: the readings from `start_s` to `end_s`.
        parts: the readings for each of several equal parts of the time from `start_s` to `end_s`.
        machines: broker id → name of its machine, if the name is known.
        note: a sentence on how the window was chosen; empty if the cluster was watched live.
    """

    source: str
    start_s: float
    end_s: float
    whole: Windows
    parts: Sequence[Windows] = ()
    machines: Mapping[int, str] = field(default_factory=dict)
    note: str = ""

    @property
    def bytes_in_per_s(self) -> float | None:
        """Bytes per second from producers to all brokers [B/s]; None if a broker does not report
        its rate.
        """
        rates = [each.bytes_in_per_s for each in self.whole.brokers]
        return None if None in rates or not rates else sum(filter(None, rates))

    @property
    def is_idle(self) -> bool:
        """Whether producers write less than `IDLE_BYTES_PER_S`."""
        taken = self.bytes_in_per_s
        return taken is not None and taken < IDLE_BYTES_PER_S

    def loads(self, limits: Indicators) -> dict[int, dict[Key, ResourceLoad]]:
        """Broker id → the use of each of its resources in the whole window."""
        return loads_of(self.whole.brokers, self.whole.hosts, limits, self.machines)

    def parts_of(self, limits: Indicators) -> list[dict[int, dict[Key, ResourceLoad]]]:
        """For each part of the window: broker id → the use of each of its resources."""
        return [loads_of(each.brokers, each.hosts, limits, self.machines) for each in self.parts]


def today_of(
    source: str,
    samples: Sequence[BrokerSample],
    hosts: Sequence[HostSample],
    brokers: Sequence[int],
    brokers_by_host: Mapping[str, Sequence[int]],
    span: tuple[float, float, float],
    link_mbit_per_s: float | None = None,
    machines: Mapping[int, str] | None = None,
) -> Today:
    """Today's traffic, computed from samples of one time span.

    Args:
        source: source of the metrics.
        samples, hosts: samples of brokers and of hosts in the time span.
        brokers: ids of the brokers.
        brokers_by_host: host → ids of the brokers on this host.
        span: start and end of the time span [s since the epoch], and the time between two samples
            [s].
        link_mbit_per_s: stated speed of the brokers' network interfaces [Mbit/s]; None if not
            stated.
        machines: broker id → name of its machine.
    """
    start_s, end_s, interval_s = span

    def between(from_s: float, to_s: float) -> Windows:
        return Windows(
            broker_windows(samples, brokers, from_s, to_s, interval_s, link_mbit_per_s),
            host_windows(hosts, from_s, to_s, brokers_by_host),
        )

    count = max(1, min(SLICES, int((end_s - start_s) / (3 * interval_s))))
    step_s = (end_s - start_s) / count
    parts = [between(start_s + n * step_s, start_s + (n + 1) * step_s) for n in range(count)]
    return Today(
        source, start_s, end_s, between(start_s, end_s),
        parts if count > 1 else (), machines or {},
    )  # fmt: skip


REST_PRIOR = 0.05
"""Prior standard deviation of the use without load, relative to the use at the limit [ratio]."""
NOISE_LEAST = 0.01
"""Minimum standard deviation of a reading, relative to the use at the limit [ratio]."""


@dataclass(frozen=True)
class Line:
    """The use of a resource as a line over the load.

    Attributes:
        at_rest: use without load.
        at_load: use at the reference load of the fit.
        rest_error, load_error: standard deviations of `at_rest` and of `at_load`.
    """

    at_rest: float
    at_load: float
    rest_error: float
    load_error: float


def fit_line(points: Sequence[tuple[float, float]], load: float) -> Line | None:
    """The fitted line through pairs (load, use); None if no window has a load.

    Args:
        points: load and use of each window.
        load: reference load, at which `at_load` is computed, in the unit of the points.
    """
    known = [(each / load, use) for each, use in points if each > 0]
    if not known or load <= 0:
        return None
    # The reading nearest to the reference load determines the scale of the prior and the noise.
    nearest = min(known, key=lambda each: abs(each[0] - 1.0))
    scale = nearest[1] / nearest[0]
    if scale <= 0:
        return Line(0.0, 0.0, 0.0, 0.0)
    noise = NOISE_LEAST * scale
    line = _fitted(known, noise, REST_PRIOR * scale)
    if len(known) > 2:
        rest, slope = line.at_rest, line.at_load - line.at_rest
        off = [use - rest - slope * at for at, use in known]
        noise = max(noise, math.sqrt(sum(each * each for each in off) / (len(known) - 2)))
        line = _fitted(known, noise, REST_PRIOR * scale)
    return line


def _fitted(points: Sequence[tuple[float, float]], noise: float, prior: float) -> Line:
    """The posterior line: intercept a ~ N(0, prior²), free slope b, use = a + b·load."""
    count, by_load = len(points), sum(at for at, _ in points)
    squares = sum(at * at for at, _ in points)
    uses, products = sum(use for _, use in points), sum(at * use for at, use in points)
    held = count + (noise / prior) ** 2
    whole = held * squares - by_load * by_load
    rest = (squares * uses - by_load * products) / whole
    slope = (held * products - by_load * uses) / whole
    if rest < 0:
        rest, slope = 0.0, products / squares
    variance = noise * noise / whole
    at_load = variance * (squares + held - 2 * by_load)
    return Line(rest, rest + slope, math.sqrt(variance * squares), math.sqrt(max(0.0, at_load)))


OVERLOADS_TO = 1.1
"""Highest load of an overloaded trial whose readings are used, relative to the limit [ratio]. At a
load above this value, the use of a resource no longer grows with the load.
"""
BEND, BEND_OF_DISKS = 0.05, 0.4
"""Error that arises because the use is not an exact linear function of the load (`Capacity.bend`).
`BEND_OF_DISKS` is the value for brokers that a disk limits. If appends wait for a disk, requests
contain more records near the limit, so this error is larger. Recorded loads of real brokers gave
both values (tests/data/ladders).
"""
_OF_BYTES = (Resource.DISK, Resource.NETWORK)
"""Resources whose use may be a rate of bytes, for brokers that do not report a used share."""


@dataclass(frozen=True)
class TrafficLimit:
    """The traffic of one broker at a measured limit.

    Attributes:
        stored_bytes: bytes of record batches for each message [B].
        bytes_per_s: bytes of record batches from producers [B/s].
        requests_per_s: produce requests per second [1/s]; None if the brokers do not report them.
    """

    stored_bytes: float
    bytes_per_s: float
    requests_per_s: float | None = None

    @property
    def messages_per_s(self) -> float:
        """Messages from producers per second [1/s]."""
        return self.bytes_per_s / self.stored_bytes


@dataclass(frozen=True)
class RunLimit:
    """The limit of a run at one message size, with the readings that headroom needs.

    Attributes:
        message_bytes: size of a message [B].
        low, high: ends of the range in which the limit lies on 90 % of days, divided by the best
            estimate of the limit [ratio].
        limited_by: the limiting resource; None if unknown.
        lines: broker id → resource → fitted line of the resource's use over the load;
            `Line.at_load` is the use at the limit.
        traffic: the mean traffic of a broker at the limit; None if the brokers do not report their
            traffic.
        is_doubtful: whether the interval of the limit is wider than the goal accepts.
    """

    message_bytes: int
    low: float
    high: float
    limited_by: Resource | None
    lines: Mapping[int, Mapping[Key, Line]] = field(default_factory=dict)
    traffic: TrafficLimit | None = None
    is_doubtful: bool = False

    def line_of(self, broker_id: int, key: Key) -> Line | None:
        """The fitted line of a resource's use over the load, for one broker.

        If the run did not have this broker, the result is the mean line of the run's brokers. The
        result is None if no line is known for this resource.
        """
        own = self.lines.get(broker_id)
        if own is not None:
            return own.get(key)
        others = [each[key] for each in self.lines.values() if key in each]
        if not others:
            return None
        return Line(
            fmean(each.at_rest for each in others),
            fmean(each.at_load for each in others),
            max(each.rest_error for each in others),
            max(each.load_error for each in others),
        )

    @property
    def bend(self) -> float:
        """The error that arises because the use is not an exact linear function of the load, see
        `Capacity.bend`.
        """
        return BEND_OF_DISKS if self.limited_by is Resource.DISK else BEND

    @property
    def binding(self) -> Key | None:
        """The limiting resource, and the unit in which the run measured its use; None
        if unknown.
        """
        if self.limited_by is None:
            return None
        units = (RATIO, BYTES_PER_S) if self.limited_by in _OF_BYTES else (RATIO,)
        keys = [(self.limited_by, unit) for unit in units]
        return next((key for key in keys if any(key in each for each in self.lines.values())), None)


def answers_of(points: Sequence[Boundary], run_id: str, goal: str | None) -> list[Boundary]:
    """The limits of a run that headroom can use, for one goal.

    Raises:
        ConfigError: the run has several goals, and `goal` names none of them.
        NoConclusionError: the run has no limit along an axis that increases the payload.
    """
    chosen = chosen_goal(points, run_id, goal) if points else goal
    found = [
        each
        for each in points
        if each.goal == chosen
        and each.along.grows_payload
        and each.along is not MESSAGE_BYTES
        and each.state == ALL_BROKERS
        and each.gave_up is None
        and each.mb_per_s > 0
    ]
    if not found:
        raise NoConclusionError(
            f"run {run_id} has no closed bracket, so its limit is unknown; "
            "expected a limit that was measured with all brokers; finish the run with redline "
            "find-limit --resume, or omit --run for an estimate"
        )
    return found


def run_limit(
    point: Boundary,
    trials: Sequence[Trial],
    limits: Indicators,
    machines: Mapping[int, str] | None = None,
) -> RunLimit:
    """The limit of a boundary point, with the brokers' use of resources in its trials.

    Args:
        trials: all trials of the run.
        limits: the limits of the goal.
        machines: broker id → name of its machine.

    Raises:
        NoConclusionError: the point's trials show no use of any resource.
    """
    sustained, overloaded = point.loads
    estimate = float(point.load_estimate or sustained)
    low = point.load_low if point.load_low is not None else sustained
    high = point.load_high if point.load_high is not None else overloaded or sustained
    named = next((each for each in Resource if each.value == point.limited_by), None)
    steady = point.steady_load  # the steady limit, if it is below the burst limit
    if steady and steady < sustained:
        estimate = low = high = float(steady)
        named = Resource.DISK
    near = [each for each in trials if _counts(each, point, estimate)]
    uses: dict[int, dict[Key, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    for trial in near:
        found = loads_of(trial.evidence.brokers, trial.evidence.hosts, limits, machines)
        for broker_id, loads in found.items():
            for key, load in loads.items():
                uses[broker_id][key].append((trial.load + others_of(trial), load.used))
    beside = fmean(map(others_of, near)) if near else 0.0
    lines = {
        broker_id: {
            key: line
            for key, points in each.items()
            if (line := fit_line(points, estimate + beside)) is not None and line.at_load > 0
        }
        for broker_id, each in uses.items()
    }
    if not any(lines.values()):
        raise NoConclusionError(
            f"the trials at {format_size(point.message_bytes)} have no readings of the brokers' "
            "resources; expected a run with the brokers' metrics; configure jmx or metrics in the "
            "cluster's file, and measure again"
        )
    below = max(1.0, (estimate + beside) / (low + beside))
    above = max(1.0, (high + beside) / (estimate + beside))
    return RunLimit(
        point.message_bytes,
        1.0 / on_any_day(below),
        on_any_day(above),
        None if named is Resource.UNKNOWN else named,
        lines,
        _traffic_at(near, estimate),
        point.doubtful,
    )


def others_of(trial: Trial) -> float:
    """The load of other producers during a trial, in the unit of the trial's load."""
    others = trial.evidence.others
    if others is None or not others.is_notable or not others.bytes_per_s:
        return 0.0
    own = others.all_bytes_per_s - others.bytes_per_s
    return trial.load * others.bytes_per_s / own if own > 0 else 0.0


def _counts(trial: Trial, point: Boundary, estimate: float) -> bool:
    """Whether a trial can be used for a boundary point; the load of the trial must be at most
    slightly above the limit.
    """
    judged = trial.judgements.get(point.goal)
    if judged is None or judged.verdict is Verdict.INVALID or trial.state != ALL_BROKERS:
        return False
    if trial.point_message_bytes != point.message_bytes or trial.pattern.axis != point.axis:
        return False
    return judged.verdict is Verdict.SUSTAINED or trial.load <= OVERLOADS_TO * estimate


def _traffic_at(trials: Sequence[Trial], estimate: float) -> TrafficLimit | None:
    """The mean traffic of a broker at the limit, from the trial whose load is nearest
    to the limit.
    """
    for trial in sorted(trials, key=lambda each: abs(each.load - estimate)):
        brokers = trial.evidence.brokers
        rates = [each.bytes_in_per_s for each in brokers if each.bytes_in_per_s]
        messages = [each.messages_in_per_s for each in brokers if each.messages_in_per_s]
        if not rates:
            continue
        is_shown = len(rates) == len(messages)
        planned = stored_bytes(trial.pattern.producer)
        stored = sum(rates) / sum(messages) if is_shown else planned
        requests = [each.produce.per_s for each in brokers if each.produce.per_s]
        others = others_of(trial)
        grown = (estimate + others) / (trial.load + others)
        return TrafficLimit(
            stored,
            fmean(rates) * grown,
            fmean(requests) * grown if len(requests) == len(brokers) else None,
        )
    return None

"""Seeded simulated clusters for tests and benchmarks.

A simulated cluster has a true capacity: the highest number of producers that it sustains. It also
has the properties that make a measurement difficult: noise, false alarms, drift, slow recovery,
overloaded bands of load below the capacity, and invalid trials. It is a `Measurer` of
`tests.support.single_goal`. A `SimulatedLine` has a cluster for every message size.

At the limit, the idle fraction of the request handlers crosses its threshold. Real brokers deliver
more than this limit, because requests grow while they queue. Let handlers spend the share `a` of a
request's time on its bytes and the rest on the request itself. Let D be the share of time for which
the load would keep the handlers busy if requests did not grow. If requests are 1 + `growth`/idle
times larger, idle solves the quadratic equation

    1 - idle = D · ((1 - a)·idle / (idle + growth) + a).

D follows from the limit, where idle is at the threshold. `a` follows from `delivers` times the
limit, where idle is 0 and the brokers accept no more load.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace

from search.forecast import ACHIEVED_MIN, IDLE_MIN
from search.line import FinishedPoint, Line, ProducerRate
from search.model import Done, GaveUp, Observation, Searcher, Verdict
from tests.support.single_goal import OnOwnStep, run_line, run_search


@dataclass(frozen=True)
class ClusterSpec:
    """The behavior of a simulated cluster. Ratios are relative to its capacity.

    Attributes:
        capacity: the true limit at time 0 [producers].
        curve_power: p in utilization = rest + (1 - rest)·(load/capacity)^p. With 1, utilization
            rises in a straight line, as in a pool of handlers; with 2, it rises late.
        utilization_at_rest: utilization of the idle threshold without load.
        utilization_at_limit: utilization of the idle threshold at the capacity. Below 1, a resource
            other than the handlers is the limit, and only the acknowledged share shows the limit.
        delivers: highest load that brokers acknowledge if the handlers are the limit [ratio].
        growth: growth of requests at low idle fractions; 0 for no growth. Real brokers had 0.0015
            to 0.012.
        idle_min: lowest idle fraction, at any overload.
        noise: scatter of the capacity from trial to trial [σ, ratio].
        reading_noise: scatter of a reading of the idle fraction [σ, absolute].
        false_alarm: probability that a trial below the limit is judged OVERLOADED, by a single ISR
            change or stall that the handlers do not show.
        disguised: share of the false alarms that the handlers show, too.
        false_calm: probability that the capacity is 30 % higher in a trial.
        stall: probability that the capacity is 20 % lower in a trial. Its readings show the lower
            capacity, and perhaps its verdict.
        invalid: probability that a trial is INVALID.
        drift: amplitude of a slow wave in the capacity [ratio].
        drift_period_s: period of the wave [s].
        steps: lasting changes as (trial, factor): from this trial on, the capacity is multiplied by
            the factor. Trials are counted from 1 over all message sizes.
        trend: steady change of ln capacity per hour [1/h].
        burst: factor of the capacity until `burst_volume` is offered.
        burst_volume: offered volume at which the burst ends [producers · s].
        recovery_s: time constant of the recovery from an overload [s].
        scar: missing share of the capacity in a trial right after an overload.
        bands: ranges of overloaded loads, as (from, to) shares of the capacity; higher loads are
            sustained.
        trial_s: duration of one trial, all phases [s].
    """

    capacity: float
    curve_power: float = 1.0
    utilization_at_rest: float = 0.02
    utilization_at_limit: float = 1.0
    delivers: float = 1.15
    growth: float = 0.0
    idle_min: float = 0.02
    noise: float = 0.0
    reading_noise: float = 0.0
    false_alarm: float = 0.0
    disguised: float = 0.0
    false_calm: float = 0.0
    stall: float = 0.0
    invalid: float = 0.0
    drift: float = 0.0
    drift_period_s: float = 7200.0
    steps: tuple[tuple[int, float], ...] = ()
    trend: float = 0.0
    burst: float = 1.0
    burst_volume: float = 0.0
    recovery_s: float = 0.0
    scar: float = 0.3
    bands: tuple[tuple[float, float], ...] = ()
    trial_s: float = 60.0


@dataclass
class Clock:
    """Simulated time. All sizes of a line share one clock, so drift continues between sizes.

    Attributes:
        now_s: time since the start of the simulation [s].
        overloaded_at_s: time of the end of the last overload [s].
        trials: number of finished trials.
        volume: sum of load times duration over all trials [producers · s].
    """

    now_s: float = 0.0
    overloaded_at_s: float = -math.inf
    trials: int = 0
    volume: float = 0.0


class SimulatedCluster:
    """A simulated cluster at one message size. Equal seeds give equal trials.

    Args:
        spec: behavior of the cluster.
        seed: seed of its random numbers.
        clock: the clock that all sizes of the cluster share; None for a new clock.
        phase: phase of the drift at time 0 [radians].
    """

    def __init__(
        self, spec: ClusterSpec, seed: int, clock: Clock | None = None, phase: float = 0.0
    ) -> None:
        self.spec = spec
        self.trials: list[Observation] = []
        self.capacities: list[float] = []
        self._clock = clock or Clock()
        self._phase = phase
        self._random = random.Random(seed)

    @property
    def true_limit(self) -> float:
        """The mean capacity without noise over all trials so far [producers]."""
        if not self.capacities:
            return self.spec.capacity
        return sum(self.capacities) / len(self.capacities)

    @property
    def elapsed_s(self) -> float:
        """Time since the start of the simulation [s]."""
        return self._clock.now_s

    @property
    def present_limit(self) -> float:
        """The capacity without noise in the last trial; of the spec before any trial
        [producers].
        """
        return self.capacities[-1] if self.capacities else self.spec.capacity

    @property
    def limit_now(self) -> float:
        """The capacity without noise after all trials so far, of all sizes [producers]."""
        return self.spec.capacity * self._change(max(1, self._clock.trials))

    def measure(self, load: int) -> Observation:
        """Make one simulated trial; the clock advances by `trial_s`."""
        spec, chance = self.spec, self._random
        now_s = self._clock.now_s
        capacity = spec.capacity * self._change(self._clock.trials + 1)
        self.capacities.append(capacity)
        # Every trial draws the same number of random numbers, so that a change of one property of
        # the cluster does not change the random numbers of other properties.
        gauss, reading = chance.gauss(0.0, 1.0), chance.gauss(0.0, 1.0)
        alarm, disguise, calm, invalid = (chance.random() for _ in range(4))
        flap, which = chance.random(), chance.random()
        capacity *= math.exp(spec.noise * gauss)
        if spec.recovery_s > 0.0:
            since_s = now_s - self._clock.overloaded_at_s
            capacity *= 1.0 - spec.scar * math.exp(-since_s / spec.recovery_s)
        if calm < spec.false_calm:
            capacity *= 1.3
        if calm > 1.0 - spec.stall:
            capacity *= 0.8
        ratio = load / capacity
        indicators = self._indicators(ratio, reading)
        if any(low <= load / spec.capacity < high for low, high in spec.bands):
            indicators["isr"] = 1.2 + 0.8 * flap
        if alarm < spec.false_alarm and max(indicators.values()) < 1.0:
            if disguise < spec.disguised:
                indicators["request_handler_idle"] = 1.0 + 0.2 * flap
            if which < 0.7:
                indicators["isr"] = 1.05 + 0.95 * flap
            else:
                indicators["achieved"] = 1.05 + 6.0 * flap
        over = max(indicators.values()) >= 1.0
        verdict = Verdict.OVERLOADED if over else Verdict.SUSTAINED
        if invalid < spec.invalid:
            verdict, indicators = Verdict.INVALID, {}
        self._clock.now_s += spec.trial_s
        self._clock.trials += 1
        self._clock.volume += load * spec.trial_s
        if ratio >= 1.0:
            self._clock.overloaded_at_s = self._clock.now_s
        seen = Observation(load, verdict, indicators, spec.trial_s)
        self.trials.append(seen)
        return seen

    def recover(self) -> None:
        """Advance the clock until one percent of the effect of an overload remains."""
        if self.spec.recovery_s > 0.0:
            healed_s = self._clock.overloaded_at_s + self.spec.recovery_s * math.log(100.0)
            self._clock.now_s = max(self._clock.now_s, healed_s)

    def _change(self, number: int) -> float:
        """The capacity without noise over `spec.capacity`, in the trial with this number, from
        1.
        """
        spec, clock, now_s = self.spec, self._clock, self._clock.now_s
        wave = math.sin(2 * math.pi * now_s / spec.drift_period_s + self._phase)
        change = (1.0 + spec.drift * wave) * math.exp(spec.trend * now_s / 3600.0)
        for trial, factor in spec.steps:
            change *= factor if number >= trial else 1.0
        return change * (spec.burst if clock.volume < spec.burst_volume else 1.0)

    def _indicators(self, ratio: float, reading: float) -> dict[str, float]:
        spec = self.spec
        rest, at_limit = spec.utilization_at_rest, spec.utilization_at_limit
        if at_limit >= 1.0:
            handlers = (1.0 - _idle(spec, ratio)) / (1.0 - IDLE_MIN)
        else:
            # The limiting resource also limits the load of the handlers.
            handlers = rest + (at_limit - rest) * ratio**spec.curve_power
            handlers = min(handlers, at_limit * 1.05)
        handlers += spec.reading_noise * reading / (1.0 - IDLE_MIN)
        # Handlers with little idle time accept more load. Other resources accept no more.
        delivered = min(1.0, (spec.delivers if at_limit >= 1.0 else ACHIEVED_MIN) / ratio)
        return {
            "request_handler_idle": min(max(0.0, handlers), 1.0 / (1.0 - IDLE_MIN)),
            "achieved": (1.0 - delivered) / (1.0 - ACHIEVED_MIN),
            "isr": 0.0,
        }


def _idle(spec: ClusterSpec, ratio: float) -> float:
    """The handlers' idle fraction at a load, if the handlers are the limit.

    Args:
        spec: behavior of the cluster.
        ratio: load divided by capacity.
    """
    growth, rest = spec.growth, spec.utilization_at_rest

    def demand(of: float) -> float:
        return float(rest + (1.0 - rest) * of**spec.curve_power)

    # If brokers deliver little more than the limit, requests hardly grow: all time is for bytes.
    room = (1.0 - IDLE_MIN) * (IDLE_MIN + growth) * demand(spec.delivers) - growth
    of_bytes = 1.0 if room <= IDLE_MIN else IDLE_MIN / room
    at_limit = (1.0 - IDLE_MIN) * (IDLE_MIN + growth) / (IDLE_MIN + of_bytes * growth)
    asked = at_limit * demand(ratio)
    half = (asked - 1.0 + growth) / 2.0
    idle = -half + math.sqrt(max(0.0, half**2 + growth * (1.0 - asked * of_bytes)))
    return max(spec.idle_min, idle)


@dataclass(frozen=True)
class SimulatedEnd:
    """The end of a search on a simulated cluster.

    Attributes:
        result: the result of the search.
        trials: number of trials.
        duration_s: simulated time of the trials, recovery included [s].
        true_limit: mean capacity of the cluster over these trials [producers].
        present_limit: capacity of the cluster in the last trial; 0 if not known [producers].
    """

    result: Done | GaveUp
    trials: int
    duration_s: float
    true_limit: float
    present_limit: float = 0.0


def run_on(
    searcher: Searcher,
    cluster: SimulatedCluster,
    on_step: OnOwnStep | None = None,
    check_for_change: bool = True,
) -> SimulatedEnd:
    """Run a searcher on a simulated cluster; for `check_for_change` see `run_search`."""
    before_trials, before_s = len(cluster.trials), cluster.elapsed_s
    result = run_search(searcher, cluster, on_step, check_for_change=check_for_change)
    return SimulatedEnd(
        result,
        len(cluster.trials) - before_trials,
        cluster.elapsed_s - before_s,
        cluster.true_limit,
        cluster.present_limit,
    )


@dataclass(frozen=True)
class LineSpec:
    """A simulated cluster with a cost per batch and a cost per byte.

    Attributes:
        brokers: number of brokers that share the load evenly.
        rate: rate of one producer.
        per_batch_s: cost of a batch [s of one broker].
        per_byte_s: cost of a byte [s of one broker].
        misfit: scatter of the limits around the line of these costs [σ, ratio].
        behavior: noise and the other properties; its capacity is replaced for each size.
    """

    brokers: int
    rate: ProducerRate
    per_batch_s: float
    per_byte_s: float
    misfit: float
    behavior: ClusterSpec

    def capacity(self, message_bytes: int) -> float:
        """The limit at a message size, without the misfit [producers]."""
        rate = self.rate
        cost_s = self.per_batch_s * rate.batches(message_bytes) + self.per_byte_s * rate.bytes(
            message_bytes
        )
        return self.brokers / cost_s


class SimulatedLine:
    """A simulated cluster for every message size, all on one clock.

    Args:
        spec: behavior of the cluster.
        seed: seed of all random numbers. Equal seeds give equal clusters at each size.
    """

    def __init__(self, spec: LineSpec, seed: int) -> None:
        self.spec = spec
        self.seed = seed
        self.clock = Clock()
        self._phase = random.Random(seed).uniform(0.0, 2 * math.pi)
        self._clusters: dict[int, SimulatedCluster] = {}

    def cluster(self, message_bytes: int) -> SimulatedCluster:
        """The simulated cluster of a message size [B]."""
        if message_bytes not in self._clusters:
            own = random.Random(self.seed * 1_000_003 + message_bytes)
            away = math.exp(self.spec.misfit * own.gauss(0.0, 1.0))
            behavior = replace(
                self.spec.behavior, capacity=self.spec.capacity(message_bytes) * away
            )
            self._clusters[message_bytes] = SimulatedCluster(
                behavior, own.getrandbits(32), self.clock, self._phase
            )
        return self._clusters[message_bytes]


def run_line_on(line: Line, simulated: SimulatedLine) -> list[tuple[FinishedPoint, SimulatedEnd]]:
    """Measure a line on a simulated cluster; return each finished point with its end."""
    spent_s: dict[int, float] = {}
    begun: list[tuple[int, float]] = []

    def end() -> None:
        if begun:
            message_bytes, begin_s = begun.pop()
            own_s = simulated.clock.now_s - begin_s
            spent_s[message_bytes] = spent_s.get(message_bytes, 0.0) + own_s

    def measurer_for(message_bytes: int) -> SimulatedCluster:
        end()
        begun.append((message_bytes, simulated.clock.now_s))
        return simulated.cluster(message_bytes)

    points = run_line(line, measurer_for)
    end()
    return [
        (
            point,
            SimulatedEnd(
                point.result,
                len(point.history),
                spent_s[point.message_bytes],
                simulated.cluster(point.message_bytes).true_limit,
                simulated.cluster(point.message_bytes).limit_now,
            ),
        )
        for point in points
    ]

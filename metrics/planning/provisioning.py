"""The number of brokers that a load needs, computed from measured limits.

Limits that are measured on the same brokers differ from day to day. On 90 % of days, the limit lies
in a range. The number of brokers is computed from the lower bound of this range. The number of
brokers that may be offline is rounded up.

A measured limit is valid for the traffic pattern of its run. Between two measured message sizes,
the model assumes a fixed cost per record and a fixed cost per byte. So a broker's time per message
grows linearly with the size. For sizes outside the measured range, there is no answer. An
additional replica is assumed to cost as much as a measured replica. The limit of a mix is valid for
the measured proportions of its parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import NormalDist
from typing import Annotated

from metrics.columns import Column
from metrics.common.errors import ConfigError
from metrics.planning.load_needs import Framing, wire_bytes
from metrics.traffic.clients import ConsumerOptions, ProducerPattern
from metrics.traffic.pattern import Phases, TopicOptions, TrafficPattern
from metrics.units import format_mb_per_s, format_ratio, format_size
from search.model import LEVEL


@dataclass(frozen=True)
class TrafficShare:
    """One part of a mix. Traffic without parts counts as a single part.

    Attributes:
        part: name of the part; empty if the traffic is not a mix.
        share: share of the mix's payload [ratio].
        message_bytes: mean bytes per message [B].
        replication_factor: replicas of a partition, including the leader.
        consumer_groups: number of consumer groups that read the part's topics.
    """

    part: str
    share: float
    message_bytes: Annotated[int, Column("bpm")]
    replication_factor: int
    consumer_groups: int


def weighted(of: MeasuredLimit | Demand, value: Callable[[TrafficShare], float]) -> float:
    """The mean of a value over all parts, weighted by their shares of the payload."""
    whole = TrafficShare("", 1.0, of.message_bytes, of.replication_factor, of.consumer_groups)
    return sum(each.share * value(each) for each in of.parts or (whole,))


def proportions(shares: Sequence[TrafficShare]) -> str:
    """The parts of a mix with their shares of the payload, such as `orders 89 %, clicks 11 %`."""
    return ", ".join(f"{each.part} {format_ratio(each.share)}" for each in shares)


FULL_BATCHES_PER_S = 1e6
"""A record rate so high that every batch is full before its linger time ends [1/s]."""
BETWEEN_RUNS = 0.06
"""Standard deviation of limits between runs on the same brokers [ln].

The value is an assumption; testbeds had 0.05 to 0.08."""
_TAIL = NormalDist().inv_cdf((1.0 + LEVEL) / 2.0)
BROKERS_MAX = 1_000_000
"""Highest number of brokers in a plan. A larger result means that an input is probably mistyped."""


def on_any_day(ratio: float, between_runs: float = BETWEEN_RUNS) -> float:
    """On 90 % of days, the limit lies in a range. The result is the limit divided by the lower
    bound of this range [ratio of 1 or more].

    Args:
        ratio: the limit divided by the lower end of the 90 % interval from the run [ratio].
        between_runs: standard deviation of the limit's logarithm from run to run.
    """
    return math.exp(math.hypot(math.log(ratio), _TAIL * between_runs))


@dataclass(frozen=True)
class MeasuredLimit:
    """The limit of one broker at one message size.

    Attributes:
        message_bytes: bytes per message [B].
        mb_per_s: payload rate from producers, per broker [MB/s].
        limited_by: the limiting resource; None if it is not known.
        replication_factor, consumer_groups: replicas of a partition and number of consumer groups
            in the measured traffic pattern.
        mb_per_s_low: lower end of the limit's 90 % interval [MB/s]; None if it is not known.
        doubt: why the limit is doubtful, a sentence without a full stop; empty if it is not
            doubtful.
        parts: the parts of a mix; empty for other traffic. For a mix, `message_bytes` is the mean
            message size of all parts, `replication_factor` the highest value of any part, and
            `consumer_groups` the number of groups of all parts together.
        mix_mb_per_s: payload rate of the mix at scale 1, summed over all brokers [MB/s]; None if
            the traffic is not a mix.
        between_runs: standard deviation of the limit's logarithm from run to run; 0 if the limit
            does not vary.
        lasts: a sentence without a full stop that states whether disks wrote the bytes as fast as
            brokers received them, at the limit; empty if no remark is needed.
    """

    message_bytes: Annotated[int, Column("bpm")]
    mb_per_s: float
    limited_by: str | None = None
    replication_factor: int = 3
    consumer_groups: int = 0
    mb_per_s_low: float | None = None
    doubt: str = ""
    parts: tuple[TrafficShare, ...] = ()
    mix_mb_per_s: float | None = None
    between_runs: float = 0.0
    lasts: str = ""

    @property
    def low_of_run(self) -> float:
        """The smaller of two rates: the lower end of the run's interval, and the sustained rate
        [MB/s].
        """
        low = self.mb_per_s_low
        return self.mb_per_s if low is None else min(self.mb_per_s, low)

    @property
    def conservative_mb_per_s(self) -> float:
        """The lower bound of the range in which the limit lies on 90 % of days [MB/s].

        The lower bound is at most the rate that the run sustained. The range combines the interval
        that the run measured with the differences between runs.
        """
        if self.low_of_run <= 0.0:
            return 0.0
        return self.mb_per_s / on_any_day(self.mb_per_s / self.low_of_run, self.between_runs)


@dataclass(frozen=True)
class Demand:
    """The load that the cluster has to carry.

    Attributes:
        mb_per_s: today's payload rate from producers, summed over all brokers [MB/s].
        message_bytes: bytes per message [B].
        replication_factor: replicas of a partition, including the leader.
        consumer_groups: number of consumer groups; each group reads all records.
        growth: growth of the payload rate until the next purchase of brokers [ratio].
        offline: share of brokers that may be offline while the others carry the load [ratio].
        headroom: share of a broker's limit that must stay unused [ratio].
        link_mbit_per_s: speed of a broker's network link in each direction [Mbit/s]; None to ignore
            the link.
        scale: the load as a multiple of the measured mix, before growth [ratio]; None if the
            traffic is not a mix.
        parts: the parts of the mix; empty if the traffic is not a mix.
        retention_hours: retention time of records [h]; None to ignore storage.
        disk_gb: disk space of a broker for records [GB]; None without `retention_hours`.
        compression_ratio: size of records before compression divided by their size after
            compression [ratio].
        zones: number of zones (racks), which have equally many brokers; None if the cluster has no
            zones. The cluster must also carry the load after the loss of one zone.
    """

    mb_per_s: float
    message_bytes: Annotated[int, Column("bpm")]
    replication_factor: int = 3
    consumer_groups: int = 0
    growth: float = 0.0
    offline: float = 0.0
    headroom: float = 0.0
    link_mbit_per_s: float | None = None
    scale: float | None = None
    parts: tuple[TrafficShare, ...] = ()
    retention_hours: float | None = None
    disk_gb: float | None = None
    compression_ratio: float = 1.0
    zones: int | None = None

    def suited_to(self, limits: Sequence[MeasuredLimit]) -> Demand:
        """The demand with the traffic of the measured mix. If the limits were not measured with a
        mix, the result is the unchanged demand.
        """
        return self.of_mix(limits[0]) if limits and limits[0].parts else self

    def of_mix(self, limit: MeasuredLimit) -> Demand:
        """The demand with the message size, replicas, consumer groups and proportions of a measured
        mix.

        If the demand has a scale, the payload rate is computed from the scale of the mix. If the
        demand has no scale, the scale of the mix is computed from the payload rate.
        """
        assert limit.mix_mb_per_s, "the limit was not measured with a mix"
        once, scale = limit.mix_mb_per_s, self.scale
        return replace(
            self,
            mb_per_s=self.mb_per_s if scale is None else scale * once,
            scale=self.mb_per_s / once if scale is None else scale,
            message_bytes=limit.message_bytes,
            replication_factor=limit.replication_factor,
            consumer_groups=limit.consumer_groups,
            parts=limit.parts,
        )

    def __post_init__(self) -> None:
        ratios = {"growth": self.growth, "offline": self.offline, "headroom": self.headroom}
        for name, value in ratios.items():
            if value < 0 or (name != "growth" and value >= 1):
                raise ConfigError(
                    f"{name} is {value:g}; expected a ratio from 0 to below 1, such as 0.2 for "
                    f"20 % (only growth can be 1 or more); correct {name}"
                )
        if self.mb_per_s <= 0 or self.message_bytes < 1 or self.replication_factor < 1:
            raise ConfigError(
                f"the demand is {self.mb_per_s:g} MB/s in messages of {self.message_bytes} B with "
                f"{self.replication_factor} replicas; expected values above 0; correct "
                "the demand"
            )
        if (self.retention_hours is None) != (self.disk_gb is None):
            raise ConfigError(
                "only one of --retention-hours and --disk-gb is given; expected both or none; "
                "add the other option"
            )

    def lost_of(self, brokers: int) -> int:
        """The number of brokers that may be offline at the same time. The result is the larger of
        two numbers, rounded up: the share `offline` of all brokers, and the brokers of one zone.
        """
        share = max(self.offline, 1.0 / self.zones if self.zones else 0.0)
        return math.ceil(brokers * share - 1e-9)


@dataclass(frozen=True)
class Need:
    """The number of brokers that one resource requires.

    Attributes:
        resource: name of the resource.
        brokers: number of brokers that the resource requires.
        mb_per_s_per_broker: highest load per broker that the resource allows, with all brokers up
            [MB/s].
        formula: the computation of `brokers`, with its figures.
    """

    resource: str
    brokers: int
    mb_per_s_per_broker: float
    formula: str = ""


@dataclass(frozen=True)
class Provision:
    """The number of brokers to buy.

    Attributes:
        brokers: number of brokers to buy, the highest number that any resource requires.
        binds_first: the resource that requires the highest number of brokers.
        brokers_for_limit: number of brokers to buy if the plan used the limit instead of the lower
            end of the limit's 90 % range.
        limit_mb_per_s_per_broker: the limit of a broker at the demand's message size and
            replication factor [MB/s].
        low_mb_per_s_per_broker: lower bound of the range in which the limit lies on 90 % of days
            [MB/s]; None if it equals the limit.
        plan_mb_per_s_per_broker: highest planned load of a broker, with all brokers up [MB/s].
        mb_per_s_per_broker: load of each broker at the full demand, with all brokers up [MB/s].
        headroom: unused share of a broker's limit [ratio] at the load `mb_per_s_per_broker`. If the
            lower end of the limit is known, the share is computed from this lower end.
        headroom_offline: unused share of a broker's limit [ratio] if `offline` brokers are offline
            and the remaining brokers carry the whole load.
        offline: number of brokers that may be offline, rounded up.
        needs: the number of brokers that each resource requires.
        assumptions: assumptions of the answer, one sentence for each assumption.
        scale: highest multiple of the mix that these brokers sustain, with all brokers up [ratio];
            None if the traffic is not a mix.
    """

    brokers: int
    binds_first: str
    brokers_for_limit: int
    limit_mb_per_s_per_broker: float
    low_mb_per_s_per_broker: float | None
    plan_mb_per_s_per_broker: float
    mb_per_s_per_broker: float
    headroom: float
    headroom_offline: float
    offline: int
    needs: tuple[Need, ...]
    assumptions: tuple[str, ...]
    scale: float | None = None


def provision_rows(answer: Provision, demand: Demand) -> list[tuple[str, str]]:
    """The rows of a table that shows the answer, as (name, value)."""
    low = answer.low_mb_per_s_per_broker
    size = f" at {format_size(demand.message_bytes)}" if demand.scale is None else ""
    rows = [
        ("brokers to buy", f"{answer.brokers}"),
        *([("brokers for the limit itself", f"{answer.brokers_for_limit}")] if low else []),
        ("binds first", answer.binds_first),
        (f"limit of a broker{size}", f"{format_mb_per_s(answer.limit_mb_per_s_per_broker)} MB/s"),
        *(
            [(f"lower end of its {format_ratio(LEVEL)} range", f"{format_mb_per_s(low)} MB/s")]
            if low
            else []
        ),
        ("highest planned broker load", f"{format_mb_per_s(answer.plan_mb_per_s_per_broker)} MB/s"),
        ("load of each broker", f"{format_mb_per_s(answer.mb_per_s_per_broker)} MB/s"),
        ("headroom, all up", format_ratio(answer.headroom)),
    ]
    if answer.offline:
        offline = format_ratio(answer.headroom_offline)
        rows.append((f"headroom, {answer.offline} offline", offline))
    if answer.scale is not None:
        rows.append(("these brokers sustain", f"{answer.scale:.3g} times the mix"))
    needs = sorted(answer.needs, key=lambda need: -need.brokers)
    if len(needs) > 1:
        rows += [(f"brokers for {n.resource}", f"{n.brokers} ({n.formula})") for n in needs]
    return rows


def provision(limits: Sequence[MeasuredLimit], demand: Demand) -> Provision:
    """Compute the number of brokers that carry the demand.

    Raises:
        ConfigError: there is no limit, the size is outside of the measured range, or the demand
            needs more than `BROKERS_MAX` brokers.
    """
    at_size, interpolated = limit_at(limits, demand.message_bytes)
    said = [*interpolated]
    scale = at_size.replication_factor / demand.replication_factor
    limit, usable = at_size.mb_per_s * scale, at_size.conservative_mb_per_s * scale
    if demand.replication_factor != at_size.replication_factor:
        said.append(
            f"measured with replication factor {at_size.replication_factor} and planned with "
            f"{demand.replication_factor}: each replica is assumed to cost the same; to check "
            f"it, measure with workload.topic.replication_factor={demand.replication_factor}"
        )
    if demand.consumer_groups > at_size.consumer_groups:
        said.append(
            f"measured with {at_size.consumer_groups} consumer groups and planned with "
            f"{demand.consumer_groups}: reading is assumed to cost the brokers only network "
            "traffic; to check it, measure with "
            f"workload.consumers.groups={demand.consumer_groups}"
        )
    needed = demand.mb_per_s * (1.0 + demand.growth)
    share = 1.0 - demand.headroom
    bound = at_size.limited_by or "the measured limit"
    needs = [_need(bound, needed, usable * share, demand)]
    for_limit = _need(bound, needed, limit * share, demand).brokers
    if demand.link_mbit_per_s is not None:
        received = weighted(demand, lambda each: _on_wire(each)[0])
        sent = weighted(demand, lambda each: _on_wire(each)[1])
        per_link = demand.link_mbit_per_s / 8.0 / max(received, sent)  # in the busier direction
        needs.append(_need("network link", needed, per_link * share, demand))
        for_limit = max(for_limit, needs[-1].brokers)
        said.append(
            "the link is assumed to carry full batches of 16 kB without compression, with the "
            "headers of records, batches, requests, TCP, IP and Ethernet, at up to 100 % use; "
            "smaller batches need more bandwidth"
        )
    if demand.retention_hours is not None and demand.disk_gb is not None:
        replicas = weighted(demand, lambda each: each.replication_factor)
        stored = 3.6 * demand.retention_hours * replicas / demand.compression_ratio  # [GB per MB/s]
        alone = replace(demand, offline=0.0, zones=None)  # offline brokers keep their records
        needs.append(_need("storage", needed, demand.disk_gb * share / stored, alone))
        for_limit = max(for_limit, needs[-1].brokers)
    if demand.zones:
        said.append(_between_zones(demand, needed))
    if at_size.parts:
        said.append(
            "the parts are assumed to keep their measured shares of the payload "
            f"({proportions(at_size.parts)}) and their number of partitions per broker; "
            "to check other proportions, search along scale.PART"
        )
    doubt = at_size.doubt and f"the limit is doubtful: {at_size.doubt}; measure it again"
    bought = _bought_for(at_size, usable, limit, for_limit) if usable < limit else ""
    first = max(needs, key=lambda need: need.brokers)
    each = needed / first.brokers
    offline = demand.lost_of(first.brokers)
    return Provision(
        brokers=first.brokers,
        binds_first=first.resource,
        brokers_for_limit=for_limit,
        limit_mb_per_s_per_broker=limit,
        low_mb_per_s_per_broker=usable if usable < limit else None,
        plan_mb_per_s_per_broker=min(need.mb_per_s_per_broker for need in needs),
        mb_per_s_per_broker=each,
        headroom=1.0 - each / usable,
        headroom_offline=1.0 - needed / (first.brokers - offline) / usable,
        offline=offline,
        needs=tuple(needs),
        assumptions=tuple(filter(None, (doubt, at_size.lasts, bought, *said))),
        scale=None if not at_size.mix_mb_per_s else first.brokers * usable / at_size.mix_mb_per_s,
    )


def _bought_for(at_size: MeasuredLimit, low: float, limit: float, brokers_for_limit: int) -> str:
    of = f"{format_ratio(LEVEL)} interval"
    if at_size.between_runs:
        own = "" if at_size.mb_per_s_low is None else ", and the interval of this run"
        vary = f"(from a variation of {format_ratio(at_size.between_runs)} between runs{own})"
        of = f"{format_ratio(LEVEL)} range {vary}"
    return (
        f"the number of brokers follows from the lower end of the limit's {of}, "
        f"{format_mb_per_s(low)} MB/s per broker; the limit itself, {format_mb_per_s(limit)} MB/s "
        f"per broker, would require {brokers_for_limit}"
    )


def _between_zones(demand: Demand, needed: float) -> str:
    """A sentence about the monthly traffic between zones. Producers, followers and consumer groups
    cause this traffic.
    """
    zones = demand.zones or 1
    away = 1.0 - 1.0 / zones

    def crossing(each: TrafficShare) -> float:
        copies = each.replication_factor - math.ceil(each.replication_factor / zones)
        return away * (1 + each.consumer_groups) + copies

    gb = needed * weighted(demand, crossing) / demand.compression_ratio * 730 * 3.6
    return (
        f"about {gb:,.0f} GB a month cross the borders of {zones} zones, if every zone has "
        "clients, and consumer groups read from leaders"
    )


def offline_mb_per_s(limit_mb_per_s: float, brokers: int, offline: int) -> float:
    """The expected limit of a cluster with some brokers offline [MB/s].

    As in `provision`, the limit of each remaining broker is assumed to be unchanged.

    Args:
        limit_mb_per_s: limit of the whole cluster with all brokers up [MB/s].
        brokers: number of brokers.
        offline: number of brokers that are offline.
    """
    return limit_mb_per_s * (brokers - offline) / brokers


def _need(resource: str, needed: float, usable: float, demand: Demand) -> Need:
    up = needed / usable if usable > 0.0 else math.inf
    stays = 1.0 - max(demand.offline, 1.0 / demand.zones if demand.zones else 0.0)
    if stays <= 0.0 or not up / stays <= BROKERS_MAX:
        raise ConfigError(
            f"{needed:.6g} MB/s need more than {BROKERS_MAX:,} brokers if a broker carries "
            f"{usable:.3g} MB/s ({resource}); expected a plan of at most {BROKERS_MAX:,} brokers; "
            "correct the demand, the limit per broker or the margins"
        )
    brokers = max(demand.replication_factor, math.ceil(up / stays - 1e-9))
    while brokers - demand.lost_of(brokers) < up - 1e-9:
        brokers += 1
    lost = demand.lost_of(brokers)
    offline = f", and {lost} offline" if lost else ""
    formula = f"{format_mb_per_s(needed)} / {format_mb_per_s(usable)} MB/s a broker{offline}"
    return Need(resource, brokers, usable * (1.0 - lost / brokers), formula)


def _on_wire(share: TrafficShare) -> tuple[float, float]:
    """(received, sent): bytes that all brokers receive and bytes that they send, per byte of
    payload [ratio].
    """
    pattern = TrafficPattern(
        producers=1,
        producer=ProducerPattern(share.message_bytes, FULL_BATCHES_PER_S),
        topic=TopicOptions(replication_factor=share.replication_factor),
        phases=Phases(warmup_s=0.0, measure_s=1.0),
        consumers=ConsumerOptions(groups=share.consumer_groups),
    )
    sizes = wire_bytes(pattern, Framing())
    return sizes.brokers_in / share.message_bytes, sizes.brokers_out / share.message_bytes


def limit_at(
    limits: Sequence[MeasuredLimit], message_bytes: int
) -> tuple[MeasuredLimit, tuple[str, ...]]:
    """The limit at a message size, with the assumptions of the interpolation between two measured
    sizes. There are no assumptions if the message size was measured.

    Raises:
        ConfigError: there is no limit, its interval begins at 0, or the size is outside of the
            measured range.
    """
    known = sorted((one for one in limits if one.mb_per_s > 0), key=lambda one: one.message_bytes)
    if not known:
        raise ConfigError(
            "the run has no limit above 0; expected boundary points of a finished run; run "
            "redline find-limit first"
        )
    for one in known:
        if one.message_bytes == message_bytes:
            return _above_zero(one), ()
    for low, high in pairwise(known):
        if low.message_bytes < message_bytes < high.message_bytes:
            return _between(_above_zero(low), _above_zero(high), message_bytes)
    raise ConfigError(
        f"messages of {format_size(message_bytes)} are outside of the measured range "
        f"{format_size(known[0].message_bytes)} to {format_size(known[-1].message_bytes)}; "
        f"expected a size between them; measure it with --set "
        f"workload.message_bytes='[{message_bytes}]'"
    )


def _above_zero(one: MeasuredLimit) -> MeasuredLimit:
    if not one.conservative_mb_per_s > 0:
        raise ConfigError(
            f"the 90 % interval of the limit at {format_size(one.message_bytes)} begins at "
            "0 MB/s; expected an interval above 0; measure this size again, with a smaller "
            "goal.search.resolution"
        )
    return one


def _between(
    low: MeasuredLimit, high: MeasuredLimit, message_bytes: int
) -> tuple[MeasuredLimit, tuple[str, ...]]:
    share = (message_bytes - low.message_bytes) / (high.message_bytes - low.message_bytes)

    def between(at_low: float, at_high: float) -> float:
        time_low, time_high = low.message_bytes / at_low, high.message_bytes / at_high  # [µs]
        return message_bytes / (time_low + share * (time_high - time_low))

    mb_per_s = between(low.mb_per_s, high.mb_per_s)
    has_low = low.mb_per_s_low is not None or high.mb_per_s_low is not None
    nearer = low if message_bytes * message_bytes < low.message_bytes * high.message_bytes else high
    sentence = (
        f"messages of {format_size(message_bytes)} were not measured: {format_mb_per_s(mb_per_s)} "
        f"MB/s per broker is interpolated between {format_size(low.message_bytes)} and "
        f"{format_size(high.message_bytes)}, with a fixed cost per record and per byte"
    )
    found = replace(
        nearer,
        message_bytes=message_bytes,
        mb_per_s=mb_per_s,
        mb_per_s_low=(between(low.low_of_run, high.low_of_run) if has_low else None),
        lasts="; ".join(dict.fromkeys(filter(None, (low.lasts, high.lasts)))),
        doubt="; ".join(
            f"at {format_size(each.message_bytes)} {each.doubt}"
            for each in (low, high)
            if each.doubt
        ),
    )
    return found, (sentence,)

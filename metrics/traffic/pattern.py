"""A traffic pattern: one point of the traffic space."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated

from metrics.columns import NO_COLUMN, Column, Flat, column
from metrics.common.bounds import Number, Properties, Whole
from metrics.traffic.clients import ConsumerOptions, ProducerPattern
from metrics.traffic.profile import RateProfile
from search.early_stop import StopRule

PARTITIONS_MAX = 10_000
"""Highest number of partitions of a topic that one broker leads."""

LEADERS_MAX = 1_000_000
"""Highest number of partitions of all topics that one broker leads. It stops slips of the pen only,
as brokers themselves refuse more than they bear."""

RETENTION_BYTES = 1_073_741_824
"""Retention of a partition unless the workload sets another; brokers would keep all bytes [B]."""

SAMPLES_MIN = 4
"""Lowest number of samples of a broker in the measured window, as shares of samples need some."""


@dataclass(frozen=True, kw_only=True)
class TopicOptions:
    """Options of the topics that are created for each message size.

    Attributes:
        count: number of topics, all with the same options; producers are assigned to them in
            turns, one topic each, and every consumer group reads all of them.
        partitions_per_broker: partitions of each topic that each broker leads.
        replication_factor: replicas of a partition, the leader included.
        config: topic properties by Kafka's names; `retention.bytes` is 1 GiB unless it is set.
    """

    count: Annotated[int, Whole(1, LEADERS_MAX, "topics"), Column("topics")] = 1
    partitions_per_broker: Annotated[
        int, Whole(1, PARTITIONS_MAX, "partitions"), Column("partitions_per_broker")
    ] = 10
    replication_factor: Annotated[int, Whole(1, 32, "replicas"), Column("replication_factor")]
    config: Properties = field(default_factory=dict)

    @property
    def properties(self) -> Mapping[str, str]:
        """The properties of `config`, with a default for `retention.bytes`."""
        return {"retention.bytes": f"{RETENTION_BYTES}", **self.config}

    def require_consistent(self) -> None:
        """Refuse more in-sync replicas than replicas, and more partitions than a broker leads.

        Raises:
            ValueError: the message names them, the expected values and the remedy.
        """
        leaders = self.count * self.partitions_per_broker
        if leaders > LEADERS_MAX:
            raise ValueError(
                f"count is {self.count} and partitions_per_broker {self.partitions_per_broker}, so "
                f"each broker leads {leaders:,} partitions; expected at most {LEADERS_MAX:,} in "
                "all topics together; lower one of them"
            )
        wanted = self.config.get("min.insync.replicas", "1")
        if wanted.isdigit() and int(wanted) > self.replication_factor:
            raise ValueError(
                f"config min.insync.replicas is {wanted} and replication_factor "
                f"{self.replication_factor}; expected at most as many in-sync replicas as "
                "replicas, or nothing can be written with acks=all; change one of them"
            )


@dataclass(frozen=True, kw_only=True)
class Phases:
    """The phases of one trial.

    Attributes:
        ramp_up_s: time in which the rate grows evenly from 0, a part of warmup_s.
        warmup_s: time of the load before the measured window.
        measure_s: length of the measured window, unless it ends early.
        drain_timeout_s: longest wait for the last acknowledgements.
        volume_bytes: payload that all producers offer together, in equal shares; without it they
            offer until the window's end [B].
        sample_interval_s: time between two samples of a broker.
        early_end_error_rate: probability of a changed verdict at which a window may end early;
            0 runs every trial for its full time [ratio].
    """

    ramp_up_s: Annotated[float, Number(0, 3_600, "seconds")] = 0.0
    warmup_s: Annotated[float, Number(0, 3_600, "seconds")]
    measure_s: Annotated[float, Number(1, 86_400, "seconds")]
    drain_timeout_s: Annotated[float, Number(0, 600, "seconds", above=True)] = 10.0
    volume_bytes: Annotated[int, Whole(0, 1_000_000_000_000_000, "bytes")] | None = None
    sample_interval_s: Annotated[float, Number(0.05, 60, "seconds")] = 1.0
    early_end_error_rate: Annotated[float, Number(0, 0.2)] = 0.01

    @property
    def stop_rule(self) -> StopRule | None:
        """The rule for the early end of a window; None where windows do not end early."""
        return StopRule(self.early_end_error_rate) if self.early_end_error_rate else None

    @property
    def in_full(self) -> Phases:
        """The phases without early ends, as for a load that is held."""
        return replace(self, early_end_error_rate=0.0)

    @property
    def load_s(self) -> float:
        """Time for which a trial loads the brokers [s]."""
        return self.warmup_s + self.measure_s

    def require_consistent(self) -> None:
        """Refuse phases that contradict each other.

        Raises:
            ValueError: the message names them, the expected values and the remedy.
        """
        if self.ramp_up_s > self.warmup_s:
            raise ValueError(
                f"ramp_up_s is {self.ramp_up_s:g} and warmup_s {self.warmup_s:g}; expected the "
                "full rate before the measured window; ramp up faster or warm up longer"
            )
        if self.measure_s < SAMPLES_MIN * self.sample_interval_s:
            raise ValueError(
                f"measure_s is {self.measure_s:g} and sample_interval_s "
                f"{self.sample_interval_s:g}; expected a window of at least {SAMPLES_MIN} samples; "
                "measure longer or sample more often"
            )


@dataclass(frozen=True)
class TrafficPattern:
    """A traffic pattern with the phases of its trial.

    Attributes:
        producers: number of identical producers.
        producer: traffic of each producer.
        topic: options of the topics.
        consumers: consumer groups that read while the producers write.
        phases: phases of the trial.
        brokers: number of brokers of the cluster.
        axis, load: the searched axis, and the load of this pattern on it.
        point_message_bytes: message size of the boundary point that the pattern belongs to [B].
        profile: change of the rate over time; None for a constant rate.
        parts: the parts of a mix, all in one load; empty for other traffic.
        at_scale_1: this pattern at scale 1, where its load was scaled; None otherwise.
        mix: part of a mix → its producers at scale 1, and its options that differ from the
            defaults; empty for other traffic. The row of a mix has sums and means of its parts,
            and the options of the part with the most payload.
    """

    producers: Annotated[int, Column("np")]
    producer: Annotated[ProducerPattern, Flat()]
    topic: Annotated[TopicOptions, Flat("topic_")]
    phases: Annotated[Phases, Flat()]
    consumers: Annotated[ConsumerOptions, Flat("consumer_")] = field(
        default_factory=ConsumerOptions
    )
    brokers: int = 0
    axis: str = "np"
    load: int | None = None
    point_message_bytes: Annotated[int | None, Column("point_bpm")] = None
    profile: Annotated[RateProfile | None, NO_COLUMN] = None
    parts: Annotated[tuple[TrafficPattern, ...], NO_COLUMN] = ()
    at_scale_1: Annotated[TrafficPattern | None, NO_COLUMN] = None
    mix: Mapping[str, str] = field(default_factory=dict)

    @property
    def part(self) -> str:
        """Name of the part of a mix that this pattern is; empty for other traffic."""
        return self.producer.part

    def as_part(self, name: str) -> TrafficPattern:
        """This pattern as a part of a mix."""
        return replace(self, producer=replace(self.producer, part=name))

    @property
    def loads(self) -> tuple[TrafficPattern, ...]:
        """The parts of a mix; this pattern alone where it is none, which is a mix of one."""
        return self.parts or (self,)

    @column
    def rate_profile(self) -> str | None:
        """Name of the profile of the rate over time, or null."""
        return None if self.profile is None else self.profile.name

    @property
    def peak_share(self) -> float:
        """The highest share of the full rate that is offered at any time [ratio]."""
        return 1.0 if self.profile is None else self.profile.peak

    @property
    def peak_mb_per_s(self) -> float:
        """The highest payload that all producers offer at any time [MB/s]."""
        return self.mb_per_s * self.peak_share

    @property
    def message_bytes(self) -> int:
        """Mean bytes per message [B]."""
        return self.producer.message_bytes

    @property
    def on_axis(self) -> int:
        """The load on the searched axis."""
        return self.producers if self.load is None else self.load

    @property
    def records_per_s(self) -> float:
        """Records that all producers offer [1/s]; inf in a closed loop."""
        return sum(each.producers * each.producer.rate_records_per_s for each in self.loads)

    @property
    def mb_per_s(self) -> float:
        """Payload that all producers offer [MB/s]."""
        if self.parts:
            return sum(each.mb_per_s for each in self.parts)
        return self.records_per_s * self.message_bytes / 1e6

    def written_bytes(self, records: float) -> float:
        """Payload of a number of records in all replicas, in a mix in its proportions [B]."""
        if self.parts:
            share = records / self.records_per_s
            return sum(each.written_bytes(each.records_per_s * share) for each in self.parts)
        return records * self.message_bytes * self.topic.replication_factor

    @property
    def partitions(self) -> int:
        """Partitions of all topics."""
        counts = (
            each.brokers * each.topic.partitions_per_broker * each.topic.count
            for each in self.loads
        )
        return sum(counts)

    @property
    def connections_per_broker(self) -> int:
        """Connections of producers and members of groups to each broker."""
        return sum(each.producers + each.consumers.members_total for each in self.loads)

    @property
    def groups(self) -> int:
        """Consumer groups of all parts."""
        return sum(each.consumers.groups for each in self.loads)

    def commits_per_s(self, partitions: int) -> float:
        """Highest rate of commits of all groups, which brokers count as messages [1/s].

        Args:
            partitions: number of partitions that the topics really have, in all.
        """
        if self.parts:
            return sum(each.commits_per_s(each.partitions) for each in self.parts)
        return self.consumers.commits_per_s(partitions)

    def with_phases(self, phases: Phases) -> TrafficPattern:
        """The same traffic with these phases, in all parts of a mix."""
        parts = tuple(each.with_phases(phases) for each in self.parts)
        return replace(self, phases=phases, parts=parts)

    def with_profile(self, profile: RateProfile | None) -> TrafficPattern:
        """The same traffic with a change of the rate over time, in all parts of a mix."""
        parts = tuple(each.with_profile(profile) for each in self.parts)
        return replace(self, profile=profile, parts=parts)

    @property
    def records_each(self) -> int | None:
        """Records that each producer offers where the volume is fixed; None otherwise."""
        volume = self.phases.volume_bytes
        return None if volume is None else -(-volume // (self.producers * self.message_bytes))

    @property
    def planned_records(self) -> float:
        """Records that all producers offer if the load runs to its end; inf in a closed loop."""
        load_s = self.phases.load_s
        if self.profile is not None:
            before_s = -self.profile.passed_s(-self.phases.warmup_s)
            load_s = before_s + self.profile.passed_s(self.phases.measure_s)
        records = self.records_per_s * load_s
        if self.records_each is not None:
            records = min(records, self.records_each * self.producers)
        return records

    @property
    def planned_bytes(self) -> float:
        """Payload that the load writes in all replicas if it runs to its end without errors [B]."""
        return self.written_bytes(self.planned_records)

"""The traffic pattern of a load: its topics, producers, consumer groups and phases."""

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
"""Maximum number of partitions that a broker leads in one topic."""

LEADERS_MAX = 1_000_000
"""Maximum number of partitions that a broker leads, summed over all topics. The maximum only
detects typos in a configuration. A broker itself refuses more partitions than it can lead."""

RETENTION_BYTES = 1_073_741_824
"""Default of `retention.bytes` for a partition [B]. In Kafka, the default of `retention.bytes` is
-1, which means no limit."""

SAMPLES_MIN = 4
"""Minimum number of samples of a broker in the measured window, so that a share of the samples is a
useful figure."""


@dataclass(frozen=True, kw_only=True)
class TopicOptions:
    """Options of the topics that are created for each message size.

    Attributes:
        count: number of topics. All topics have equal options. Each producer writes to one topic;
            topics are assigned to producers in turn. Each consumer group reads all topics.
        partitions_per_broker: for each topic, the number of its partitions that each broker leads.
        replication_factor: number of replicas of a partition, including the leader.
        config: topic properties with Kafka's names. The default of `retention.bytes` is 1 GiB.
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
        """Refuse options with more in-sync replicas than replicas, or with more partitions than a
        broker can lead.

        Raises:
            ValueError: the message has the given and the expected values, and the remedy.
        """
        leaders = self.count * self.partitions_per_broker
        if leaders > LEADERS_MAX:
            raise ValueError(
                f"count is {self.count} and partitions_per_broker {self.partitions_per_broker}, so "
                f"each broker leads {leaders:,} partitions; expected at most {LEADERS_MAX:,} "
                "partitions over all topics; lower count or partitions_per_broker"
            )
        wanted = self.config.get("min.insync.replicas", "1")
        if wanted.isdigit() and int(wanted) > self.replication_factor:
            raise ValueError(
                f"config min.insync.replicas is {wanted} and replication_factor "
                f"{self.replication_factor}; expected at most as many in-sync replicas as "
                "replicas, because otherwise records with acks=all cannot be written; change "
                "min.insync.replicas or replication_factor"
            )


@dataclass(frozen=True, kw_only=True)
class Phases:
    """The phases of one trial.

    Attributes:
        ramp_up_s: time in which the rate grows linearly from 0. `ramp_up_s` is a part of
            `warmup_s`.
        warmup_s: time under load before the measured window.
        measure_s: length of the measured window, unless the window ends early.
        drain_timeout_s: longest wait for the last acknowledgements.
        volume_bytes: total payload of all producers [B]; each producer writes an equal share.
            Without `volume_bytes`, producers offer records until the end of the window.
        sample_interval_s: time between two samples of a broker.
        early_end_error_rate: highest probability [ratio] that the early end of a window changes the
            verdict. With an `early_end_error_rate` of 0, windows do not end early.
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
        """The rule for the early end of a window; None if windows do not end early."""
        return StopRule(self.early_end_error_rate) if self.early_end_error_rate else None

    @property
    def in_full(self) -> Phases:
        """These phases with windows that do not end early; fixed loads use the result."""
        return replace(self, early_end_error_rate=0.0)

    @property
    def load_s(self) -> float:
        """Duration of a trial under load: the warm-up and the measured window [s]."""
        return self.warmup_s + self.measure_s

    def require_consistent(self) -> None:
        """Refuse phases that contradict each other.

        Raises:
            ValueError: the message has the given and the expected values, and the remedy.
        """
        if self.ramp_up_s > self.warmup_s:
            raise ValueError(
                f"ramp_up_s is {self.ramp_up_s:g} and warmup_s {self.warmup_s:g}; expected a "
                "ramp_up_s of at most warmup_s, so that the full rate is reached before the "
                "measured window; lower ramp_up_s or raise warmup_s"
            )
        if self.measure_s < SAMPLES_MIN * self.sample_interval_s:
            raise ValueError(
                f"measure_s is {self.measure_s:g} and sample_interval_s "
                f"{self.sample_interval_s:g}; expected a window of at least {SAMPLES_MIN} samples; "
                "raise measure_s or lower sample_interval_s"
            )


@dataclass(frozen=True)
class TrafficPattern:
    """A traffic pattern with the phases of its trial.

    Attributes:
        producers: number of identical producers.
        producer: traffic of each producer.
        topic: options of the topics.
        consumers: consumer groups that read while the producers write.
        phases: the warm-up, the window and the drain of the trial.
        brokers: number of brokers of the cluster.
        axis, load: the searched axis, and the load of this pattern on the axis.
        point_message_bytes: message size of the boundary point that this load tests [B].
        profile: change of the rate over time; None for a constant rate.
        parts: the parts of a mix, which are all in one load; empty if the traffic is not a mix.
        at_scale_1: this pattern at scale 1; None if the load of the pattern was not scaled.
        mix: part of a mix → its producers at scale 1, and its options that differ from the
            defaults; empty for other traffic. Other columns of a mix are sums and means over its
            parts, or options of the part with the most payload.
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
        """Name of this pattern as a part of a mix; empty if it is not a part."""
        return self.producer.part

    def as_part(self, name: str) -> TrafficPattern:
        """This pattern as a part of a mix."""
        return replace(self, producer=replace(self.producer, part=name))

    @property
    def loads(self) -> tuple[TrafficPattern, ...]:
        """The parts of a mix. If the traffic is not a mix, this pattern is the only part."""
        return self.parts or (self,)

    @column
    def rate_profile(self) -> str | None:
        """Name of the profile (the course of the rate over time); null for a constant rate."""
        return None if self.profile is None else self.profile.name

    @property
    def peak_share(self) -> float:
        """The highest offered share of the full rate at any time [ratio]."""
        return 1.0 if self.profile is None else self.profile.peak

    @property
    def peak_mb_per_s(self) -> float:
        """The highest total payload rate of all producers at any time [MB/s]."""
        return self.mb_per_s * self.peak_share

    @property
    def message_bytes(self) -> int:
        """Mean bytes per message [B]."""
        return self.producer.message_bytes

    @property
    def on_axis(self) -> int:
        """The load of this pattern on the searched axis."""
        return self.producers if self.load is None else self.load

    @property
    def records_per_s(self) -> float:
        """Total rate of records of all producers [1/s]; infinite in a closed loop."""
        return sum(each.producers * each.producer.rate_records_per_s for each in self.loads)

    @property
    def mb_per_s(self) -> float:
        """Total payload rate of all producers [MB/s]."""
        if self.parts:
            return sum(each.mb_per_s for each in self.parts)
        return self.records_per_s * self.message_bytes / 1e6

    def written_bytes(self, records: float) -> float:
        """Payload of a number of records, summed over all replicas [B].

        In a mix, each part writes a number of records in proportion to its rate.
        """
        if self.parts:
            share = records / self.records_per_s
            return sum(each.written_bytes(each.records_per_s * share) for each in self.parts)
        return records * self.message_bytes * self.topic.replication_factor

    @property
    def partitions(self) -> int:
        """Total number of partitions in all topics."""
        return sum(
            each.brokers * each.topic.partitions_per_broker * each.topic.count
            for each in self.loads
        )

    @property
    def connections_per_broker(self) -> int:
        """Number of connections of producers and of consumer group members to each broker."""
        return sum(each.producers + each.consumers.members_total for each in self.loads)

    @property
    def groups(self) -> int:
        """Total number of consumer groups in all parts."""
        return sum(each.consumers.groups for each in self.loads)

    def commits_per_s(self, partitions: int) -> float:
        """Highest rate of offset commits of all groups [1/s]. Brokers count commits as messages.

        Args:
            partitions: actual number of partitions in all topics.
        """
        if self.parts:
            return sum(each.commits_per_s(each.partitions) for each in self.parts)
        return self.consumers.commits_per_s(partitions)

    def with_phases(self, phases: Phases) -> TrafficPattern:
        """This traffic with other phases. In a mix, all parts get these phases."""
        parts = tuple(each.with_phases(phases) for each in self.parts)
        return replace(self, phases=phases, parts=parts)

    def with_profile(self, profile: RateProfile | None) -> TrafficPattern:
        """This traffic with another profile of the rate over time.

        In a mix, all parts get this profile.
        """
        parts = tuple(each.with_profile(profile) for each in self.parts)
        return replace(self, profile=profile, parts=parts)

    @property
    def records_each(self) -> int | None:
        """Number of records that each producer offers; None if the volume is not fixed."""
        volume = self.phases.volume_bytes
        return None if volume is None else -(-volume // (self.producers * self.message_bytes))

    @property
    def planned_records(self) -> float:
        """Number of records of all producers if the load does not end early; infinite in a closed
        loop.
        """
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
        """Payload of the load, summed over all replicas, if the load does not end early and has no
        errors [B].
        """
        return self.written_bytes(self.planned_records)

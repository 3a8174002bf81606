"""The traffic pattern to search along, and how a trial of it runs."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from jobs.config.base import ConfigModel, Name, Number, Properties, Whole
from jobs.config.consumers import Consumers
from jobs.config.payload import Payload
from jobs.config.producer import Producer
from jobs.engine.sizes import MESSAGE_BYTES_MAX
from search.early_stop import StopRule

RECORDS_MIN = 10
"""Records that one producer offers at least in the measured window: with fewer, the achieved
share is too coarse to judge."""
CYCLES_TOLERANCE = 0.001
SAMPLES_MIN = 4
"""Samples of a broker at least in the measured window: shares of samples need some."""


class Topic(ConfigModel):
    """The fresh topics that are made for each message size.

    Attributes:
        count: topics, all of the same shape; producers take them in turns, one each, and
            every consumer group reads all of them.
        partitions_per_broker: partitions that each broker leads.
        replication_factor: replicas of a partition, the leader among them.
        config: topic properties by Kafka's names.
    """

    count: Annotated[int, Whole(1, 1_000, "topics")] = 1
    partitions_per_broker: Annotated[int, Whole(1, 1_000, "partitions")] = 10
    replication_factor: Annotated[int, Whole(1, 32, "replicas")]
    config: Properties = Field(default_factory=dict)

    @model_validator(mode="after")
    def _insync_replicas_exist(self) -> Topic:
        wanted = self.config.get("min.insync.replicas", "1")
        if wanted.isdigit() and int(wanted) > self.replication_factor:
            raise ValueError(
                f"config min.insync.replicas is {wanted} and replication_factor "
                f"{self.replication_factor}; expected at most as many in-sync replicas as "
                "replicas, or nothing can be written with acks=all; change one of them"
            )
        return self


class Trial(ConfigModel):
    """The phases of one trial.

    Attributes:
        ramp_up_s: how long the rate grows evenly from 0, as a part of warmup_s [s].
        warmup_s: load before the measured window [s].
        measure_s: the measured window [s].
        drain_timeout_s: how long to wait for the last acknowledgements [s].
        sample_interval_s: between two samples of a broker [s].
        early_end_error_rate: a window ends as soon as its verdict would change with no
            more than this probability if it went on [ratio]; 0 holds every trial for its
            full time.
    """

    ramp_up_s: Annotated[float, Number(0, 3_600, "seconds")] = 0.0
    warmup_s: Annotated[float, Number(0, 3_600, "seconds")]
    measure_s: Annotated[float, Number(1, 86_400, "seconds")]
    drain_timeout_s: Annotated[float, Number(0, 600, "seconds", above=True)] = 10.0
    sample_interval_s: Annotated[float, Number(0.05, 60, "seconds")] = 1.0
    early_end_error_rate: Annotated[float, Number(0, 0.2)] = 0.01

    @property
    def stop_rule(self) -> StopRule | None:
        """When a window may end early; None when it never may."""
        return StopRule(self.early_end_error_rate) if self.early_end_error_rate else None

    @model_validator(mode="after")
    def _ramps_up_before_the_window(self) -> Trial:
        if self.ramp_up_s > self.warmup_s:
            raise ValueError(
                f"ramp_up_s is {self.ramp_up_s:g} and warmup_s {self.warmup_s:g}; expected the "
                "full rate before the measured window; ramp up faster or warm up longer"
            )
        return self

    @model_validator(mode="after")
    def _enough_samples(self) -> Trial:
        if self.measure_s < SAMPLES_MIN * self.sample_interval_s:
            raise ValueError(
                f"measure_s is {self.measure_s:g} and sample_interval_s "
                f"{self.sample_interval_s:g}; expected a window of at least {SAMPLES_MIN} samples; "
                "measure longer or sample more often"
            )
        return self

    @property
    def load_s(self) -> float:
        """How long a trial loads the brokers [s]."""
        return self.warmup_s + self.measure_s


class Workload(ConfigModel):
    """What is offered: the sizes of the boundary line, and all that is fixed along it.

    Attributes:
        name: the file's name without .yaml unless the file says another.
        description: a sentence for people.
        message_bytes: mean sizes of a message's key and value together, in the order of
            the search [B].
        np: producers, when the search is along another axis; left out when along np.
    """

    name: Name
    description: str = ""
    message_bytes: Annotated[
        tuple[Annotated[int, Whole(1, MESSAGE_BYTES_MAX, "bytes")], ...],
        Field(strict=False, min_length=1, max_length=100),
    ]
    np: Annotated[int, Whole(1, 100_000, "producers")] | None = None
    producer: Producer
    payload: Payload = Payload()
    topic: Topic
    trial: Trial
    consumers: Consumers = Consumers()

    def trouble_with_size(self, bpm: int) -> str | None:
        """Why messages of this mean size [B] have no room, or None when they have."""
        largest = self.payload.distribution.largest(bpm)
        rooms = {
            "producer.buffer_memory": self.producer.buffer_memory,
            "payload.pool_bytes": self.payload.pool_bytes,
        }
        for key, room in rooms.items():
            if room < 2 * largest:
                return (
                    f"{key} is {room} and the largest message {largest} B; expected room "
                    f"for two messages at least; raise {key} to {2 * largest} or more"
                )
        return None

    @model_validator(mode="after")
    def _sizes_differ(self) -> Workload:
        twice = sorted({size for size in self.message_bytes if self.message_bytes.count(size) > 1})
        if twice:
            raise ValueError(
                f"message_bytes holds {twice[0]} more than once; expected each size once; "
                "remove the repetition"
            )
        return self

    @model_validator(mode="after")
    def _sizes_fit(self) -> Workload:
        sizes = self.payload.distribution
        smallest = sizes.quantile(min(self.message_bytes), 0.0)
        if smallest < self.payload.key_bytes:
            raise ValueError(
                f"payload.key_bytes is {self.payload.key_bytes} and the smallest message "
                f"{smallest} B, key and value together; expected room for the key in every "
                "message; shorten the keys, or raise message_bytes"
            )
        problem = self.trouble_with_size(max(self.message_bytes))
        if problem is not None:
            raise ValueError(problem)
        return self

    @model_validator(mode="after")
    def _keys_are_ignored(self) -> Workload:
        if self.payload.key_bytes and not self.producer.partitioner_ignore_keys:
            raise ValueError(
                f"payload.key_bytes is {self.payload.key_bytes} and "
                "producer.partitioner_ignore_keys false; expected true, as partitions chosen by "
                "the key's hash are not offered; set it, and messages with keys go to the "
                "sticky partition, as with Kafka's partitioner.ignore.keys=true"
            )
        return self

    @model_validator(mode="after")
    def _windows_suit_arrivals(self) -> Workload:
        producer, trial = self.producer, self.trial
        if producer.arrivals != "fixed" and trial.early_end_error_rate:
            raise ValueError(
                f"producer.arrivals is {producer.arrivals} and trial.early_end_error_rate "
                f"{trial.early_end_error_rate:g}; expected 0, as a window is ended early by what "
                "an even rate would have offered so far; set it to 0"
            )
        cycle_s = producer.burst_on_s + producer.burst_off_s
        cycles = trial.measure_s / cycle_s
        is_whole = round(cycles) >= 1 and abs(cycles - round(cycles)) < CYCLES_TOLERANCE * cycles
        if producer.arrivals == "bursts" and not is_whole:
            raise ValueError(
                f"trial.measure_s is {trial.measure_s:g} and a burst with its pause "
                f"{cycle_s:g} s; expected a window of whole bursts, or its rate is not the mean; "
                f"set measure_s to {max(1, round(cycles)) * cycle_s:g}, or change the bursts"
            )
        return self

    @model_validator(mode="after")
    def _enough_records(self) -> Workload:
        for size in self.message_bytes:
            records = self.producer.records_per_s(size) * self.trial.measure_s
            if records < RECORDS_MIN:
                raise ValueError(
                    f"a producer would offer {records:.2g} messages of {size} B in "
                    f"trial.measure_s {self.trial.measure_s:g}; expected {RECORDS_MIN} or more, "
                    "or the achieved share says nothing; raise the producer's rate or measure_s"
                )
        return self

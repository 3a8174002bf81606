"""The workload: the traffic pattern of a search, the parts of a mix, and the phases of trials."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from jobs.config.base import ConfigModel, FileSection, Name
from jobs.config.yaml_file import ParsedFile
from metrics.common.bounds import Text, Whole
from metrics.common.errors import ConfigError
from metrics.planning.load_needs import slots_needed
from metrics.traffic.clients import ConsumerOptions, ProducerOptions, ProducerPattern
from metrics.traffic.mix import mean_message_bytes, mix_of
from metrics.traffic.pattern import Phases, TopicOptions, TrafficPattern
from metrics.traffic.payload import MESSAGE_BYTES_MAX, Payload

MIX = "mix"
_SECTIONS = ("producer", "payload", "topic", "consumers")
OF_PARTS = ("message_bytes", "np", *_SECTIONS)
"""Keys that a mix has in each of its parts, and not at the top level of the workload."""

PartName = Annotated[
    str,
    Text(r"[A-Za-z0-9_-]{1,40}", "a name of at most 40 letters, digits, dashes and underscores"),
]


class MixPart(ConfigModel):
    """One traffic pattern of a mix; its sections have the same keys as a workload's sections.

    Attributes:
        producers: number of producers at scale 1.
        message_bytes: mean size of a message's key and value together [B].
    """

    producers: Annotated[int, Whole(1, 100_000, "producers")]
    message_bytes: Annotated[int, Whole(1, MESSAGE_BYTES_MAX, "bytes")]
    producer: Annotated[ProducerOptions, FileSection()]
    payload: Annotated[Payload, FileSection()] = Payload()
    topic: Annotated[TopicOptions, FileSection()]
    consumers: Annotated[ConsumerOptions, FileSection()] = ConsumerOptions()


def sections_of_mix(source: ParsedFile) -> dict[str, Any]:
    """The data of a workload's file; for a mix, the sections of the first part are added.

    The added sections are placeholders. After the check of all parts, `Workload` replaces the
    placeholders with the sections of the whole workload.

    Raises:
        ConfigError: next to `mix`, the file has a key that belongs in the parts.
    """
    data = source.data
    parts = data.get(MIX)
    if parts is None:
        return data
    for key in OF_PARTS:
        if data.get(key) is not None:
            raise ConfigError(
                f"{source.origin((key,))}: {key} is given next to {MIX}; expected {key} in each "
                f"part of the mix; move {key} into the parts, or remove {MIX}"
            )
    first = next(iter(parts.values()), None) if isinstance(parts, Mapping) else None
    known = first if isinstance(first, Mapping) else {}
    sections = {key: known[key] for key in OF_PARTS if key in known}
    if "message_bytes" in sections:
        sections["message_bytes"] = [sections["message_bytes"]]
    return {**data, **sections}


RECORDS_MIN = 10
"""Smallest number of records of one producer in the measured window. With fewer records, the
achieved share would be too coarse."""
CYCLES_TOLERANCE = 0.001


class Workload(ConfigModel):
    """The traffic to offer: the message sizes of the boundary line, and all fixed options.

    Attributes:
        name: the name of the workload in tables.
        description: a sentence for readers.
        message_bytes: mean sizes of a message, key and value together [B]; each size once, in the
            order of the search.
        notes: sentences for readers of plans.
        np: number of producers, if the search varies another quantity than np; not given if the
            search varies np.
        mix: name → part of a mix, which offers several traffic patterns in one load
            (docs/mixes.md). Each part of a mix has `producers`, one `message_bytes`, and the
            sections `producer`, `payload`, `topic` and `consumers`; a workload with parts has none
            of these keys itself.
    """

    name: Name
    description: str = ""
    message_bytes: Annotated[
        tuple[Annotated[int, Whole(1, MESSAGE_BYTES_MAX, "bytes")], ...],
        Field(strict=False, min_length=1, max_length=100),
    ]
    notes: Annotated[tuple[str, ...], Field(strict=False)] = ()
    np: Annotated[int, Whole(1, 100_000, "producers")] | None = None
    producer: Annotated[ProducerOptions, FileSection()]
    payload: Annotated[Payload, FileSection()] = Payload()
    topic: Annotated[TopicOptions, FileSection()]
    trial: Annotated[Phases, FileSection()]
    consumers: Annotated[ConsumerOptions, FileSection()] = ConsumerOptions()
    mix: Annotated[Mapping[PartName, MixPart], Field(min_length=1)] | None = None

    @property
    def parts(self) -> tuple[Workload, ...]:
        """The parts of a mix, each as a workload with a fixed number of producers.

        A workload that is not a mix has one part, the workload itself.
        """
        if self.mix is None:
            return (self,)
        return tuple(
            Workload.model_construct(
                name=name,
                message_bytes=(part.message_bytes,),
                np=part.producers,
                trial=self.trial,
                **{key: getattr(part, key) for key in _SECTIONS},
            )
            for name, part in self.mix.items()
        )

    def pattern(self, message_bytes: int, brokers: int = 0, producers: int = 1) -> TrafficPattern:
        """The traffic of this workload at one message size. The value of the axis is not set yet;
        each load sets it later.

        Args:
            message_bytes: mean size of a message [B]; ignored for a mix.
            brokers: number of brokers of the cluster.
            producers: number of producers, if the workload does not have np.

        Returns:
            The traffic pattern; for a mix all parts at scale 1.
        """
        if self.mix is not None:
            return mix_of(
                [
                    part.pattern(part.message_bytes[0], brokers).as_part(part.name)
                    for part in self.parts
                ]
            )
        rate = self.producer.records_per_s(message_bytes)
        return TrafficPattern(
            producers=self.np or producers,
            producer=ProducerPattern(message_bytes, rate, self.producer, self.payload),
            topic=self.topic,
            phases=self.trial,
            consumers=self.consumers,
            brokers=brokers,
            point_message_bytes=message_bytes,
        )

    @property
    def slots_least(self) -> int:
        """The smallest number of Spark's slots that a trial requires."""
        return slots_needed(self.pattern(self.message_bytes[0]))

    def trouble_with_size(self, message_bytes: int) -> str | None:
        """The reason why messages of this mean size [B] do not fit into the buffers; None if they
        fit.
        """
        largest = self.payload.distribution.largest(message_bytes)
        rooms = {
            "producer.buffer_memory": self.producer.buffer_memory,
            "payload.pool_bytes": self.payload.pool_bytes,
        }
        for key, room in rooms.items():
            if room < 2 * largest:
                return (
                    f"{key} is {room} and the largest message has {largest} B; expected room "
                    f"for at least two messages; raise {key} to {2 * largest} or more"
                )
        return None

    def require_consistent(self) -> None:
        """See `ConfigModel.require_consistent`."""
        if self.mix is not None:
            self._mix_is_consistent()
            return
        self._require_distinct("message_bytes", "has", "size")
        self._sizes_fit()
        self._keys_are_ignored()
        self._closed_loop_has_no_times()
        self._transactions_suit_the_rest()
        self._windows_suit_arrivals()
        self._enough_records()

    def _mix_is_consistent(self) -> None:
        """Check each part as a separate workload, and set the sections of the whole workload.

        The message size of the whole workload is the mean message size of all parts. The sections
        of the whole workload are the sections of the part with the highest payload rate.
        """
        if self.trial.volume_bytes is not None:
            raise ValueError(
                f"trial.volume_bytes is {self.trial.volume_bytes} in a mix; expected none, because "
                "parts would end at different times; remove trial.volume_bytes"
            )
        for part in self.parts:
            try:
                if part.producer.rate is not None:
                    raise ValueError(
                        f"producer.rate is {part.producer.rate}; expected rate_bytes_per_s or "
                        "rate_records_per_s, because a scale multiplies rates; set one of them"
                    )
                part.require_consistent()
            except ValueError as error:
                raise ValueError(f"mix.{part.name}: {error}") from None
        largest = max(self.parts, key=lambda each: each.pattern(each.message_bytes[0]).mb_per_s)
        mean = mean_message_bytes([each.pattern(each.message_bytes[0]) for each in self.parts])
        sections = {key: getattr(largest, key) for key in _SECTIONS}
        whole = {"message_bytes": (mean,), "np": None, **sections}
        for key, value in whole.items():
            object.__setattr__(self, key, value)

    def _sizes_fit(self) -> None:
        sizes = self.payload.distribution
        smallest = sizes.quantile(min(self.message_bytes), 0.0)
        if smallest < self.payload.key_bytes:
            raise ValueError(
                f"payload.key_bytes is {self.payload.key_bytes} and the smallest message has "
                f"{smallest} B for key and value together; expected room for the key in every "
                "message; lower payload.key_bytes, or raise message_bytes"
            )
        problem = self.trouble_with_size(max(self.message_bytes))
        if problem is not None:
            raise ValueError(problem)

    def _keys_are_ignored(self) -> None:
        if self.payload.key_bytes and not self.producer.partitioner_ignore_keys:
            raise ValueError(
                f"payload.key_bytes is {self.payload.key_bytes} and "
                "producer.partitioner_ignore_keys is false; expected true, because the choice of "
                "partitions by the hash of keys is not supported; set it to true, so that messages "
                "with keys go to the sticky partition, as with Kafka's partitioner.ignore.keys=true"
            )

    def _closed_loop_has_no_times(self) -> None:
        producer, trial = self.producer, self.trial
        if producer.rate is not None and (producer.arrivals != "fixed" or trial.ramp_up_s):
            raise ValueError(
                f"producer.rate is {producer.rate} with producer.arrivals {producer.arrivals} and "
                f"trial.ramp_up_s {trial.ramp_up_s:g}; expected arrivals fixed and no ramp, "
                "because a closed loop sends when brokers have answered, not at scheduled times; "
                "remove arrivals and ramp_up_s"
            )

    def _transactions_suit_the_rest(self) -> None:
        duration_ms, consumers = self.producer.transaction_duration_ms, self.consumers
        if duration_ms is None:
            return
        if consumers.groups and consumers.client != "wire":
            raise ValueError(
                f"producer.transaction_duration_ms is {duration_ms:g} and consumers.client is "
                f"{consumers.client}; expected consumers.client wire, because other clients cannot "
                "distinguish the ends of transactions from missed records; set it to wire"
            )
        for size in self.message_bytes:
            records = self.producer.records_per_s(size) * duration_ms / 1000.0
            if records < 1:
                raise ValueError(
                    f"a producer would offer {records:.2g} messages of {size} B in a transaction "
                    f"of {duration_ms:g} ms; expected at least one message per transaction; raise "
                    "producer.transaction_duration_ms, or the producer's rate"
                )

    def _windows_suit_arrivals(self) -> None:
        producer, trial = self.producer, self.trial
        if producer.arrivals != "fixed" and trial.early_end_error_rate:
            raise ValueError(
                f"producer.arrivals is {producer.arrivals} and trial.early_end_error_rate is "
                f"{trial.early_end_error_rate:g}; expected 0, because the early end of a window "
                "requires a constant rate; set early_end_error_rate to 0"
            )
        cycle_s = producer.burst_on_s + producer.burst_off_s
        cycles = trial.measure_s / cycle_s
        is_whole = round(cycles) >= 1 and abs(cycles - round(cycles)) < CYCLES_TOLERANCE * cycles
        if producer.arrivals == "bursts" and not is_whole:
            raise ValueError(
                f"trial.measure_s is {trial.measure_s:g} and a burst with its pause lasts "
                f"{cycle_s:g} s; expected a multiple of this time, so that the window has the mean "
                f"rate; set measure_s to {max(1, round(cycles)) * cycle_s:g}, or change the bursts"
            )

    def _enough_records(self) -> None:
        for size in self.message_bytes:
            records = self.producer.records_per_s(size) * self.trial.measure_s
            if records < RECORDS_MIN:
                raise ValueError(
                    f"a producer would offer {records:.2g} messages of {size} B in "
                    f"trial.measure_s {self.trial.measure_s:g}; expected {RECORDS_MIN} or more, so "
                    "that the achieved share is precise; raise the producer's rate, or measure_s"
                )

"""The traffic pattern to search along, and how a trial of it runs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from jobs.config.base import ConfigModel, Name, Number, Properties, Whole, unexpected
from jobs.config.consumers import Consumers
from search.early_stop import StopRule

MESSAGE_BYTES_MAX = 10_000_000
RECORDS_MIN = 10
"""Records that one producer offers at least in the measured window: with fewer, the achieved
share is too coarse to judge."""
SAMPLES_MIN = 4
"""Samples of a broker at least in the measured window: shares of samples need some."""

Acks = Literal["0", "1", "all"]


def _as_acks(value: Any) -> Any:
    """YAML reads a bare 0 or 1 as a number, and -1 is Kafka's other word for all."""
    spellings = {0: "0", 1: "1", -1: "all", "0": "0", "1": "1", "-1": "all", "all": "all"}
    if isinstance(value, bool) or not isinstance(value, (int, str)) or value not in spellings:
        raise unexpected("0, 1 or all")
    return spellings[value]


class Producer(ConfigModel):
    """One of the np identical producers; keys are named like Kafka's producer options.

    Attributes:
        client: what sends: "wire", batches that were encoded before, or a library.
        rate_bytes_per_s: payload that it offers [B/s]; this or the next, not both.
        rate_records_per_s: records that it offers [1/s].
        acks: "0", "1" or "all".
        linger_ms: how long an unfilled batch waits for more records [ms].
        batch_size: upper bound of a record batch, one record excepted [B].
        max_in_flight: unacknowledged requests per connection.
        buffer_memory: full batches that may wait for a slow broker [B].
        max_request_size: upper bound of a produce request, one batch excepted [B].
        request_timeout_ms: an unanswered request fails after this time [ms].
    """

    client: Literal["wire", "kafka-python", "librdkafka"] = "wire"
    rate_bytes_per_s: (
        Annotated[float, Number(0, 10_000_000_000, "bytes per second", above=True)] | None
    ) = None
    rate_records_per_s: (
        Annotated[float, Number(0, 100_000_000, "records per second", above=True)] | None
    ) = None
    acks: Annotated[Acks, BeforeValidator(_as_acks)] = "1"
    linger_ms: Annotated[float, Number(0, 60_000, "milliseconds")] = 5.0
    batch_size: Annotated[int, Whole(0, 16_777_216, "bytes")] = 16_384
    max_in_flight: Annotated[int, Whole(1, 1_000, "requests")] = 5
    buffer_memory: Annotated[int, Whole(1_024, 10_000_000_000, "bytes")] = 33_554_432
    max_request_size: Annotated[int, Whole(1_024, 100_000_000, "bytes")] = 1_048_576
    request_timeout_ms: Annotated[int, Whole(100, 600_000, "milliseconds")] = 30_000

    @model_validator(mode="after")
    def _one_rate(self) -> Producer:
        given = [rate for rate in (self.rate_bytes_per_s, self.rate_records_per_s) if rate]
        if len(given) != 1:
            have = "both are given" if given else "neither is given"
            raise ValueError(
                f"{have}; expected exactly one of rate_bytes_per_s and rate_records_per_s; "
                "set one and leave the other out, or set it to null"
            )
        return self

    @property
    def acks_code(self) -> int:
        """`acks` as the protocol has it: 0, 1, or -1 for all."""
        return -1 if self.acks == "all" else int(self.acks)

    def records_per_s(self, message_bytes: int) -> float:
        """Records that one producer offers at this message size [1/s]."""
        if self.rate_records_per_s is not None:
            return self.rate_records_per_s
        assert self.rate_bytes_per_s is not None, "checked by _one_rate"
        return self.rate_bytes_per_s / message_bytes

    def bytes_per_s(self, message_bytes: int) -> float:
        """Payload that one producer offers at this message size [B/s]."""
        return self.records_per_s(message_bytes) * message_bytes


class Payload(ConfigModel):
    """What the records hold.

    Attributes:
        kind: "random", incompressible bytes.
        seed: of the random bytes and of the choice of partitions.
        pool_bytes: encoded records that a task keeps to send from [B].
    """

    kind: Literal["random"] = "random"
    seed: Annotated[int, Whole(0, 2**63 - 1)] = 1
    pool_bytes: Annotated[int, Whole(65_536, 1_000_000_000, "bytes")] = 8_388_608


class Topic(ConfigModel):
    """The fresh topic that is made for each message size.

    Attributes:
        partitions_per_broker: partitions that each broker leads.
        replication_factor: replicas of a partition, the leader among them.
        config: topic properties by Kafka's names.
    """

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
        warmup_s: load before the measured window [s].
        measure_s: the measured window [s].
        drain_timeout_s: how long to wait for the last acknowledgements [s].
        sample_interval_s: between two samples of a broker [s].
        early_end_error_rate: a window ends as soon as its verdict would change with no
            more than this probability if it went on [ratio]; 0 holds every trial for its
            full time.
    """

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
        message_bytes: sizes of a message's value, in the order of the search [B].
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
        largest = max(self.message_bytes)
        rooms = {
            "producer.buffer_memory": self.producer.buffer_memory,
            "payload.pool_bytes": self.payload.pool_bytes,
        }
        for key, room in rooms.items():
            if room < 2 * largest:
                raise ValueError(
                    f"{key} is {room} and the largest of message_bytes {largest}; expected room "
                    f"for two messages at least; raise {key} to {2 * largest} or more"
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

"""What each of the np identical producers does."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, model_validator

from jobs.config.base import ConfigModel, Number, Whole, unexpected

IDEMPOTENT_IN_FLIGHT_MAX = 5
"""Brokers remember so many batches of a producer in a partition."""

_INT_MAX = 2_147_483_647

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
        retries: how often a batch is sent again after an error that may pass.
        retry_backoff_ms, retry_backoff_max_ms: wait before the first retry, doubled for each
            further one up to the second [ms].
        delivery_timeout_ms: a batch fails so long after its first record was due [ms].
        enable_idempotence: whether brokers drop what they have already.
        send_buffer_bytes, receive_buffer_bytes: of the sockets, -1 for the kernel's tuning [B].
        compression: codec of the batches.
        arrivals: "fixed", evenly spaced; "poisson"; or "bursts", at the same mean rate.
        burst_on_s, burst_off_s: of "bursts": how long one lasts, and the pause after it [s].
        partitioner_ignore_keys: whether messages with keys go to the sticky partition too.
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
    retries: Annotated[int, Whole(0, _INT_MAX, "retries")] = _INT_MAX
    retry_backoff_ms: Annotated[float, Number(1, 60_000, "milliseconds")] = 100.0
    retry_backoff_max_ms: Annotated[float, Number(1, 60_000, "milliseconds")] = 1_000.0
    delivery_timeout_ms: Annotated[int, Whole(100, 3_600_000, "milliseconds")] = 120_000
    enable_idempotence: bool = False
    send_buffer_bytes: Annotated[int, Whole(-1, 1_000_000_000, "bytes")] = -1
    receive_buffer_bytes: Annotated[int, Whole(-1, 1_000_000_000, "bytes")] = -1
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "none"
    arrivals: Literal["fixed", "poisson", "bursts"] = "fixed"
    burst_on_s: Annotated[float, Number(0.001, 3_600, "seconds")] = 1.0
    burst_off_s: Annotated[float, Number(0.001, 3_600, "seconds")] = 1.0
    partitioner_ignore_keys: bool = False

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

    @model_validator(mode="after")
    def _idempotence_is_possible(self) -> Producer:
        wrong = []
        if self.acks != "all":
            wrong.append(f"acks {self.acks}")
        if self.max_in_flight > IDEMPOTENT_IN_FLIGHT_MAX:
            wrong.append(f"max_in_flight {self.max_in_flight}")
        if self.retries == 0:
            wrong.append("retries 0")
        if self.enable_idempotence and wrong:
            raise ValueError(
                f"enable_idempotence is true with {' and '.join(wrong)}; expected acks all, "
                f"max_in_flight up to {IDEMPOTENT_IN_FLIGHT_MAX} and retries, or a broker could "
                "not tell a repetition; change these or leave enable_idempotence out"
            )
        return self

    @model_validator(mode="after")
    def _delivery_takes_a_request(self) -> Producer:
        least_ms = self.linger_ms + self.request_timeout_ms
        if self.delivery_timeout_ms < least_ms:
            raise ValueError(
                f"delivery_timeout_ms is {self.delivery_timeout_ms}; expected linger_ms and "
                f"request_timeout_ms together, {least_ms:g}, or more, as Kafka's producer does; "
                "raise it or lower these"
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

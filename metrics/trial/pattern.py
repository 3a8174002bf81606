"""A traffic pattern as the tables have it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Pattern:
    """A traffic pattern, one column per parameter.

    Attributes:
        bpm: bytes per message [B].
        np: identical producers.
        rate_records_per_s: what each of them offers [1/s].
        acks: `0`, `1` or `all`.
        linger_ms: how long an unfilled batch waits for more records.
        batch_size_bytes: upper bound of a batch, one record excepted.
        max_in_flight: unanswered requests of a connection.
        buffer_memory_bytes: batches that may wait for a slow broker, of one producer.
        max_request_bytes: upper bound of a produce request, one batch excepted.
        request_timeout_ms: an unanswered request fails after this time.
        topics: that producers take in turns, one each.
        partitions_per_broker: that each broker leads, of each topic.
        replication_factor: replicas of each partition, the leader included.
        brokers: of the cluster.
        payload: kind of the values, `random` bytes by default.
        message_sizes: their distribution around `bpm`, `fixed` by default.
        key_bytes: size of a key, which is a part of `bpm`; 0 without keys.
        headers: of a message.
        compression: of the batches that producers send.
        arrivals: when messages are due, `fixed` at even distances by default.
        ramp_up_s: how long the rate grew evenly from 0, within the warm-up.
        consumer_groups: that each read everything.
        client: which producer client sent, `wire` by default.
        axis, load: what was searched along, and where on it this pattern lies.
        point_bpm: message size of the boundary point that it was offered for [B].
    """

    bpm: int
    np: int
    rate_records_per_s: float
    acks: str
    linger_ms: float
    batch_size_bytes: int
    max_in_flight: int
    buffer_memory_bytes: int
    max_request_bytes: int
    request_timeout_ms: int
    partitions_per_broker: int
    replication_factor: int
    brokers: int
    payload: str = "random"
    compression: str = "none"
    consumer_groups: int = 0
    client: str = "wire"
    axis: str = "np"
    load: int | None = None
    point_bpm: int | None = None
    message_sizes: str = "fixed"
    key_bytes: int = 0
    headers: int = 0
    arrivals: str = "fixed"
    ramp_up_s: float = 0.0
    topics: int = 1

    @property
    def on_axis(self) -> int:
        """Where on the searched axis it lies."""
        return self.np if self.load is None else self.load

    @property
    def mb_per_s(self) -> float:
        """Payload that all producers offer [MB/s]."""
        return self.np * self.rate_records_per_s * self.bpm / 1e6

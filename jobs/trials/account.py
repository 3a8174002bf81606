"""The traffic of a trial as its record has it."""

from __future__ import annotations

from jobs.trials.axes import Traffic
from jobs.trials.load import pattern_of
from metrics.trial.pattern import Pattern


def pattern_row(traffic: Traffic, brokers: int, point_bpm: int) -> Pattern:
    """The traffic as the table has it."""
    workload = traffic.workload
    pattern, topic = pattern_of(workload, traffic.bpm), workload.topic
    return Pattern(
        bpm=traffic.bpm,
        np=traffic.np,
        rate_records_per_s=pattern.rate_records_per_s,
        acks=workload.producer.acks,
        linger_ms=pattern.linger_ms,
        batch_size_bytes=pattern.batch_size,
        max_in_flight=pattern.max_in_flight,
        buffer_memory_bytes=pattern.buffer_memory,
        max_request_bytes=pattern.max_request_size,
        request_timeout_ms=pattern.request_timeout_ms,
        partitions_per_broker=topic.partitions_per_broker,
        replication_factor=topic.replication_factor,
        brokers=brokers,
        payload=workload.payload.kind,
        compression=pattern.compression,
        arrivals=pattern.arrivals,
        message_sizes=pattern.payload.sizes.kind,
        key_bytes=pattern.payload.key_bytes,
        headers=pattern.payload.headers,
        ramp_up_s=workload.trial.ramp_up_s,
        consumer_groups=workload.consumers.groups,
        client=workload.producer.client,
        axis=traffic.axis,
        load=traffic.load,
        point_bpm=point_bpm,
        topics=topic.count,
    )

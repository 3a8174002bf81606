"""What is said and kept of a trial: its row's pattern, its reasons, its line for people."""

from __future__ import annotations

from jobs.console.events import TrialFinished
from jobs.trials.axes import Traffic
from jobs.trials.load import pattern_of
from metrics.tables.schema import Pattern, Trial
from metrics.trial.client import WINDOW_TOLERANCE_S
from metrics.trial.evidence import ClientWindow
from metrics.trial.judgement import Reason


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


def finished_event(trial: Trial, traffic: Traffic, duration_s: float, left: int) -> TrialFinished:
    """The trial as people are told of it.

    Args:
        duration_s: of the trial, without the rest after it [s].
        left: trials that are still to come.
    """
    client, judgement = trial.client, trial.judgement
    idle = [(w.handler_idle, w.broker_id) for w in trial.brokers if w.handler_idle is not None]
    lowest = min(idle, default=(None, None))
    shares = [w.isr_changed_share for w in trial.brokers if w.isr_changed_share is not None]
    return TrialFinished(
        number=trial.trial,
        bpm=traffic.bpm,
        np=traffic.np,
        axis=traffic.axis,
        load=traffic.load,
        offered_mb_per_s=traffic.mb_per_s,
        achieved_mb_per_s=(
            client.acked_bytes / client.duration_s / 1e6 if client.offered_records else None
        ),
        idle_lowest=lowest[0],
        idle_broker=lowest[1],
        isr_changed_share=max(shares, default=None),
        verdict=judgement.verdict,
        reason=judgement.reasons[0].text if judgement.reasons else "",
        duration_s=duration_s,
        recovery_s=trial.recovery_s,
        trials_left=left,
        time_left_s=left * duration_s,
    )


def cut_short(client: ClientWindow, planned_s: float) -> tuple[Reason, ...]:
    """That the window ended early, for whoever reads the trial's reasons."""
    if not 0 < client.duration_s < planned_s - WINDOW_TOLERANCE_S:
        return ()
    text = (
        f"the window ended after {client.duration_s:.1f} of {planned_s:g} s, as its verdict was "
        "as good as certain"
    )
    return (Reason("ended_early", text, client.duration_s, planned_s),)

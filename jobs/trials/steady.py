"""The steady hold: one long trial that shows whether disks write a load, or memory carries it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from jobs.trials.context import RunContext
from jobs.trials.gates import Gates
from jobs.trials.measure import SearchProgress, TrialMeasurer
from jobs.trials.point_topics import PointTopics
from jobs.trials.running_load import RunningLoad, ends_once
from metrics.judging.disk_proof import deleted_after_s, disk_proof
from metrics.trial.trial import Trial
from metrics.windows.write_back import WriteBackWindow, write_back_windows

FULL_SHARE = 0.8
"""Share of the memory for dirty pages at which a hold ends, before writers wait for disks [ratio].
Disks that keep up stay near the background limit, which is 0.67 with Linux's defaults."""
LOOK_S = 2.0
"""Time between two looks at a hold [s]."""
FAILED_SHARE = 0.9
"""Share of the offered records below which a load to failure has failed [ratio]."""
FAILED_S = 10.0
"""Time over which that share is looked at [s]. A busy machine delays answers for some seconds."""


def steady_measurer(
    context: RunContext,
    topics: PointTopics,
    gates: Gates,
    message_bytes: int,
    progress: SearchProgress,
    hold_s: float,
    failing_load: int | None = None,
) -> TrialMeasurer:
    """Measures a load in one window of `hold_s` at most.

    The window ends once disks are proven to write the load, or before the memory of a host is full,
    so that no load is driven to failure. That of `failing_load` ends once the brokers are
    overloaded.

    Args:
        hold_s: longest window [s].
        failing_load: the load that is held until it fails, on a testbed; None for none.
    """
    phases = replace(context.workload.trial, measure_s=hold_s).in_full  # no verdict ends it

    def has_answer(load: RunningLoad, now_s: float, begun_s: float) -> bool:
        if load.pattern.on_axis == failing_load:
            return has_failed(load.channel.acked(), load.pattern.records_per_s)
        samples, hosts = load.samples, context.hosts.brokers
        return is_over(
            write_back_windows(samples.nodes, samples.hosts, hosts, begun_s, now_s),
            load.brokers,
            now_s - begun_s,
            deleted_after_s(load.pattern, load.facts.delete_delay_s),
        )

    held = replace(context, config=context.config.with_workload(trial=phases))
    until = ends_once("steady-hold", has_answer, LOOK_S)
    return TrialMeasurer(held, topics, gates, message_bytes, progress, until=until)


def is_over(
    windows: Sequence[WriteBackWindow], brokers: Collection[int], lasted_s: float, deleted_s: float
) -> bool:
    """Whether a hold has its answer, or has to end before the memory of a host is full.

    Args:
        windows: write-back of the brokers' hosts until now.
        lasted_s: length of the window until now [s].
        deleted_s: least age at which retention deletes a record [s].
    """
    if any((each.unwritten_share or 0.0) >= FULL_SHARE for each in windows):
        return True
    return bool(disk_proof(windows, brokers, lasted_s, deleted_s).on_disk)


def has_failed(acked: list[tuple[float, int]], offered_per_s: float) -> bool:
    """Whether too little of a load was acknowledged in the last `FAILED_S`.

    Args:
        acked: (time into the window [s], records acknowledged until then), oldest first.
    """
    if not acked or acked[-1][0] < 2 * FAILED_S:
        return False
    last_s, last = acked[-1]
    before = [each for each in acked if each[0] <= last_s - FAILED_S]
    if not before:
        return False
    passed_s = last_s - before[-1][0]
    return last - before[-1][1] < FAILED_SHARE * offered_per_s * passed_s


def failed_after_s(trial: Trial) -> float | None:
    """Time under load after which a trial's acknowledged rate fell and stayed low [s].

    None where it did not: the end of its window decides. The warm-up is load, too.
    """
    client, offered = trial.evidence.client, trial.pattern.records_per_s
    if not client.latency_over_time:
        return None
    length_s = client.latency_over_time[0].length_s
    acked = {round(each.start_s / length_s): each.records for each in client.latency_over_time}
    failed: int | None = None
    for number in reversed(range(int(client.duration_s / length_s))):
        if acked.get(number, 0) >= FAILED_SHARE * offered * length_s:
            break
        failed = number
    return None if failed is None else trial.pattern.phases.warmup_s + failed * length_s

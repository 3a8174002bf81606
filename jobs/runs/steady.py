"""The steady limit of a run is the highest load for which a trial proves that disks write the data.

The burst limit is the highest load that short trials sustained. A hold is a long trial at or below
the largest burst limit. A hold shows whether the disks write the data of a load at the rate at
which the data arrives. If the disks write more slowly than the data arrives, more and more data
waits in memory. A steady limit is proven on disk (see `metrics.judging.disk_proof`), either by a
hold, or by another trial that was long enough. The run makes holds only for the limit with the
largest byte rate. A hold also proves limits with lower byte rates.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from jobs.config import Configuration
from jobs.console.events import PhaseStarted, Plan
from jobs.trials.context import RunContext
from jobs.trials.measure import Rig, SearchProgress, TrialMeasurer
from jobs.trials.running_load import RunningLoad, ends_once
from metrics.common.errors import ConfigError
from metrics.judging.disk_proof import (
    DiskProof,
    deleted_after_s,
    disk_proof,
    fills_memory,
    proof_of,
)
from metrics.planning.load_needs import replicated_bytes
from metrics.reporting.report_page import belongs_to
from metrics.tables.boundary import Boundary
from metrics.traffic.pattern import TrafficPattern
from metrics.trial.trial import ALL_BROKERS, Trial
from metrics.units import format_duration, format_mb_per_s, format_size
from metrics.windows.write_back import (
    DIRTY_EXPIRE_S,
    WRITTEN_MIN,
    WriteBackWindow,
    write_back_windows,
)
from search.budget import Budget, Spent
from search.confirming import SteadyHold, next_hold
from search.model import Verdict

FULL_SHARE = 0.8
"""A hold (a long trial) ends if dirty pages fill this share of a host's memory for dirty pages
[ratio]. Without this end, writers would have to wait for disks. If disks keep up, the share stays
near the background limit, which is 0.67 with Linux's defaults.
"""
LOOK_S = 2.0
"""Time between two checks of a hold [s]."""
FAILED_SHARE = 0.9
"""With `search.to_failure`, a load has failed if brokers acknowledge less than this share of the
offered records [ratio].
"""
FAILED_S = 10.0
"""Time over which the share of acknowledged records is measured [s]. This time is longer than the
delays of a busy machine.
"""


def steady_measurer(
    rig: Rig,
    message_bytes: int,
    progress: SearchProgress,
    hold_s: float,
    failing_load: int | None = None,
) -> TrialMeasurer:
    """A measurer for holds: long trials that show whether disks write a load. Each hold has one
    window of at most `hold_s`.

    The window ends as soon as disks are proven to write the load. The window also ends if the
    memory of a host is almost full, so that the load does not fail. If the trial offers
    `failing_load`, the window ends only when too few records are acknowledged.

    Args:
        rig: the resources for trials.
        message_bytes: message size [B].
        progress: the purpose of the next trial and the number of remaining trials, shown to the
            user.
        hold_s: longest window [s].
        failing_load: a load that is offered until the testbed acknowledges too few records; None if
            no such load is offered.
    """
    context = rig.context
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
    return TrialMeasurer(replace(rig, context=held), message_bytes, progress, until=until)


def is_over(
    windows: Sequence[WriteBackWindow], brokers: Collection[int], lasted_s: float, deleted_s: float
) -> bool:
    """Whether a hold can end: disks are proven to write the load, or the memory of a host is almost
    full.

    Args:
        windows: the readings of the write-back on the brokers' hosts, from the start of the window
            until now.
        brokers: ids of the brokers.
        lasted_s: length of the window until now [s].
        deleted_s: minimum age at which retention deletes a record [s].
    """
    if any((each.unwritten_share or 0.0) >= FULL_SHARE for each in windows):
        return True
    return bool(disk_proof(windows, brokers, lasted_s, deleted_s).on_disk)


def has_failed(acked: list[tuple[float, int]], offered_per_s: float) -> bool:
    """Whether too few of the offered records were acknowledged in the last `FAILED_S`.

    Args:
        acked: pairs, oldest first: the time since the window's start [s], and the number of records
            acknowledged until this time.
        offered_per_s: offered records [1/s].
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
    """The time [s] from the start of a trial's load until the acknowledged rate fell and stayed
    low.

    The result is None if the acknowledged rate was not low at the end of the window. The time
    includes the warm-up.
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


def with_proof(boundary: Boundary, trials: Iterable[Trial], goal: str) -> Boundary:
    """Add to a boundary how long its sustained load was offered, and how many bytes the brokers
    received in this time.

    If disks are proven to write this load or a smaller load, also add the steady limit.

    Args:
        boundary: the boundary.
        trials: all trials at the boundary point, holds included.
        goal: the goal of the boundary.
    """
    sustained = [
        (each, proof_of(each))
        for each in trials
        if each.judgements[goal].verdict is Verdict.SUSTAINED
    ]
    at_limit = [(each, proof) for each, proof in sustained if each.load == boundary.loads[0]]
    if not at_limit:
        return boundary
    _, proof = max(at_limit, key=lambda pair: (bool(pair[1].on_disk), pair[1].duration_s))
    found = replace(
        boundary,
        proven_s=proof.duration_s,
        proven_bytes=proof.taken_bytes,
        proven_on_disk=proof.on_disk,
        memory_bytes=proof.absorbed_bytes,
        memory_full_s=proof.full_s,
        proof_note=proof.note,
    )
    lighter = [(each, proof) for each, proof in sustained if each.load <= boundary.loads[0]]
    on_disk = [(each, proof) for each, proof in lighter if proof.on_disk]
    if not on_disk:
        return found
    return with_steady(found, *max(on_disk, key=lambda pair: (pair[0].load, pair[1].duration_s)))


def with_steady(boundary: Boundary, trial: Trial, proof: DiskProof, note: str = "") -> Boundary:
    """Add the steady limit to a boundary if a trial of the same message size proves it."""
    return replace(
        boundary,
        steady_load=float(trial.load),
        steady_mb_per_s=trial.pattern.mb_per_s if boundary.along.grows_payload else None,
        steady_s=proof.duration_s,
        steady_bytes=proof.taken_bytes,
        steady_note="; ".join(filter(None, (note, proof.disks_note))),
    )


EXPIRIES = 3.5
"""Longest window of a hold without `search.steady_s` and `search.to_failure`, as a multiple of the
age at which the kernel writes pages. The kernel writes the first pages after 1 times this age. The
proof that disks write the load takes 2 times this age. A reserve of 0.5 times this age is for
uneven writes.
"""
EXPECTED_EXPIRIES = 2.25
"""Length of a hold's window that forecasts assume, as a multiple of the age at which the kernel
writes pages. The measured length was 68 s.
"""


@dataclass(frozen=True)
class SteadyPlan:
    """The decision about a hold at the largest burst limit: its length, or the reason for no hold.

    Attributes:
        hold_s: longest window of a hold [s]; 0 for no hold.
        why: the reason why there is no hold, for the user; empty if a hold follows, or if the user
            needs no reason.
    """

    hold_s: float
    why: str = ""


def require_failure_allowed(config: Configuration) -> None:
    """Refuse `search.to_failure` on brokers that the run does not start.

    Raises:
        ConfigError: the goal has `search.to_failure`, and the run does not start the brokers.
    """
    if config.goal.search.to_failure and not config.cluster.starts_brokers:
        raise ConfigError(
            f"--to-failure drives the brokers of cluster {config.cluster.name} into failure; "
            "expected a testbed that the run starts (--cluster testbed); omit --to-failure, then "
            "the time to failure is computed"
        )


def with_planned_hold(plan: Plan, config: Configuration) -> Plan:
    """The plan of a search, including the hold that may follow the search.

    A hold is a long trial that shows whether disks write the found load. If neither
    `search.steady_s` nor `search.to_failure` is set, the run makes a hold only if the load could
    fill a tenth of the memory that a host allows for dirty pages. The hold ends as soon as disks
    are proven to write the load. The plan's duration contains the expected length of the hold.
    """
    search = config.goal.search
    if search.steady_s == 0.0:
        return plan
    expected_s = EXPECTED_EXPIRIES * DIRTY_EXPIRE_S if search.steady_s is None else search.steady_s
    most_s = EXPIRIES * DIRTY_EXPIRE_S if search.steady_s is None else search.steady_s
    added_s = expected_s + config.workload.trial.warmup_s
    when = ", within the budget"
    if search.steady_s is None:
        when = (
            ", if the load's data can fill a tenth of a host's memory for dirty pages and the "
            f"budget allows it (search.steady_s); the forecast includes {format_duration(added_s)}"
        )
    note = f"one long trial at the largest limit takes at most {format_duration(most_s)}{when}"
    return replace(plan, duration_s=plan.duration_s + added_s, notes=(*plan.notes, note))


def steady_plan(
    config: Configuration, boundary: Boundary, trials: Iterable[Trial], spent: Spent
) -> SteadyPlan:
    """Decide whether a long trial (a hold) follows at the limit with the largest byte rate.

    Args:
        config: the configuration of the run.
        boundary: the limit with the largest byte rate.
        trials: all trials of the run.
        spent: cost of the run until now.
    """
    search = config.goal.search
    if boundary.steady_load is not None and boundary.steady_load >= boundary.loads[0]:
        return SteadyPlan(0.0)  # its own trials prove the limit
    if search.steady_s == 0.0:
        return SteadyPlan(0.0, "no hold was made, because search.steady_s is 0")
    own = [each for each in trials if belongs_to(each, boundary) and not each.steady]
    last = last_at(own, boundary.goal, boundary.loads[0], Verdict.SUSTAINED)
    if last is None:
        return SteadyPlan(0.0)
    windows = last.evidence.write_back
    expire_s = max((each.dirty_expire_s for each in windows), default=DIRTY_EXPIRE_S)
    hold_s = EXPIRIES * expire_s if search.steady_s is None else search.steady_s
    if config.goal.search.to_failure:
        full_s = proof_of(last).full_s
        if full_s is not None:
            hold_s = max(hold_s, min(3_600.0, 2 * full_s + hold_s))
    fills = fills_memory(windows, hold_s)
    if fills is None:
        return SteadyPlan(0.0, "the brokers' hosts do not show the bytes that their disks write")
    if not fills and search.steady_s is None and not search.to_failure:
        length = format_duration(hold_s)
        why = f"in {length} the load fills less than a tenth of the memory for dirty pages"
        return SteadyPlan(0.0, why)
    plan = SteadyPlan(hold_s)
    why = budget_problem(search.budget, spent, last.pattern, plan)
    return replace(plan, hold_s=0.0, why=why) if why else plan


def budget_problem(budget: Budget, spent: Spent, pattern: TrafficPattern, plan: SteadyPlan) -> str:
    """The reason why the budget does not allow a hold; empty if the budget allows it.

    Args:
        budget: the budget of the search.
        spent: cost of the run until now.
        pattern: the traffic of the hold.
        plan: the plan of the hold.
    """
    load_s = plan.hold_s + pattern.phases.warmup_s
    costs = (
        (budget.trials, spent.trials + 1, f"{budget.trials} trials"),
        (budget.duration_s, spent.seconds + load_s, f"{budget.duration_s or 0:.0f} s"),
        (
            budget.payload_bytes,
            spent.bytes + pattern.mb_per_s * 1e6 * load_s,
            f"{(budget.payload_bytes or 0) / 1e6:.0f} MB",
        ),
    )
    for limit, needed, amount in costs:
        if limit is not None and needed > limit:
            hold = format_duration(plan.hold_s)
            return f"the budget of {amount} does not allow a hold of {hold}"
    return ""


def last_at(trials: Sequence[Trial], goal: str, load: int | None, verdict: Verdict) -> Trial | None:
    """The last trial that offered this load and that the goal judged with this verdict; None
    without such a trial.
    """
    found = [
        each for each in trials if each.load == load and each.judgements[goal].verdict is verdict
    ]
    return found[-1] if found else None


def largest(boundaries: Iterable[Boundary]) -> Boundary | None:
    """Of all limits that were measured with all brokers, the limit with the largest byte rate. The
    limits of all message sizes and all goals are compared.
    """
    found = [each for each in boundaries if each.loads[0] and each.state == ALL_BROKERS]
    return max(found, key=lambda each: (each.mb_per_s, each.loads[0]), default=None)


def hold_steadily(
    boundary: Boundary, done: Sequence[Trial], hold: Callable[[int], Trial | None]
) -> tuple[Trial, ...]:
    """Make one hold after another until a hold proves that the disks can write the offered load, or
    until no further hold is possible.

    The first hold offers the burst limit. Each further hold offers a load that the disks can
    probably write, computed from the earlier holds. The number of holds is limited.

    Args:
        boundary: the limit whose load the first hold offers.
        done: the trials of earlier holds, which were made before the run was resumed.
        hold: function that makes a hold at a load, and returns the trial of the hold. The function
            returns None if the hold cannot begin, for example because the budget does not allow the
            hold.
    """
    trials = list(done)
    while True:
        holds = [as_hold(each, boundary.goal) for each in trials]
        load = next_hold(boundary.loads[0], holds)
        trial = None if load is None else hold(load)
        if trial is None:
            return tuple(trials)
        trials.append(trial)


def as_hold(trial: Trial, goal: str) -> SteadyHold:
    """The result of a hold: whether the disks wrote the load, and the share that they wrote."""
    verdict, proof = trial.judgements[goal].verdict, proof_of(trial)
    if verdict is Verdict.INVALID:
        return SteadyHold(trial.load, is_valid=False)
    if verdict is Verdict.SUSTAINED and proof.on_disk:
        return SteadyHold(trial.load, is_valid=True, is_proven=True)
    return SteadyHold(trial.load, is_valid=True, written_share=_written_share(proof))


def did_not_last(trial: Trial, goal: str) -> bool:
    """Whether a hold (a long trial) shows that the brokers do not sustain the load for long. The
    reason is an overload, or disks that wrote the data of the load too slowly.
    """
    if trial.judgements[goal].verdict is Verdict.INVALID:
        return False
    is_overloaded = trial.judgements[goal].verdict is Verdict.OVERLOADED
    return is_overloaded or _written_share(proof_of(trial)) is not None


def _written_share(proof: DiskProof) -> float | None:
    """The share of a load that disks can write; None if disks are not the reason for an unsteady
    load.

    A hold that ends because memory is full may be too short to measure the disks' long-term rate.
    For such a short hold, the result is computed from the disks' highest rate over some seconds. A
    disk at its limit does not exceed this highest rate.
    """
    share = proof.fastest_share if proof.written_share is None else proof.written_share
    return share if share is not None and share < WRITTEN_MIN else None


# --- the answer -------------------------------------------------------------


@dataclass(frozen=True)
class SteadyAnswer:
    """The holds of a run, and the steady limits that the holds prove.

    Attributes:
        largest: the limit with the largest byte rate; the first hold offers the load of this limit.
        holds: the holds (long trials that show whether disks write a load), oldest first.
        why: the reason why no hold was made.
    """

    largest: Boundary
    holds: tuple[Trial, ...]
    why: str = ""

    def complete(self, boundary: Boundary, pattern: TrafficPattern) -> Boundary:
        """Add the steady limit to a boundary, or the reason why the boundary has no steady limit.

        Args:
            boundary: the boundary.
            pattern: the traffic at the boundary's sustained load.
        """
        if boundary.state != ALL_BROKERS or not boundary.loads[0]:
            return boundary
        own = [each for each in self.holds if belongs_to(each, boundary)]
        failed = [failed_after_s(each) for each in own if each.load == boundary.loads[0]]
        boundary = replace(boundary, failed_after_s=next(filter(None, failed), None))
        if boundary.steady_load is not None and boundary.steady_load >= boundary.loads[0]:
            return replace(boundary, lasted=True)
        if any(did_not_last(each, boundary.goal) for each in own if each.load == boundary.loads[0]):
            boundary = replace(boundary, lasted=False)
        found = self._implied(boundary, pattern)
        if found is not None and (found.steady_load or 0.0) > (boundary.steady_load or 0.0):
            return replace(found, lasted=found.steady_load == found.loads[0])
        if boundary.steady_load is not None:
            return replace(boundary, steady_note=self._why_burst if own else "")
        why = self._why_not_proven
        is_same = boundary.message_bytes == self.largest.message_bytes or not self.holds
        where = "" if is_same else f" at {format_size(self.largest.message_bytes)}"
        return replace(boundary, steady_note=f"{why}{where}" if why else "")

    @property
    def _why_not_proven(self) -> str:
        if not self.holds:
            return self.why
        last = self.holds[-1]
        lasted = format_duration(last.evidence.client.duration_s)
        payload = f"{format_mb_per_s(last.pattern.mb_per_s)} MB/s"
        if not last.is_valid:
            return f"the hold of {payload} was INVALID: {last.reasons[0].text}"
        why = proof_of(last).why or "the brokers were overloaded"
        return f"a hold of {payload} for {lasted} did not prove a steady load: {why}"

    @property
    def _why_burst(self) -> str:
        """The reason why the brokers do not sustain the burst limit for long. The reason comes from
        the first valid hold (a long trial); it is empty without a valid hold.
        """
        first = next((each for each in self.holds if each.is_valid), None)
        if first is None:
            return ""
        payload = f"{format_mb_per_s(first.pattern.mb_per_s)} MB/s"
        share = _written_share(proof_of(first))
        if share is None:
            return f"{payload} was sustained only for a short time"
        return f"the disks wrote {format_mb_per_s(share * first.pattern.mb_per_s)} of {payload}"

    def _implied(self, boundary: Boundary, pattern: TrafficPattern) -> Boundary | None:
        """The steady limit of a point, computed from a hold (a long trial) at another point. The
        steady limit is the highest load at which the byte rate at the brokers does not exceed the
        byte rate in the hold. The steady limit is at most the burst limit.

        The result is None if disks are not proven to write the load of any hold. The result is also
        None in two further cases. In the first case, even the smallest load has a larger byte rate
        than the hold. In the second case, the steady limit would be below the burst limit, but the
        byte rate does not grow with the load.
        """
        held = [each for each in self.holds if as_hold(each, self.largest.goal).is_proven]
        if not held:
            return None
        proven = held[-1]
        rate = _written_per_s(pattern)
        share = min(1.0, _written_per_s(proven.pattern) / rate) if rate else 1.0
        load = int(boundary.loads[0] * share)
        if not load or (share < 1.0 and not boundary.along.grows_payload):
            return None
        note = f"held at {format_size(proven.pattern.message_bytes)}"
        found = with_steady(boundary, proven, proof_of(proven), note)
        mb_per_s = boundary.mb_per_s * load / boundary.loads[0]
        return replace(
            found,
            steady_load=float(load),
            steady_mb_per_s=mb_per_s if boundary.along.grows_payload else None,
        )


def _written_per_s(pattern: TrafficPattern) -> float:
    """The byte rate [B/s] that the brokers receive from the traffic of a pattern. It includes
    headers and replicas.
    """
    return pattern.records_per_s * replicated_bytes(pattern)


def announce(context: RunContext, plan: SteadyPlan, boundary: Boundary) -> None:
    """Report the planned hold, or the reason why no hold is planned."""
    size, payload = format_size(boundary.message_bytes), format_mb_per_s(boundary.mb_per_s)
    if plan.hold_s:
        text = (
            f"offering {payload} MB/s at {size} for at most {format_duration(plan.hold_s)}, until "
            f"disks are proven to write this load or memory is {FULL_SHARE:.0%} full"
        )
        context.reporter.report(PhaseStarted(text))
    elif plan.why:
        context.reporter.report(PhaseStarted(f"the steady limit is not proven: {plan.why}"))

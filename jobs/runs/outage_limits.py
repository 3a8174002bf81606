"""The search for two kinds of limits: while brokers are offline, and while these brokers catch up.
The module also updates the progress of a search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace

from jobs.cluster.sources import open_metrics
from jobs.runs.estimate import line_of
from jobs.runs.results import boundary_of
from jobs.trials.context import RunContext
from jobs.trials.gates import open_gates
from jobs.trials.measure import Rig, SearchProgress, TrialMeasurer
from jobs.trials.point_topics import PointTopics
from metrics.planning.provisioning import offline_mb_per_s
from metrics.tables.boundary import Boundary, make_boundary
from metrics.trial.trial import CATCHING_UP, Trial, offline_state
from metrics.units import format_mb_per_s, format_ratio
from search.confirming import Confirmation, Hold
from search.forecast import trials_left
from search.line import FinishedPoint, Line
from search.lines import Finished, Histories, run_goals, searchers_of
from search.model import Bracket, Decision, GaveUp, Measure, Verdict


def progress_updater(
    progress: SearchProgress,
    lines: Mapping[str, Line],
    finished: Mapping[str, Sequence[FinishedPoint]],
) -> Callable[[Decision, Histories], None]:
    """A callback that updates `progress`; `run_lines` and `run_goals` accept this callback as
    `on_step`.

    Args:
        progress: the progress that the next trial reports.
        lines: goal → the plan of its boundary line.
        finished: goal → its finished points; the caller may append points during the search.
    """

    def update(decision: Decision, histories: Histories) -> None:
        progress.checks = isinstance(decision, Measure) and decision.checks
        if isinstance(decision, Measure):
            progress.reason = decision.reason
            progress.trials_left = max(
                trials_left(line, finished[goal], histories[goal]) for goal, line in lines.items()
            )

    return update


WINDOWS_MAX = 60
"""Maximum number of windows in which a load is offered while brokers catch up."""


@contextmanager
def broker_outage(context: RunContext, count: int) -> Iterator[RunContext]:
    """Take a number of brokers out of service while the block lasts.

    Replicas stay assigned to the offline brokers, which have to catch up when they return.

    Args:
        context: the context of the run, with all brokers.
        count: number of brokers to take out of service.

    Yields:
        A context for the remaining brokers.

    Raises:
        NoConclusionError: the brokers did not stop or did not return in time.
    """
    assert context.broker_outage is not None, "see ContextFactory"
    cluster, jvm = context.cluster, getattr(context.session.spark, "_jvm", None)
    try:
        offline = context.broker_outage.begin(count)
        context.topics.offline = offline
        context.guards.accept_current_state()
        rest = {broker: each for broker, each in context.addresses.items() if broker not in offline}
        rest_of_cluster = cluster.without(offline)
        with closing(open_metrics(context.config.cluster, rest_of_cluster, jvm)) as source:
            facts = replace(context.facts, offline=count)
            state = offline_state(count)
            yield replace(context, source=source, addresses=rest, facts=facts, state=state)
    finally:
        context.broker_outage.end()
        context.topics.offline = frozenset()


def catch_up(rig: Rig, message_bytes: int, load: int) -> tuple[list[Trial], bool]:
    """Offer a load in consecutive windows while the offline brokers return and catch up.

    The first window runs before the brokers return, so that they return under load.

    Args:
        rig: the resources for trials with the context that `broker_outage` yields.
        message_bytes: message size [B].
        load: load on the goal's axis.

    Returns:
        The windows until all replicas were in sync, and whether all replicas were in sync after the
        last window.
    """
    rest = rig.context
    assert rest.broker_outage is not None
    progress = SearchProgress(f"offering {rest.config.axis.amount(load)} before brokers return", 1)
    TrialMeasurer(rig, message_bytes, progress).trial(load, is_held=True)
    returning = replace(rig, context=replace(rest, state=CATCHING_UP))
    measurer = TrialMeasurer(returning, message_bytes, progress, held=load)
    windows: list[Trial] = []
    opened = rig.topics.open(rest.pattern(message_bytes, load))
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(rest.broker_outage.end)
        while len(windows) < WINDOWS_MAX:
            progress.reason = f"offering {rest.config.axis.amount(load)} while brokers catch up"
            windows.append(measurer.trial(load, is_held=True))
            if ended.done() and (ended.result() is None) and rest.topics.is_in_sync(opened):
                return windows, True
    return windows, False


def find_outage_limits(
    context: RunContext, lines: Mapping[str, Line], found: Finished, whole: Sequence[Boundary]
) -> Iterator[Boundary]:
    """Find the limits at each message size, first while brokers are offline, and then while these
    brokers catch up.

    Brokers go offline once for each message size. The load during the outage creates the records
    with which the brokers have to catch up afterwards.

    Args:
        context: the context of the run, with all brokers.
        lines: the goal → the plan of its boundary line with all brokers. The map contains exactly
            one goal.
        found: the goal → the boundary points that the search with all brokers has finished.
        whole: the limits that the search with all brokers has found.
    """
    ((goal, line),) = lines.items()
    config, count = context.config, context.config.goal.search.brokers_offline
    assert count is not None, "the caller checks that search.brokers_offline is set"
    rest_line = replace(
        line_of(config.workload, config.goal, context.brokers - count, context.guards),
        before=line.spent(found[goal]),
        check_for_change=False,  # each size has its own outage
    )
    points: list[FinishedPoint] = []
    while (message_bytes := rest_line.next_message_bytes(points)) is not None:
        with broker_outage(context, count) as rest, PointTopics(rest) as topics:
            # Created before the brokers are measured at rest, which then includes its replicas.
            topics.open(rest.pattern(message_bytes, 1))
            rig = Rig(rest, topics, open_gates(rest, config.cluster.warm_up_max_s))
            progress = SearchProgress()
            on_step = progress_updater(progress, {goal: rest_line}, {goal: points})
            measurer = TrialMeasurer(rig, message_bytes, progress)
            searchers = searchers_of({goal: rest_line}, message_bytes, {goal: points})
            end = run_goals(searchers, measurer, on_step)[goal]
            point = FinishedPoint(message_bytes, end.result, end.history)
            boundary = boundary_of(
                point, rest.history.trials, config, goal, rest.brokers, rest.state
            )
            notes = (*boundary.notes, *_comparison_note(boundary, whole, context.brokers, count))
            yield replace(boundary, notes=notes)
            if not isinstance(end.result, GaveUp) and end.result.bracket.sustained:
                load = end.result.bracket.sustained
                windows, is_in_sync = catch_up(rig, message_bytes, load)
                yield caught_up(rest, goal, load, windows, is_in_sync)
        points.append(point)


def _comparison_note(
    boundary: Boundary, whole: Sequence[Boundary], brokers: int, offline: int
) -> tuple[str, ...]:
    """A sentence that compares the measured limit with a calculated limit. The calculation is the
    one of `redline plan`: it starts from the limit with all brokers, and computes the limit for the
    brokers that remain in service.
    """
    all_up = next((each for each in whole if each.message_bytes == boundary.message_bytes), None)
    if all_up is None or not boundary.along.grows_payload or not boundary.mb_per_s:
        return ()
    calculated = offline_mb_per_s(all_up.mb_per_s, brokers, offline)
    if not calculated:
        return ()
    sentence = (
        f"{format_mb_per_s(boundary.mb_per_s)} MB/s with {boundary.state}; redline plan calculates "
        f"{format_mb_per_s(calculated)} MB/s for {brokers - offline} of {brokers} brokers, from "
        f"{format_mb_per_s(all_up.mb_per_s)} MB/s for all brokers; the measured limit is "
        f"{format_ratio(boundary.mb_per_s / calculated)} of the calculated limit"
    )
    return (sentence,)


def caught_up(
    rest: RunContext, goal: str, load: int, windows: Sequence[Trial], is_in_sync: bool
) -> Boundary:
    """The boundary for the time in which the brokers catch up. The measured load is the limit that
    was found while these brokers were offline.

    If the brokers sustain the load while they catch up, this load is a lower bound of the limit. If
    the load overloads the brokers, no limit is known. No other load can be tried, because the
    brokers catch up only once for each message size.
    """
    config, message_bytes = rest.config, windows[0].point_message_bytes
    observations = tuple(trial.observation(goal) for trial in windows)
    valid = sum(each.verdict is not Verdict.INVALID for each in observations)
    window_s = config.workload.trial.load_s
    hold = Hold(load, observations, Confirmation(valid, window_s))
    amount = config.axis.amount(load)
    over = len(hold.overloads)
    note = f"{over} of {valid} windows were overloaded while brokers caught up"
    gave_up = None
    if not valid:
        reason = windows[-1].reasons[0].text if windows[-1].reasons else "the reason is unknown"
        gave_up = f"no window in which brokers caught up was valid: {reason}"
    elif hold.broke_at is not None:
        gave_up = (
            f"{amount} overloaded the brokers: {note}; no lighter load was tried, because brokers "
            "go offline only once for each message size, and have caught up now"
        )
    elif not is_in_sync:
        gave_up = f"replicas were not in sync after {len(windows)} windows of {window_s:g} s"
    overloads = [trial.judgements[goal] for trial in windows]
    last = next((each for each in reversed(overloads) if each.verdict is Verdict.OVERLOADED), None)
    is_over = hold.broke_at is not None
    boundary = make_boundary(
        Bracket(0, load) if is_over else Bracket(load if valid else 0, None),
        config.axis,
        config.workload.pattern(message_bytes, rest.brokers),
        trials=len(windows),
        reasons=last.reasons if last and is_over else (),
        limited_by=last.limited_by if last and is_over else None,
        gave_up=gave_up,
    )
    return replace(
        boundary,
        goal=goal,
        state=CATCHING_UP,
        notes=(note,),
        confirmed_s=None if gave_up else hold.held_s,
    )

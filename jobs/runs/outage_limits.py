"""The limits during a broker outage, and while the brokers catch up after it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from jobs.runs.estimate import line_of
from jobs.runs.results import boundary_of
from jobs.runs.search_progress import progress_updater
from jobs.trials.broker_outage import broker_outage, catch_up
from jobs.trials.context import RunContext
from jobs.trials.measure import SearchProgress, TrialMeasurer
from jobs.trials.point_topics import PointTopics
from jobs.trials.warm_up import open_gates
from metrics.planning.provisioning import offline_mb_per_s
from metrics.tables.boundary import Boundary, make_boundary
from metrics.trial.state import CATCHING_UP
from metrics.trial.trial import Trial
from metrics.units import format_mb_per_s, format_ratio
from search.confirming import Confirmation, Hold
from search.line import FinishedPoint, Line
from search.lines import Finished, searchers_of
from search.loop import run_goals
from search.model import Bracket, GaveUp, Verdict


def find_outage_limits(
    context: RunContext, lines: Mapping[str, Line], found: Finished, whole: Sequence[Boundary]
) -> Iterator[Boundary]:
    """Find the limits of the remaining brokers, size by size, each during and after an outage.

    Each size has an outage of its own, so that the brokers have data to catch up with.

    Args:
        context: the context of the run, with all brokers.
        lines: the line of one goal, measured with all brokers.
        found: the finished points of `lines`.
        whole: the boundaries of `found`.
    """
    ((goal, line),) = lines.items()
    config, count = context.config, context.config.goal.search.brokers_offline
    assert count is not None, "the caller checks it"
    rest_line = replace(
        line_of(config.workload, config.goal, context.brokers - count, context.guards),
        before=line.spent(found[goal]),
        check_for_change=False,  # each size has an outage of its own
    )
    points: list[FinishedPoint] = []
    while (message_bytes := rest_line.next_message_bytes(points)) is not None:
        with broker_outage(context, count) as rest, PointTopics(rest) as topics:
            # Created before the look at the brokers at rest, which then includes its replicas.
            topics.open(rest.pattern(message_bytes, 1))
            gates = open_gates(rest, config.cluster.warm_up_max_s)
            progress = SearchProgress()
            on_step = progress_updater(progress, {goal: rest_line}, {goal: points})
            measurer = TrialMeasurer(rest, topics, gates, message_bytes, progress)
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
                windows, is_in_sync = catch_up(rest, topics, gates, message_bytes, load)
                yield caught_up(rest, goal, load, windows, is_in_sync)
        points.append(point)


def _comparison_note(
    boundary: Boundary, whole: Sequence[Boundary], brokers: int, offline: int
) -> tuple[str, ...]:
    """A comparison of the limit with the calculation of `redline plan` from all brokers' limit."""
    all_up = next((each for each in whole if each.message_bytes == boundary.message_bytes), None)
    if all_up is None or not boundary.along.grows_payload or not boundary.mb_per_s:
        return ()
    calculated = offline_mb_per_s(all_up.mb_per_s, brokers, offline)
    if not calculated:
        return ()
    sentence = (
        f"{format_mb_per_s(boundary.mb_per_s)} MB/s with {boundary.state}; redline plan calculates "
        f"{format_mb_per_s(calculated)} MB/s for {brokers - offline} of {brokers} brokers, from "
        f"{format_mb_per_s(all_up.mb_per_s)} MB/s for all; the measured limit is "
        f"{format_ratio(boundary.mb_per_s / calculated)} of that"
    )
    return (sentence,)


def caught_up(
    rest: RunContext, goal: str, load: int, windows: Sequence[Trial], is_in_sync: bool
) -> Boundary:
    """The boundary while the brokers catch up, at the limit of the outage.

    It is a lower bound or no answer: the brokers catch up only once, so no lighter load follows.
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
            f"{amount} were too much: {note}; no lighter load was tried, as brokers catch up once"
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

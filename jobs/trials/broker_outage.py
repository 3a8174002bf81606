"""Trials while brokers are away on purpose, and while they catch up."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace

from jobs.trials.context import RunContext
from jobs.trials.gates import Gates
from jobs.trials.measure import SearchProgress, TrialMeasurer
from jobs.trials.point_topics import PointTopics
from metrics.trial.state import CATCHING_UP, offline_state
from metrics.trial.trial import Trial

WINDOWS_MAX = 60
"""Windows in which brokers may catch up before the answer says that they did not."""


@contextmanager
def broker_outage(context: RunContext, count: int) -> Iterator[RunContext]:
    """So many brokers away: the run in the eyes of the rest; at the end all serve again.

    Their replicas stay assigned to them, so that they have something to catch up with.

    Raises:
        NoConclusionError: nobody took them away, or brought them back, in time.
    """
    assert context.broker_outage and context.open_metrics_without, "see ContextFactory"
    try:
        away = context.broker_outage.begin(count)
        context.topics.away = away
        context.guards.accept_current_state()
        rest = {broker: each for broker, each in context.addresses.items() if broker not in away}
        with closing(context.open_metrics_without(away)) as source:
            facts = replace(context.facts, offline=count)
            state = offline_state(count)
            yield replace(context, source=source, addresses=rest, facts=facts, state=state)
    finally:
        context.broker_outage.end()
        context.topics.away = frozenset()


def catch_up(
    rest: RunContext, topics: PointTopics, gates: Gates, message_bytes: int, load: int
) -> tuple[list[Trial], bool]:
    """Hold a load while the brokers that were away come back and catch up.

    The first window is made before they are brought back, so that they return under load.

    Args:
        rest: as `broker_outage` gives it.
        message_bytes: message size [B].
        load: on the goal's axis.

    Returns:
        The windows in which brokers were on their way back or out of sync, and whether all
        replicas were in sync after the last of them.
    """
    assert rest.broker_outage is not None
    progress = SearchProgress(
        f"holding {rest.config.axis.amount(load)} before brokers come back", 1
    )
    TrialMeasurer(rest, topics, gates, message_bytes, progress).trial(load, is_held=True)
    back = replace(rest, state=CATCHING_UP)
    measurer = TrialMeasurer(back, topics, gates, message_bytes, progress, held=load)
    windows: list[Trial] = []
    opened = topics.open(rest.pattern(message_bytes, load))
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(rest.broker_outage.end)
        while len(windows) < WINDOWS_MAX:
            progress.reason = f"holding {rest.config.axis.amount(load)} while brokers catch up"
            windows.append(measurer.trial(load, is_held=True))
            if ended.done() and (ended.result() is None) and rest.topics.is_in_sync(opened):
                return windows, True
    return windows, False

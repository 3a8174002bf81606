"""Trials during a broker outage, and while the brokers catch up after it."""

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
"""Largest number of windows in which brokers may catch up."""


@contextmanager
def broker_outage(context: RunContext, count: int) -> Iterator[RunContext]:
    """Take so many brokers out of service while the block lasts.

    The context that it yields is that of the remaining brokers. The replicas stay assigned to all
    brokers, so that those that return have records to catch up with.

    Raises:
        NoConclusionError: the brokers did not stop, or did not return, in time.
    """
    assert context.broker_outage and context.open_metrics_without, "see ContextFactory"
    try:
        offline = context.broker_outage.begin(count)
        context.topics.offline = offline
        context.guards.accept_current_state()
        rest = {broker: each for broker, each in context.addresses.items() if broker not in offline}
        with closing(context.open_metrics_without(offline)) as source:
            facts = replace(context.facts, offline=count)
            state = offline_state(count)
            yield replace(context, source=source, addresses=rest, facts=facts, state=state)
    finally:
        context.broker_outage.end()
        context.topics.offline = frozenset()


def catch_up(
    rest: RunContext, topics: PointTopics, gates: Gates, message_bytes: int, load: int
) -> tuple[list[Trial], bool]:
    """Hold a load while the offline brokers return and catch up.

    The first window runs before they return, so that they return under load.

    Args:
        rest: the context that `broker_outage` yields.
        message_bytes: message size [B].
        load: load on the goal's axis.

    Returns:
        The windows in which brokers were returning or out of sync, and whether all replicas were
        in sync after the last of them.
    """
    assert rest.broker_outage is not None
    progress = SearchProgress(
        f"holding {rest.config.axis.amount(load)} before brokers come back", 1
    )
    TrialMeasurer(rest, topics, gates, message_bytes, progress).trial(load, is_held=True)
    returning = replace(rest, state=CATCHING_UP)
    measurer = TrialMeasurer(returning, topics, gates, message_bytes, progress, held=load)
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

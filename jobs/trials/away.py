"""Trials while brokers are away on purpose, and while they catch up."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace

from jobs.trials.context import RunContext
from jobs.trials.gates import Gates
from jobs.trials.measure import Outlook, TrialMeasurer
from jobs.trials.point_topics import PointTopics
from metrics.trial.state import CATCHING_UP, offline_state
from metrics.trial.trial import Trial

WINDOWS_MAX = 60
"""Windows in which brokers may catch up before the answer says that they did not."""


@contextmanager
def brokers_away(context: RunContext, count: int) -> Iterator[RunContext]:
    """So many brokers away: the run in the eyes of the rest; at the end all serve again.

    Their replicas stay assigned to them, so that they have something to catch up with.

    Raises:
        NoConclusionError: nobody took them away, or brought them back, in time.
    """
    assert context.outage is not None and context.without is not None, "see Opening"
    try:
        away = context.outage.begin(count)
        context.topics.away = away
        context.guards.accept()
        rest = {broker: each for broker, each in context.addresses.items() if broker not in away}
        with closing(context.without(away)) as source:
            facts = replace(context.facts, offline=count)
            state = offline_state(count)
            yield replace(context, source=source, addresses=rest, facts=facts, state=state)
    finally:
        context.outage.end()
        context.topics.away = frozenset()


def catch_up(
    rest: RunContext, topics: PointTopics, gates: Gates, bpm: int, load: int
) -> tuple[list[Trial], bool]:
    """Hold a load while the brokers that were away come back and catch up.

    The first window is made before they are brought back, so that they return under load.

    Args:
        rest: as `brokers_away` gives it.
        bpm: message size [B].
        load: on the goal's axis.

    Returns:
        The windows in which brokers were on their way back or out of sync, and whether all
        replicas were in sync after the last of them.
    """
    assert rest.outage is not None
    outlook = Outlook(f"holding {rest.config.axis.amount(load)} before brokers come back", 1)
    TrialMeasurer(rest, topics, gates, bpm, outlook).trial(load, is_held=True)
    back = replace(rest, state=CATCHING_UP)
    measurer = TrialMeasurer(back, topics, gates, bpm, outlook, held=load)
    windows: list[Trial] = []
    opened = topics.open(rest.pattern(bpm, load))
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(rest.outage.end)
        while len(windows) < WINDOWS_MAX:
            outlook.reason = f"holding {rest.config.axis.amount(load)} while brokers catch up"
            windows.append(measurer.trial(load, is_held=True))
            if ended.done() and (ended.result() is None) and rest.topics.is_in_sync(opened):
                return windows, True
    return windows, False

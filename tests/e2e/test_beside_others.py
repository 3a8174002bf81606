"""Searches on brokers that others use, addressed as a foreign cluster: answers, not reasons."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from threading import Event

import pytest

from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import cluster_file, start
from jobs.trials.canaries import INTERVAL_S
from tests.support.commands import RunningCommand
from tests.support.neighbors import (
    PARTITIONS,
    Neighbor,
    backfill,
    bursts,
    later,
    new_topics,
    reassign,
    restart,
    steady,
    step,
    waves,
)
from tests.support.search_impact import (
    Handled,
    control_requests,
    handled_of,
    impact_of,
    requests_of,
)

log = logging.getLogger(__name__)

pytestmark = [
    pytest.mark.long, pytest.mark.timeout(900), pytest.mark.usefixtures("quiet_neighbors"),
]  # fmt: skip

BROKERS, HANDLERS, STATED_S, OWN_S = 3, 4, 0.060, 0.0006
PRODUCER_PER_S = 31_250 / 16_000
"""Requests of one producer, each of a batch of nearly 16 kB [1/s]."""
THEIRS_PER_S = 24.0
CANARIES_PER_S = BROKERS / INTERVAL_S
AS_MUCH_PER_S = (0.8 * BROKERS * HANDLERS / (STATED_S + OWN_S) - CANARIES_PER_S) / 2
"""Requests of others where ours are as many at the limit [1/s]."""
Neighborhood = Callable[[Testbed, Event], AbstractContextManager[object]]
"""Testbed, event → the others, and what happens once when the event is set."""
BEGINS, BEGINS_S = "trial-started trial=2", 400.0
"""The line of the output at which the event is set, and the longest wait for it [s]."""
ALONE_S = 20.0
COPIED_PER_S = 250_000
"""Bytes that each broker copies for a reassignment [B/s]: it lasts for some trials."""


def _limit(
    theirs_per_s: float, ours_s: float = STATED_S + OWN_S, theirs_s: float = STATED_S + OWN_S
) -> float:
    """Our producers at the limit beside so many requests of others.

    Args:
        ours_s, theirs_s: time of a handler for a request, with what followers fetch of it.
    """
    left_s = 0.8 * BROKERS * HANDLERS - (CANARIES_PER_S + theirs_per_s) * theirs_s
    return left_s / ours_s / PRODUCER_PER_S


def _times(
    alone: tuple[Handled, Handled], end: Handled, theirs_per_s: float, are_alike: bool
) -> list[float]:
    """The handlers' time for a request of ours and of others, by the brokers' meters [s].

    Args:
        alone: readings at both ends of a time without us.
        end: the reading at the end of our run.
        are_alike: whether both have followers, so that their requests take as long.
    """
    if are_alike:
        requests, busy_s = end.since(alone[1], BROKERS, HANDLERS)
        return [busy_s / requests, busy_s / requests]
    theirs, busy_s = alone[1].since(alone[0], BROKERS, HANDLERS)
    theirs_s = busy_s / theirs
    requests, busy_s = end.since(alone[1], BROKERS, HANDLERS)
    theirs = theirs_per_s * (end.at_s - alone[1].at_s)
    return [(busy_s - theirs * theirs_s) / (requests - theirs), theirs_s]


def _alone(testbed: Testbed) -> tuple[Handled, Handled]:
    """Readings at both ends of some time without us, once JVMs have compiled."""
    time.sleep(ALONE_S)
    before = handled_of(testbed)
    time.sleep(ALONE_S)
    return before, handled_of(testbed)


@contextmanager
def _backfilled(testbed: Testbed, begun: Event) -> Iterator[None]:
    with ExitStack() as stack:
        writing = stack.enter_context(Neighbor(testbed, steady(THEIRS_PER_S)))
        stack.enter_context(backfill(testbed, writing.topic, begun, 2_000_000.0))
        yield


@contextmanager
def _restarted(testbed: Testbed, begun: Event) -> Iterator[None]:
    with ExitStack() as stack:
        writing = stack.enter_context(Neighbor(testbed, steady(THEIRS_PER_S), replicas=2))
        stack.enter_context(later(begun, lambda: restart(testbed, 2, 20.0, writing.topic)))
        yield


@contextmanager
def _reassigned(testbed: Testbed, begun: Event) -> Iterator[None]:
    """A reassignment, while an application creates 200 topics an hour and deletes them."""
    with ExitStack() as stack:
        writing = stack.enter_context(Neighbor(testbed, steady(THEIRS_PER_S)))
        stack.enter_context(later(begun, lambda: reassign(testbed, writing.topic, COPIED_PER_S)))
        stack.enter_context(new_topics(testbed, 18.0))
        yield


CASES: dict[str, tuple[Neighborhood, float, float]] = {
    "steady": (lambda bed, _: Neighbor(bed, steady(THEIRS_PER_S)), THEIRS_PER_S, THEIRS_PER_S),
    "15 % more from a moment on": (
        lambda bed, begun: Neighbor(bed, step(THEIRS_PER_S, 1.15, begun)),
        THEIRS_PER_S,
        1.15 * THEIRS_PER_S,
    ),
    "waves": (
        lambda bed, _: Neighbor(bed, waves(THEIRS_PER_S, 0.3, 30.0)),
        0.7 * THEIRS_PER_S,
        1.3 * THEIRS_PER_S,
    ),
    "bursts": (lambda bed, _: Neighbor(bed, bursts(THEIRS_PER_S, 2.0, 10.0)), 0.0, THEIRS_PER_S),
    "a backfill": (_backfilled, THEIRS_PER_S, THEIRS_PER_S),
    "a restart": (_restarted, THEIRS_PER_S, THEIRS_PER_S),
    "a reassignment": (_reassigned, THEIRS_PER_S, THEIRS_PER_S),
    "as much as ours, without followers": (
        lambda bed, _: Neighbor(bed, steady(AS_MUCH_PER_S), producers=PARTITIONS),
        AS_MUCH_PER_S, AS_MUCH_PER_S,
    ),
    "as much as ours, with followers": (
        lambda bed, _: Neighbor(bed, steady(AS_MUCH_PER_S), 3, producers=PARTITIONS),
        AS_MUCH_PER_S, AS_MUCH_PER_S,
    ),
}  # fmt: skip
"""Case → the neighbors, and the lowest and highest requests per second that they send."""
NEAR, NEAR_OF_TWO = 0.08, 0.05
"""Largest distance of the best estimate from the range of planted limits, and from the limit
beside others who write as much as we do [ratio]."""


@pytest.mark.parametrize("case", CASES)
def test_a_search_beside_others_ends_with_an_answer(case: str, tmp_path: Path) -> None:
    neighbors, low_per_s, high_per_s = CASES[case]
    are_two = case.startswith("as much")
    near, replicas = (NEAR_OF_TWO, 3) if are_two else (NEAR, 1)
    bed = start("calibrated", brokers=BROKERS, root=tmp_path / "bed", name="foreign")
    begun = Event()
    with bed as testbed, neighbors(testbed, begun):
        command = RunningCommand(
            "find-limit", "--cluster", str(cluster_file(testbed.folder)),
            "--workload", "calibrated", "--yes", "--out", str(tmp_path / "out"),
            "--json", str(tmp_path / "answer.json"),
            "--set=workload.message_bytes=[1000]", "--set=cluster.warm_up_max_s=30",
            f"--set=workload.topic.replication_factor={replicas}",
            f"--set=goal.search.resolution={near if are_two else 0.1}", folder=tmp_path,
        )  # fmt: skip
        before, began_s = requests_of(testbed), time.monotonic()
        alone = _alone(testbed) if are_two else None
        with command:
            command.await_line(BEGINS, BEGINS_S)
            begun.set()
            code = command.wait(800.0)
        lasted_s = time.monotonic() - began_s
        asked = control_requests(before, requests_of(testbed))
        are_alike = case.endswith("with followers")
        times = _times(alone, handled_of(testbed), low_per_s, are_alike) if alone else []
    log.warning("%s:\n%s", case, command.text)
    log.warning("%s: %.0f s, control requests %s", case, lasted_s, dict(asked))
    log.warning("%s: impact %s", case, impact_of(tmp_path / "out" / "tables"))
    assert code == 0, command.text[-2_000:]
    (point,) = json.loads((tmp_path / "answer.json").read_text())["boundaries"]
    found = point["np_estimate"]
    lowest, highest = (_limit(each, *times) for each in (high_per_s, low_per_s))
    log.warning("%s: a request of ours and of others takes %s s", case, times)
    log.warning("%s: found %.1f, planted %.1f to %.1f", case, found, lowest, highest)
    assert (1 - near) * lowest <= found <= (1 + near) * highest
    assert any("by other clients" in note for note in point["notes"]), point["notes"]

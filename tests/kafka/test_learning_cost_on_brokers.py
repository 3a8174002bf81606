"""What `redline learn` costs brokers that serve production."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

import psutil
import pytest

from jobs.cluster.connect import connect
from jobs.features.learn.survey import Bounds, Surveyor
from jobs.features.learn.topics import matching_topics
from jobs.testbed.handle import Testbed
from jobs.testbed.launcher import start
from tests.support.original_traffic import KINDS, original_traffic
from tests.support.scripted_admin import FakeTime

log = logging.getLogger(__name__)

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

LOADED_S = 60.0
"""Time for which producers send before their traffic is learnt [s]."""
COST_S = 15.0
"""Time in which surveys are repeated, and before and after it without them [s]."""
CORES_MAX = 0.01


@pytest.fixture(scope="module")
def production(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    """Brokers with four kinds of traffic."""
    folder = tmp_path_factory.mktemp("production")
    with (
        start("calibrated", brokers=3, overrides={"heap_mb": 384}, name="cost") as testbed,
        original_traffic(testbed, folder),
    ):
        time.sleep(LOADED_S)
        yield testbed


def cpu_s(testbed: Testbed) -> float:
    """CPU time of all brokers so far [s]."""
    times = [psutil.Process(testbed.pids[each]).cpu_times() for each in testbed.broker_ids]
    return sum(each.user + each.system for each in times)


def cores_for(testbed: Testbed, duration_s: float) -> float:
    """CPU time of all brokers in a second of the next seconds [cores]."""
    began_s, began_cpu_s = time.monotonic(), cpu_s(testbed)
    time.sleep(duration_s)
    return (cpu_s(testbed) - began_cpu_s) / (time.monotonic() - began_s)


def test_learning_costs_loaded_brokers_less_than_a_hundredth_of_a_core(production: Testbed) -> None:
    """Surveys follow one another without pauses, as a single one is lost in the load's noise.

    The time over which a survey is spread is that of its own clock.
    """
    before = cores_for(production, COST_S)
    with connect(production.bootstrap_servers) as admin:
        topics = matching_topics(admin, tuple(KINDS))
        began_s, began_cpu_s = time.monotonic(), cpu_s(production)
        spread_s, read_bytes, surveys = 0.0, 0, 0
        while time.monotonic() < began_s + COST_S:
            clock = FakeTime()
            survey = Surveyor(admin, topics, Bounds(), clock=clock, pause=clock.pause).make()
            surveys += 1
            spread_s += survey.took_s
            read_bytes += survey.bytes_read
        took_s, used_s = time.monotonic() - began_s, cpu_s(production) - began_cpu_s
    after = cores_for(production, COST_S)
    cost_s = used_s - (before + after) / 2 * took_s
    log.warning(
        "%.4f cores before, %.4f with %d surveys of %.1f MB, %.4f after: %.3f s of CPU time for a "
        "survey of %.1f s",
        *(before, used_s / took_s, surveys, read_bytes / surveys / 1e6, after, cost_s / surveys),
        spread_s / surveys,
    )
    assert cost_s / spread_s < CORES_MAX

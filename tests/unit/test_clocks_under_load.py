"""Executors whose clock steps or slews under load: a trial is INVALID or right.

The code of a task runs in a process of its own, whose clock libfaketime changes.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from jobs.trials.control_server import ControlServer, TaskChannel
from metrics.trial.client import ClientWindow, TaskReport, merge
from metrics.trial.evidence import Judgement
from search.model import Verdict
from tests.support.evidence import judged, rules
from tests.support.listening_broker import BROKER_ID, PARTITIONS, ListeningBroker
from tests.support.patterns import plan
from tests.support.processes import PATIENCE_S, becomes

LIBRARY = next(
    iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))), Path("/usr/lib/none")
)
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        not LIBRARY.exists(), reason="needs libfaketime (apt-get install libfaketime)"
    ),
]

CLOCK_RULES = {"clock_changed", "clocks_apart"}
RATE_RECORDS_PER_S = 1_000.0
MEASURE_S = 4.0
_TASK = """
import pickle, select, sys, threading, time

# libfaketime 0.9.10 breaks sleep() beside a real monotonic clock, and waits for locks with a limit
# beside one that it changes.
time.sleep = lambda seconds: select.select([], [], [], seconds) and None

def wait(event, timeout=None):
    until_s = time.monotonic() + (1e9 if timeout is None else timeout)
    while not event.is_set() and time.monotonic() < until_s:
        time.sleep(0.01)
    return event.is_set()

threading.Event.wait = wait
from jobs.engine.stage import run_task
from tests.bench.engine import Alone
row = run_task(pickle.load(sys.stdin.buffer), Alone())
sys.stdout.buffer.write(pickle.dumps(row))
"""


@dataclass
class Trial:
    """A trial of one task whose clock a test changes, and the broker that got its records."""

    client: ClientWindow
    judgement: Judgement
    broker: ListeningBroker


class Clock:
    """The clock of the task's process, by a file that libfaketime reads at each call."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.set("+0")

    def set(self, text: str) -> None:
        """Set the offset from the real clock, such as `+1.3`."""
        fresh = self._file.with_suffix(".new")
        fresh.write_text(text + "\n", encoding="ascii")
        fresh.replace(self._file)

    def variables(self) -> dict[str, str]:
        """Environment variables for a wall clock that follows the file; its monotonic one stays."""
        return {
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    return Clock(tmp_path / "clock")


@pytest.fixture
def server() -> Iterator[ControlServer]:
    with ControlServer("127.0.0.1", "127.0.0.1") as server:
        yield server


def trial(
    server: ControlServer,
    variables: Mapping[str, str],
    *steps: tuple[float, str],
    clock: Clock | None = None,
) -> Trial:
    """Run a trial of one task in a process with these environment variables.

    Args:
        steps: (records acknowledged in the window, what the clock is set to then).
    """
    with ListeningBroker() as broker, server.channel(1) as channel:
        ordered = plan(
            brokers={BROKER_ID: ("127.0.0.1", broker.ports[BROKER_ID])},
            leaders=(BROKER_ID,) * PARTITIONS,
            rate_records_per_s=RATE_RECORDS_PER_S,
            pool_bytes=200_000,
            linger_ms=2.0,
            start_lead_s=3.0,
            warmup_s=0.5,
            measure_s=MEASURE_S,
            control=channel.address,
        )
        with subprocess.Popen(
            [sys.executable, "-c", _TASK],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"PYTHONPATH": ":".join(sys.path), "LD_PRELOAD": str(LIBRARY), **variables},
        ) as task:
            assert task.stdin is not None and task.stdout is not None
            task.stdin.write(pickle.dumps(ordered))
            task.stdin.close()
            for acked, text in steps:
                assert clock is not None
                _await_acked(channel, acked)
                clock.set(text)
            row: TaskReport = pickle.loads(task.stdout.read())
        assert row.error is None, row.error
    client = merge([row])
    return Trial(client, judged(client), broker)


def _await_acked(channel: TaskChannel, records: float) -> None:
    assert becomes(lambda: sum(count for _, count in channel.acked()[-1:]) >= records, PATIENCE_S)


def require_right(seen: Trial) -> None:
    """Require that account and window are those that the broker saw by the real clock."""
    client = seen.client
    assert client.counts.acked_total == seen.broker.records
    within = seen.broker.records_within(client.start_s, client.end_s)
    # Records on their way at the edges: at most a fifth of a second's.
    assert abs(within - client.counts.acked_records) < RATE_RECORDS_PER_S / 5
    assert client.counts.offered_records == pytest.approx(RATE_RECORDS_PER_S * MEASURE_S, rel=0.01)


def test_a_clock_that_is_left_alone_makes_a_valid_trial(
    server: ControlServer, clock: Clock
) -> None:
    seen = trial(server, clock.variables())
    assert not rules(seen.judgement) & CLOCK_RULES
    require_right(seen)
    (change,) = seen.client.clock_changes
    assert change.least_s < 0.01 * MEASURE_S


@pytest.mark.parametrize(("set_s", "rule"), [(1.3, "clocks_apart"), (-0.18, "clock_changed")])
def test_a_clock_that_is_set_under_load_is_invalid(
    server: ControlServer, clock: Clock, set_s: float, rule: str
) -> None:
    seen = trial(server, clock.variables(), (500, f"{set_s:+}"), clock=clock)
    assert seen.judgement.verdict is Verdict.INVALID
    assert rules(seen.judgement) & CLOCK_RULES == {rule}
    if rule == "clocks_apart":
        require_right(seen)
        return
    (change,) = seen.client.clock_changes
    assert change.gained_s == pytest.approx(set_s, abs=change.error_s + 0.01)


def test_a_clock_that_is_set_and_set_back_makes_a_valid_and_right_trial(
    server: ControlServer, clock: Clock
) -> None:
    """The load is paced by another clock of its host, so that it does not notice."""
    seen = trial(server, clock.variables(), (500, "+30"), (2_000, "+0"), clock=clock)
    assert not rules(seen.judgement) & CLOCK_RULES
    require_right(seen)


def test_a_clock_that_runs_faster_makes_a_larger_load_and_an_invalid_trial(
    server: ControlServer,
) -> None:
    """A program that synchronizes a clock may let it run some percent faster."""
    speed = 1.015
    seen = trial(server, {"FAKETIME": f"+0 x{speed}"})
    assert seen.judgement.verdict is Verdict.INVALID
    assert rules(seen.judgement) & CLOCK_RULES
    # Its own account is fine: nothing but the comparison of the clocks shows the surplus.
    assert seen.client.counts.offered_records == pytest.approx(4_000, rel=0.01)
    times = [at_s for at_s, records in seen.broker.received if records]
    rate = seen.broker.records / (times[-1] - times[0])
    assert rate == pytest.approx(speed * RATE_RECORDS_PER_S, rel=0.007)

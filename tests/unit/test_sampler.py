from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pytest

from metrics.common.errors import RedlineError
from metrics.sources.sample import BrokerSample
from metrics.sources.sampler import Sampler
from metrics.sources.source import NodeInfo
from tests.support.processes import PATIENCE_S


class FakeTime:
    """A clock that waits and slow polls move; after some seconds, a wait returns the stop."""

    def __init__(self, stop_at_s: float = 10.0) -> None:
        self.now_s = 1000.0
        self._stop_at_s = 1000.0 + stop_at_s

    def clock(self) -> float:
        return self.now_s

    def wait(self, seconds: float) -> bool:
        self.now_s += seconds
        return self.now_s >= self._stop_at_s


class FakeSource:
    name = "fake"
    nodes: Mapping[int, NodeInfo] = {}

    def __init__(self, time: FakeTime, polls_s: dict[int, float] | None = None) -> None:
        self._time = time
        self._polls_s = polls_s or {}
        self.polls = 0

    def open(self) -> None:
        return None

    def sample_all(self) -> list[BrokerSample]:
        self.polls += 1
        at_s = self._time.now_s
        self._time.now_s += self._polls_s.get(self.polls, 0.1)
        return [BrokerSample(i, at_s) for i in (1, 2)]

    def close(self) -> None:
        return None


@pytest.mark.parametrize(
    ("stop_at_s", "interval_s", "polls_s", "at_s"),
    [
        (4.5, 1.0, {}, [0, 1, 2, 3, 4]),
        (6.5, 1.0, {2: 2.3}, [0, 1, 4, 5, 6]),  # a slow poll leaves slots out
        (100.05, 0.1, dict.fromkeys(range(2000), 0.0), [each / 10 for each in range(1001)]),
    ],
)
def test_samples_at_intended_times_not_after_each_other(
    stop_at_s: float, interval_s: float, polls_s: dict[int, float], at_s: list[float]
) -> None:
    time = FakeTime(stop_at_s)
    sampler = Sampler(FakeSource(time, polls_s), interval_s, time.clock, time.wait).start()
    sampler._thread.join()
    samples = sampler.stop()
    assert [s.broker_id for s in samples] == [1, 2] * (len(samples) // 2)
    assert [s.at_s - 1000.0 for s in samples[::2]] == pytest.approx(at_s)


class BrokenSource(FakeSource):
    def sample_all(self) -> list[BrokerSample]:
        if self.polls == 2:
            raise OSError("the JVM is gone")
        return super().sample_all()


@pytest.mark.parametrize("mine", [None, KeyError("mine")])
def test_an_error_of_the_source_leaves_the_context_unless_another_error_does(
    mine: KeyError | None,
) -> None:
    time = FakeTime()
    expected: Any = pytest.raises(OSError, match="the JVM is gone")
    with (
        pytest.raises(KeyError, match="mine") if mine else expected,
        Sampler(BrokenSource(time), 1.0, time.clock, time.wait) as sampler,
    ):
        sampler._thread.join()
        if mine:
            raise mine


def test_too_many_samples_are_an_error_and_not_a_full_memory() -> None:
    time = FakeTime(stop_at_s=1e9)
    source = FakeSource(time)
    sampler = Sampler(source, 1.0, time.clock, time.wait, max_samples=9).start()
    sampler._thread.join()
    with pytest.raises(RedlineError, match=r"10 samples; .* raise sample_interval_s"):
        sampler.stop()
    assert source.polls == 5


def test_stop_ends_the_wait_at_once() -> None:
    time = FakeTime(stop_at_s=1e9)
    polled = threading.Event()

    class Announcing(FakeSource):
        def sample_all(self) -> list[BrokerSample]:
            polled.set()
            return super().sample_all()

    sampler = Sampler(Announcing(time), 3600.0, time.clock).start()
    assert polled.wait(PATIENCE_S)
    assert len(sampler.stop()) == 2
    assert not sampler._thread.is_alive()


@pytest.mark.parametrize("has_end", [False, True])
def test_a_wait_for_a_time_ends_once_it_was_sampled(has_end: bool) -> None:
    time, waited = FakeTime(stop_at_s=1.5 if has_end else 1e9), threading.Event()

    class Announcing(threading.Condition):
        def wait(self, timeout: float | None = None) -> bool:
            waited.set()
            return super().wait(timeout)

    class Held(FakeSource):
        def sample_all(self) -> list[BrokerSample]:
            if self.polls >= 1:  # not before a thread waits for it
                waited.wait(PATIENCE_S)
            return super().sample_all()

    sampler = Sampler(Held(time), 1.0, time.clock, time.wait, max_samples=1000)
    sampler._keeping = Announcing()
    sampler.start().wait_past(1002.0, 60.0)
    newest_s = max(each.at_s for each in sampler._samples)
    assert newest_s == 1001.0 if has_end else newest_s >= 1002.0
    sampler._thread.join()


def test_the_wait_for_a_sample_ends_at_its_timeout() -> None:
    time, ended = FakeTime(stop_at_s=0.5), threading.Event()

    class Silent(FakeSource):
        def sample_all(self) -> list[BrokerSample]:
            ended.wait(PATIENCE_S)
            return super().sample_all()

    with Sampler(Silent(time), 1.0, time.clock, time.wait) as sampler:
        sampler.wait_past(1000.0, 0.01)
        assert sampler.samples_taken() == []
        ended.set()
    with pytest.raises(ValueError, match="interval_s is 0"):
        Sampler(FakeSource(time), 0)

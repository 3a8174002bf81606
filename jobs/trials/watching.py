"""A polling thread that ends with a block, and raises its errors there.

The live progress of a running trial, from its latest samples.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from jobs.console.events import Reporter, TrialProgress
from jobs.trials.control_server import TaskChannel
from metrics.sources.sample import BrokerSample
from metrics.sources.sampler import Sampler
from metrics.traffic.pattern import Phases, TrafficPattern
from metrics.windows.broker import BrokerWindow, broker_windows, busiest_of


@contextmanager
def watching(
    name: str,
    look: Callable[[], float | None],
    first_after_s: float = 0.0,
    fail: Callable[[Exception], None] = lambda _: None,
) -> Iterator[None]:
    """Call `look` repeatedly on a thread until the block ends.

    Args:
        name: name of the thread.
        look: returns the time until its next call [s], or None for no further call.
        first_after_s: time before the first call [s].
        fail: ends what the block waits for, as a call failed; `TaskChannel.fail` for a load.

    Raises:
        Exception: the error of a call, once the block has ended without an error.
    """
    left = threading.Event()
    failures: list[Exception] = []

    def run() -> None:
        wait_s: float | None = first_after_s
        try:
            while wait_s is not None and not left.wait(wait_s):
                wait_s = look()
        except Exception as error:  # noqa: BLE001 - raised again, in the caller's thread
            failures.append(error)
            fail(error)

    thread = threading.Thread(target=run, name=f"redline-{name}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        left.set()
        thread.join()
    if failures:
        raise failures[0]


_INTERVAL_S = 0.5
_RECENT_S = 2.0
_RECENT_INTERVALS = 2.5
"""The time span of the samples that are shown: `_RECENT_S`, and at least two samples of each
broker."""


@dataclass
class Ticker:
    """Reports the progress of a trial twice a second."""

    reporter: Reporter
    sampler: Sampler[BrokerSample]
    pattern: TrafficPattern
    channel: TaskChannel

    def watch(self) -> AbstractContextManager[None]:
        """Report while the block lasts."""
        self._started_s = time.time()
        return watching("ticker", self._look, _INTERVAL_S, self.channel.fail)

    def _look(self) -> float:
        now_s = time.time()
        start_s = self.channel.start_s
        phases = self.channel.phases_now(self.pattern.phases)
        self.reporter.report(
            TrialProgress(
                stage=stage_at(-1.0 if start_s is None else now_s - start_s, phases),
                elapsed_s=now_s - self._started_s,
                achieved_mb_per_s=self._achieved(),
                busiest=self._busiest(now_s),
            )
        )
        return _INTERVAL_S

    def _achieved(self) -> float | None:
        """The rate of acknowledged payload in the window up to now [MB/s]."""
        at_s, records = next(reversed(self.channel.acked()), (0.0, 0))
        return records * self.pattern.message_bytes / at_s / 1e6 if at_s > 0 else None

    def _busiest(self, now_s: float) -> BrokerWindow | None:
        """The broker with the least idle handlers in the last seconds."""
        interval_s = self.pattern.phases.sample_interval_s
        from_s = now_s - max(_RECENT_S, _RECENT_INTERVALS * interval_s)
        samples = [each for each in self.sampler.samples_taken() if each.at_s >= from_s]
        nodes = {sample.broker_id for sample in samples}
        return busiest_of(broker_windows(samples, nodes, from_s, now_s, interval_s))


def stage_at(load_s: float, phases: Phases) -> str:
    """The phase of a trial, so many seconds after its first record."""
    if load_s < 0:
        return "preparing"
    if load_s < phases.warmup_s:
        return "warming up"
    if load_s < phases.load_s:
        return "measuring"
    return "draining"

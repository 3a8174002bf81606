"""A thread that samples all brokers or all hosts at a fixed interval, and keeps the samples."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from metrics.common.errors import RedlineError
from metrics.sources.sample import Timed

MAX_SAMPLES = 500_000


Sample = TypeVar("Sample", bound=Timed)
Sample_co = TypeVar("Sample_co", bound=Timed, covariant=True)


class Sampled(Protocol[Sample_co]):
    """A source of samples of brokers or hosts."""

    def sample_all(self) -> Sequence[Sample_co]:
        """One sample of each broker or host."""
        ...


class Sampler(Generic[Sample]):
    """Takes samples at start + i·interval until it is stopped.

    If a sample ends after the next intended time, the sampler skips the next intended time. The
    windows count a skipped sample as missing.

    Args:
        source: an open source. Until `stop` is called, only the sampler's thread may use the
            source.
        interval_s: intended time between two samples [s].
        clock: wall clock [s since the epoch].
        wait: waits for a number of seconds, and returns True if the sampler was stopped during the
            wait. By default, the sampler's thread waits until the time is over or `stop` is called.
        max_samples: highest number of kept samples; the sampler fails if it keeps more samples.

    Raises:
        ValueError: `interval_s` is not above 0.
    """

    def __init__(
        self,
        source: Sampled[Sample],
        interval_s: float,
        clock: Callable[[], float] = time.time,
        wait: Callable[[float], bool] | None = None,
        max_samples: int = MAX_SAMPLES,
    ) -> None:
        if interval_s <= 0:
            raise ValueError(f"interval_s is {interval_s}; expected more than 0")
        self._source = source
        self._interval_s = interval_s
        self._clock = clock
        self._stopped = threading.Event()
        self._wait = wait if wait is not None else self._stopped.wait
        self._max_samples = max_samples
        self._samples: list[Sample] = []
        self._failure: BaseException | None = None
        # Start of the last round whose samples are kept. Infinite after the end of the thread.
        self._round_s = -math.inf
        self._keeping = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="redline-sampler", daemon=True)

    def start(self) -> Sampler[Sample]:
        """Start the thread, which takes the first sample at once."""
        self._thread.start()
        return self

    def samples_taken(self) -> list[Sample]:
        """A copy of the samples so far, for guards and progress displays.

        Raises:
            BaseException: the error that stopped the thread.
        """
        if self._failure is not None:
            raise self._failure
        return list(self._samples)

    def wait_past(self, at_s: float, timeout_s: float) -> None:
        """Wait for the end of the first round of samples that begins at or after a time.

        The wait also ends if the thread ends.

        Args:
            at_s: earliest start of the round [s since the epoch].
            timeout_s: longest wait [s].
        """
        with self._keeping:
            self._keeping.wait_for(lambda: self._round_s >= at_s, timeout_s)

    def forget_before(self, at_s: float) -> None:
        """Drop the samples that were taken before a time [s since the epoch]."""
        with self._keeping:
            self._samples = [each for each in self._samples if each.at_s >= at_s]

    def stop(self) -> list[Sample]:
        """Stop the thread after the sample in progress, and return all samples in their order.

        Raises:
            RedlineError: more than `max_samples` were taken.
            BaseException: the error that stopped the thread.
        """
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join()
        return self.samples_taken()

    def __enter__(self) -> Sampler[Sample]:
        return self.start()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Stop the thread. If the thread failed and no other error is being raised, raise the
        thread's error.
        """
        self._stopped.set()
        self._thread.join()
        if error is None and self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            self._sample_on_schedule()
        except BaseException as error:  # noqa: BLE001 - stop raises it again on the caller's thread
            self._failure = error
        finally:
            with self._keeping:
                self._round_s = math.inf
                self._keeping.notify_all()

    def _sample_on_schedule(self) -> None:
        start_s = self._clock()
        slot = 0
        while not self._stopped.is_set():
            began_s = self._clock()
            taken = self._source.sample_all()
            with self._keeping:
                self._samples.extend(taken)
                self._round_s = began_s
                self._keeping.notify_all()
            if len(self._samples) > self._max_samples:
                raise RedlineError(
                    f"one trial took {len(self._samples)} samples; expected at most "
                    f"{self._max_samples}; raise sample_interval_s, which is "
                    f"{self._interval_s:g}, or shorten the trial"
                )
            passed = int((self._clock() - start_s) / self._interval_s)
            slot = max(slot, passed) + 1
            due_s = start_s + slot * self._interval_s
            if self._wait(max(0.0, due_s - self._clock())):
                return

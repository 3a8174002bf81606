"""A thread that samples all brokers, or all hosts, at intended times and keeps what it saw."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Generic, Protocol, TypeVar

from metrics.common.errors import RedlineError

MAX_SAMPLES = 500_000


class Timed(Protocol):
    """Anything that was seen at a moment."""

    @property
    def at_s(self) -> float:
        """When [s since the epoch]."""
        ...


Seen = TypeVar("Seen", bound=Timed)
Seen_co = TypeVar("Seen_co", bound=Timed, covariant=True)


class Sampled(Protocol[Seen_co]):
    """What can be looked at: the brokers' metrics, or their hosts."""

    def sample_all(self) -> Sequence[Seen_co]:
        """One look at everything."""
        ...


class Sampler(Generic[Seen]):
    """Samples at start + i·interval until stopped; a slot that it was late for is left out.

    A slot left out shows as a missed sample in the windows, which count by the interval.

    Args:
        source: an open source; the sampler's thread is its only user until `stop`.
        interval_s: between two intended times [s].
        clock: wall clock [s since the epoch].
        wait: waits so many seconds and says True when it was told to stop; by default
            on the sampler's own event.
        max_samples: samples to keep at a time; beyond it `stop` raises.
    """

    def __init__(
        self,
        source: Sampled[Seen],
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
        self._samples: list[Seen] = []
        self._failure: BaseException | None = None
        # When the last round began that is kept; after inf there is no other.
        self._round_s = -math.inf
        self._keeping = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="redline-sampler", daemon=True)

    def start(self) -> Sampler[Seen]:
        """Begin; the first sample is due now."""
        self._thread.start()
        return self

    def samples_taken(self) -> list[Seen]:
        """A copy of the samples until now, for progress and guards.

        Raises:
            BaseException: what ended the sampling early.
        """
        if self._failure is not None:
            raise self._failure
        return list(self._samples)

    def wait_past(self, at_s: float, timeout_s: float) -> None:
        """Until all brokers were asked once more after this time, or will not be any more.

        Args:
            at_s: seconds since the epoch.
            timeout_s: not longer than so [s].
        """
        with self._keeping:
            self._keeping.wait_for(lambda: self._round_s >= at_s, timeout_s)

    def forget_before(self, at_s: float) -> None:
        """Keep no sample that was taken before this time [s since the epoch]."""
        with self._keeping:
            self._samples = [each for each in self._samples if each.at_s >= at_s]

    def stop(self) -> list[Seen]:
        """End after the sample in progress, and all samples in the order taken.

        Raises:
            RedlineError: when there were more than `max_samples`.
            BaseException: what ended the sampling early.
        """
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join()
        return self.samples_taken()

    def __enter__(self) -> Sampler[Seen]:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends the thread; an error of its own is raised unless another is on its way."""
        self._stopped.set()
        self._thread.join()
        if error is None and self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            self._sample_on_schedule()
        except BaseException as error:  # noqa: BLE001 - raised again by stop, in the caller's thread
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
                    f"{len(self._samples)} samples in one trial are more than the "
                    f"{self._max_samples} that are kept; sample less often (sample_interval_s "
                    f"is {self._interval_s:g}) or make the trial shorter"
                )
            passed = int((self._clock() - start_s) / self._interval_s)
            slot = max(slot, passed) + 1
            due_s = start_s + slot * self._interval_s
            if self._wait(max(0.0, due_s - self._clock())):
                return

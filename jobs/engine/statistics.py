"""Counting what the producers of one task did, inside the measured window and in all."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict

import numpy as np
from hdrh.histogram import HdrHistogram

from metrics.trial.histograms import new_histogram, record_us

_CHUNK = 16_384
_POINTS = 4
_MANTISSA_BITS = 11


class TimeLog:
    """Times of batches [s], folded into a histogram of the times of their records [µs].

    The records of a batch were due evenly over `span`, so a batch stands for the times
    from its first record's (the longest) down to its last one's. It is folded in as four
    points over that range, which is exact for one record and within a third of the span
    for the others, never too short.
    """

    def __init__(self, record_interval_s: float = 0.0) -> None:
        self.histogram: HdrHistogram = new_histogram()
        self._interval_us = record_interval_s * 1e6
        self._seconds = array("d")
        self._records = array("q")

    def add(self, seconds: float, records: int) -> None:
        """Add a batch: the time of its first record [s] and how many records it holds."""
        self._seconds.append(seconds)
        self._records.append(records)
        if len(self._seconds) >= _CHUNK:
            self.fold()

    def fold(self) -> None:
        """Move what was added into the histogram, by groups of equal time."""
        if not self._seconds:
            return
        first_us = np.frombuffer(self._seconds, dtype=np.float64) * 1e6
        records = np.frombuffer(self._records, dtype=np.int64)
        span_us = (records - 1) * self._interval_us
        share = records // _POINTS
        for point in range(_POINTS):
            weights = share if point else records - share * (_POINTS - 1)
            self._fold_points(first_us - span_us * point / (_POINTS - 1), weights)
        self._seconds, self._records = array("d"), array("q")

    def _fold_points(self, times_us: np.ndarray, weights: np.ndarray) -> None:
        mantissa, exponent = np.frexp(np.maximum(times_us, 1.0))
        rounded = np.ldexp(np.round(np.ldexp(mantissa, _MANTISSA_BITS)), exponent - _MANTISSA_BITS)
        values, inverse = np.unique(rounded, return_inverse=True)
        totals = np.bincount(inverse, weights=weights)
        for value, total in zip(values.tolist(), totals.tolist(), strict=True):
            if total:
                record_us(self.histogram, value, int(total))


class Account:
    """What one task's producers did. Times are of the engine's clock [s].

    Whole-trial counts end in `_total`; the other counts are of the window only.
    """

    def __init__(self, window_start_s: float, window_end_s: float, interval_s: float) -> None:
        self.window_start_s = window_start_s
        self.window_end_s = window_end_s
        self.sent_records = 0
        self.acked_records = 0
        self.acked_bytes = 0
        self.failed_records = 0
        self.acked_total = 0
        self.throttle_ms = 0
        self.acked_by_partition: Counter[int] = Counter()
        self.errors_by_partition: defaultdict[int, Counter[str]] = defaultdict(Counter)
        self.sent_by_partition: Counter[int] = Counter()
        self.retried_records = 0
        self.retried_by_partition: Counter[int] = Counter()
        self.duplicates_by_partition: Counter[int] = Counter()
        self.retry_errors: Counter[str] = Counter()
        self.latency = TimeLog(interval_s)
        self.lateness = TimeLog()

    def sent(self, records: int, now: float) -> None:
        """A batch was handed to a socket."""
        if self.window_start_s <= now < self.window_end_s:
            self.sent_records += records

    def late(self, lateness_s: float, records: int, now: float) -> None:
        """A batch that no broker held up was sent `lateness_s` after it was due."""
        if self.window_start_s <= now < self.window_end_s:
            self.lateness.add(lateness_s, records)

    def acked(
        self, partition: int, first_due_s: float, records: int, payload_bytes: int, now: float
    ) -> bool:
        """A batch was acknowledged; its first record was due at `first_due_s`.

        True when that was inside the window.
        """
        self.acked_total += records
        self.acked_by_partition[partition] += records
        if not self.window_start_s <= now < self.window_end_s:
            return False
        self.acked_records += records
        self.acked_bytes += payload_bytes
        self.latency.add(now - first_due_s, records)
        return True

    def failed(self, error: str, records: int, now: float, partition: int) -> None:
        """Records of this partition ended in the error of this name."""
        self.errors_by_partition[partition][error] += records
        if self.window_start_s <= now < self.window_end_s:
            self.failed_records += records

    @property
    def errors(self) -> Counter[str]:
        """Error name → records that ended in it."""
        return sum(self.errors_by_partition.values(), Counter())

    @property
    def failed_by_partition(self) -> Counter[int]:
        """Partition → records that ended in an error."""
        return Counter({p: errors.total() for p, errors in self.errors_by_partition.items()})

    @property
    def failed_total(self) -> int:
        """Records that ended in an error."""
        return self.errors.total()

    def retried(self, error: str, records: int, partition: int) -> None:
        """A batch is sent again to this partition because of the error of this name."""
        self.retried_records += records
        self.retried_by_partition[partition] += records
        self.retry_errors[error] += records

    def duplicated(self, partition: int, records: int) -> None:
        """So many records may be in the log once more than they count as acked or failed."""
        self.duplicates_by_partition[partition] += records

"""Whether and when a batch is sent again: the rules of Kafka's own producer."""

from __future__ import annotations

import random
from dataclasses import dataclass

from kafka.errors import for_code

from metrics.traffic.producer import ProducerOptions

DUPLICATE_SEQUENCE = 46
"""The broker has this batch of an idempotent producer already."""

OUT_OF_ORDER_SEQUENCE = 45
_NOT_LEADER = 6
_UNKNOWN_PRODUCER = frozenset({47, 59})  # of another epoch, and forgotten
SEQUENCE_ERRORS = frozenset({OUT_OF_ORDER_SEQUENCE, *_UNKNOWN_PRODUCER})
_MAYBE_WRITTEN = frozenset({7, 20, 56})  # time-out, too few replicas after append, storage

_JITTER = 0.2
_EXPONENT_MAX = 62


@dataclass(frozen=True)
class Refusal:
    """What an error code of a produce response means.

    Attributes:
        error: its name.
        is_retriable: the same batch may be taken another time.
        is_unsure: the broker may have written the batch all the same.
        leader_moved: leaders have to be asked for again.
    """

    error: str
    is_retriable: bool
    is_unsure: bool
    leader_moved: bool

    @classmethod
    def of(cls, code: int, options: ProducerOptions, is_idempotent: bool) -> Refusal:
        """Of a code that is not 0."""
        error = for_code(code)
        is_unsure = code in _MAYBE_WRITTEN or (code == _NOT_LEADER and options.acks == "all")
        is_retriable = error.retriable or (is_idempotent and code in SEQUENCE_ERRORS)
        return cls(error.__name__, is_retriable, is_unsure, error.invalid_metadata)


LOST = Refusal("", is_retriable=True, is_unsure=True, leader_moved=False)
"""A connection was lost before the answer."""


def backoff_s(options: ProducerOptions, failures: int, rng: random.Random) -> float:
    """How long to wait after so many failures in a row, at least one [s].

    Doubles from `retry_backoff_ms` up to `retry_backoff_max_ms`, 20 % up or down, so that
    clients that failed together do not come back together (KIP-580).
    """
    doubled_ms: float = options.retry_backoff_ms * 2 ** min(failures - 1, _EXPONENT_MAX)
    bounded_ms = min(doubled_ms, options.retry_backoff_max_ms)
    jittered_ms = bounded_ms * rng.uniform(1 - _JITTER, 1 + _JITTER)
    return min(jittered_ms, options.retry_backoff_max_ms) / 1000.0

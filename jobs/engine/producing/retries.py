"""Rules for retries, as in Kafka's own producer: whether and when to send a batch again."""

from __future__ import annotations

import random
from dataclasses import dataclass

from kafka.errors import for_code

from metrics.traffic.clients import ProducerOptions

DUPLICATE_SEQUENCE = 46
"""Kafka's error code for an idempotent producer's batch that the broker already has."""

OUT_OF_ORDER_SEQUENCE = 45
_NOT_LEADER = 6
_UNKNOWN_PRODUCER = frozenset({47, 59})  # wrong epoch, unknown producer id
SEQUENCE_ERRORS = frozenset({OUT_OF_ORDER_SEQUENCE, *_UNKNOWN_PRODUCER})
_MAYBE_WRITTEN = frozenset({7, 20, 56})  # timeout, too few replicas after the append, storage

_JITTER = 0.2
_EXPONENT_MAX = 62


@dataclass(frozen=True)
class Refusal:
    """Meaning of an error code in a produce response, or of a lost connection.

    Attributes:
        error: name of the error.
        is_retriable: whether a retry of the same batch can succeed.
        is_unsure: whether the broker may have written the batch despite the error.
        leader_moved: whether the leaders must be requested again.
    """

    error: str
    is_retriable: bool
    is_unsure: bool
    leader_moved: bool

    @classmethod
    def of(cls, code: int, options: ProducerOptions, is_idempotent: bool) -> Refusal:
        """The meaning of an error code other than 0."""
        error = for_code(code)
        is_unsure = code in _MAYBE_WRITTEN or (code == _NOT_LEADER and options.acks == "all")
        is_retriable = error.retriable or (is_idempotent and code in SEQUENCE_ERRORS)
        return cls(error.__name__, is_retriable, is_unsure, error.invalid_metadata)


def backoff_s(options: ProducerOptions, failures: int, rng: random.Random) -> float:
    """Time before a retry [s].

    The back-off doubles with each failure, from `retry_backoff_ms` up to `retry_backoff_max_ms`.
    The back-off varies at random by 20 %, so that clients that failed together do not retry
    together (KIP-580).

    Args:
        failures: number of consecutive failures, at least one.
    """
    doubled_ms: float = options.retry_backoff_ms * 2 ** min(failures - 1, _EXPONENT_MAX)
    bounded_ms = min(doubled_ms, options.retry_backoff_max_ms)
    jittered_ms = bounded_ms * rng.uniform(1 - _JITTER, 1 + _JITTER)
    return min(jittered_ms, options.retry_backoff_max_ms) / 1000.0

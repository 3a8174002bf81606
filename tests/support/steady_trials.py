"""Invented trials of brokers whose disk writes at a stated rate, and limits that they found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from metrics.tables.boundary import Boundary
from metrics.trial.evidence import Judgement, Reason
from metrics.trial.trial import Trial
from metrics.windows.write_back import WriteBackWindow
from search.model import Verdict
from tests.support.evidence import START_S, client
from tests.support.rows import BOUNDARY, traffic, trial

SUSTAINED = Judgement(Verdict.SUSTAINED, (Reason("achieved", "all was acknowledged", 1.0, 0.99),))
RATE = 1_000_000.0


def at(
    producers: int,
    written_per_s: float = RATE * 1e6,
    seconds: float = 10.0,
    message_bytes: int = 1_000,
    **changes: Any,
) -> Trial:
    """A trial of producers of 1 MB/s, whose brokers' disk writes so many bytes per second."""
    rate = producers * RATE
    share = min(1.0, written_per_s / rate)
    is_long = seconds >= 60.0
    window = WriteBackWindow(
        "b",
        (1, 2),
        duration_s=seconds,
        taken_bytes=rate * seconds,
        written_bytes=rate * seconds * (share if is_long else 0.0),
        unwritten_start_bytes=0.0,
        dirty_limit_bytes=4e9,
        settled_s=seconds if is_long else 0.0,
        settled_taken_bytes=rate * seconds if is_long else None,
        settled_written_bytes=rate * seconds * share if is_long else None,
        fastest_bytes_per_s=written_per_s,
    )
    parts: dict[str, Any] = {
        "client": replace(client(), end_s=START_S + seconds),
        "write_back": (window,),
        "pattern": replace(
            traffic(producers, message_bytes, RATE / message_bytes, load=producers),
            point_message_bytes=message_bytes,
        ),
        "judgements": {"default": SUSTAINED},
    } | changes
    return trial(**parts)


def limit(producers: int = 64, message_bytes: int = 1_000, **changes: Any) -> Boundary:
    found = replace(
        BOUNDARY,
        message_bytes=message_bytes,
        np_sustained=producers,
        load_sustained=producers,
        load_overloaded=producers + 1,
        mb_per_s=float(producers),
    )
    return replace(found, **changes)

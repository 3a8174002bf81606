"""The figure of a limit, from its boundary. Pure."""

from __future__ import annotations

from metrics.comparing.sweeps import Result
from metrics.tables.boundary import Boundary


def limit_result(boundary: Boundary) -> Result:
    """The figure of a limit, without the settings of its case."""
    pays = boundary.along.grows_payload
    low, _ = boundary.loads
    value = boundary.mb_per_s if pays else float(low)
    why = boundary.gave_up or ("" if value else "no load was sustained")
    return Result(
        {},
        1,
        boundary.message_bytes,
        None if why else value,
        boundary.mb_per_s_low if pays else boundary.load_low,
        boundary.mb_per_s_high if pays else boundary.load_high,
        *boundary.latencies_ms,
        limited_by=boundary.limited_by,
        why=why,
        broker_resident_bytes=boundary.broker_resident_bytes,
        page_cache_bytes=boundary.page_cache_bytes,
    )

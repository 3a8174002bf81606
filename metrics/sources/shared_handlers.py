"""The broker's part of a meter that its request handlers share with a controller's.

Before Kafka 4.2 a process that is broker and controller has two pools of request handlers and one
meter, `RequestHandlerAvgIdlePercent`, to which both add: 2.0 at rest. The broker's idle time is the
meter less the controller's idle time, and that is the time less the controller's busy time. The
controller's busy time lies between 0 and a bound that follows from its requests:

- the local time of each kind of request that only a controller answers, and half a millisecond for
  each of them, as Kafka rounds each time to whole milliseconds;
- `OTHER_REQUEST_MS` for each other request on the controller's listener, which are the fetches of
  the metadata. Where no listener has a name with "control", all fetches of followers are counted.

The bound holds for one handler; with more handlers the controller's share is smaller. So the
broker's idle time is the middle of its range, and half of the bound is its error.
"""

from __future__ import annotations

from collections.abc import Mapping

from metrics.sources.beans import (
    CONTROLLER_HANDLER_NS,
    CONTROLLER_REQUESTS,
    HANDLER_IDLE_NS,
    NETWORK_REQUESTS,
    SHARED_HANDLER_IDLE_NS,
    TICK_EDGE_ERROR,
    TICK_ERROR,
    TICKED_S,
    UPTIME_MS,
    controller_request,
)

ROUNDING_MS = 0.5
"""Largest error of the time of one request, which Kafka rounds to whole milliseconds [ms]."""
OTHER_REQUEST_MS = 1.0
"""Assumed longest mean time of a handler for a fetch of the metadata, which are in memory [ms]."""
UNKNOWN_SHARE = 0.1
"""Assumed largest busy share of a controller's handlers whose requests are not shown [ratio]."""
_CONTROLLERS_LISTENER = "control"


def with_own_idle(values: Mapping[str, float], at_s: float) -> dict[str, float]:
    """The readings of a sample, with the idle time of the broker's own handlers.

    Readings without a shared meter are returned unchanged.

    Args:
        values: the readings.
        at_s: time of the sample, which stands in for the uptime where that is not shown [s].
    """
    found = dict(values)
    shared, uptime_ms = found.get(SHARED_HANDLER_IDLE_NS), found.get(UPTIME_MS, at_s * 1e3)
    if shared is None:
        return found
    ticked = f"{TICKED_S}:{SHARED_HANDLER_IDLE_NS}"
    if ticked in found:  # the meter has a clock of its own
        uptime_ms = found[ticked] * 1e3
        for prefix in (TICKED_S, TICK_ERROR, TICK_EDGE_ERROR):
            if f"{prefix}:{SHARED_HANDLER_IDLE_NS}" in found:
                copied = found[f"{prefix}:{SHARED_HANDLER_IDLE_NS}"]
                found[f"{prefix}:{HANDLER_IDLE_NS}"] = copied
                found[f"{prefix}:{CONTROLLER_HANDLER_NS}"] = copied
    busy_ns = controller_bound_ns(found, uptime_ms)
    found[CONTROLLER_HANDLER_NS] = busy_ns
    found[HANDLER_IDLE_NS] = shared - uptime_ms * 1e6 + busy_ns / 2
    return found


def controller_share(values: Mapping[str, float]) -> float | None:
    """The largest busy share of the controller's handlers since the start [ratio].

    None without a shared meter.
    """
    busy_ns, uptime_ms = values.get(CONTROLLER_HANDLER_NS), values.get(UPTIME_MS)
    if busy_ns is None:
        return None
    ticked_s = values.get(f"{TICKED_S}:{SHARED_HANDLER_IDLE_NS}")
    uptime_ms = uptime_ms if ticked_s is None else ticked_s * 1e3
    return busy_ns / (uptime_ms * 1e6) if uptime_ms else UNKNOWN_SHARE


def controller_bound_ns(values: Mapping[str, float], uptime_ms: float) -> float:
    """The longest time for which the controller's handlers were busy since the start [ns]."""
    names = [controller_request(each) for each in CONTROLLER_REQUESTS]
    counts = {name: values[f"{name}_count"] for name in names if f"{name}_count" in values}
    if not counts:
        return UNKNOWN_SHARE * uptime_ms * 1e6
    took_ms = sum(
        count * values.get(f"{name}_mean", OTHER_REQUEST_MS) for name, count in counts.items()
    )
    known = sum(counts.values())
    others = max(0.0, _requests(values) - known)
    return 1e6 * (took_ms + ROUNDING_MS * known + OTHER_REQUEST_MS * others)


def _requests(values: Mapping[str, float]) -> float:
    """The requests on the controller's listener; where it is unknown, a number above theirs."""
    on_listener = [
        value
        for name, value in values.items()
        if name.startswith(f"{NETWORK_REQUESTS}:") and _CONTROLLERS_LISTENER in name.lower()
    ]
    if on_listener:
        return sum(on_listener)
    kinds = (f"{controller_request(each)}_count" for each in CONTROLLER_REQUESTS)
    return sum(values.get(each, 0.0) for each in (*kinds, "fetch_follower_total_ms_count"))

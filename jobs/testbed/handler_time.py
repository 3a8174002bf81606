"""The Java authorizer that makes request handlers wait for a configured time. The module also
reports the limit that results from this time.

A broker calls its authorizer once for each produce request, on the request handler's thread, to
check the permission for the topics. This authorizer allows every operation; it first waits for a
configured time whenever it checks a produce request. The authorizer implements only Kafka's public
interface, which exists since Kafka 2.4.

The wait parks the thread and costs no CPU time. The kernel wakes the thread slightly late; this
delay adds to the request's processing time. Janino compiles the source, which therefore uses only
simple Java.
"""

from __future__ import annotations

from jobs.testbed.model import Spec
from metrics.judging.thresholds import Indicators
from metrics.planning.planted import HANDLERS_DEFAULT, HANDLERS_PROPERTY, HandlerTime
from metrics.sources.java_class import java_source

NAME = "RedlineTimedAuthorizer"

HANDLER_TIME_PROPERTY = "redline.produce.handler.ns"
"""Name of the broker property with the configured time [ns]; Kafka passes the property to the
authorizer.
"""

SOURCE = java_source(__package__, NAME).replace("@PROPERTY@", HANDLER_TIME_PROPERTY)


AUTHORIZER_PROPERTY = "authorizer.class.name"


def handler_time_properties(spec: Spec, node_id: int) -> dict[str, str]:
    """The properties that install the authorizer on a broker; empty if no time is configured."""
    stated_ms = spec.produce_handler_ms.get(node_id)
    if stated_ms is None:
        return {}
    return {AUTHORIZER_PROPERTY: NAME, HANDLER_TIME_PROPERTY: str(round(stated_ms * 1e6))}


def limit_lines(spec: Spec) -> list[str]:
    """The output lines with each broker's planted limit; empty if no times are configured."""
    handlers = int(spec.broker_properties.get(HANDLERS_PROPERTY, HANDLERS_DEFAULT))
    idle_min = Indicators().request_handler_idle_min
    lines = []
    for broker, stated_ms in spec.produce_handler_ms.items():
        if not stated_ms:
            lines.append(f"  limit of broker {broker}  none: 0 ms are added to a produce request")
            continue
        per_s = HandlerTime(stated_ms, handlers=handlers).requests_per_s(idle_min)
        lines.append(
            f"  limit of broker {broker}  {per_s:,.1f} produce requests/s at most: "
            f"{handlers} {'handler' if handlers == 1 else 'handlers'} x {1 - idle_min:.2f} / "
            f"{stated_ms:g} ms; a request's own processing time is not included"
        )
    return lines

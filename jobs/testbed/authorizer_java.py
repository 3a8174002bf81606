"""The Java authorizer that makes a broker's request handlers wait in each produce request.

A broker asks its authorizer once for each produce request, on the handler's thread, whether the
client may write to the topics. This authorizer allows every operation; in a produce request it
waits for a stated time first. It implements only Kafka's public interface, which exists from
Kafka 2.4 on.

The wait parks the thread and costs no CPU. The kernel wakes the thread slightly late; this delay
is part of a request's own time. Janino compiles the source, hence its plain style.
"""

from __future__ import annotations

from metrics.sources.java_class import java_source

NAME = "RedlineTimedAuthorizer"

HANDLER_TIME_PROPERTY = "redline.produce.handler.ns"
"""The broker property with the stated time [ns]; Kafka passes it to the authorizer."""

SOURCE = java_source(__package__, NAME).replace("@PROPERTY@", HANDLER_TIME_PROPERTY)

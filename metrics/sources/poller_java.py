"""The Java class that polls all brokers in parallel inside the driver's JVM.

Each call through py4j takes a round trip, and a sample would need some 80 calls for each broker.
So Janino, the compiler that Spark brings for its generated code, compiles this class at the start,
and one call samples all brokers. They are polled in parallel up to a limit: the next one is polled
as soon as one has answered, and all polls begin within half of the deadline even if none answers.
Janino supports Java without lambdas and without type inference, hence the plain style. The class
loader of `metrics.sources.guard_java` defines the class, which protects its connections.

The protocol is text. A plan has one line `name TAB object name TAB attribute TAB key` for each
reading, and the lines of one object name are adjacent. `sample` returns for each broker a line
`# TAB node id TAB begin [µs since the epoch] TAB end TAB error` and then lines `name TAB value`;
the name of a bean with `*` is followed by a colon and the text that `*` matched.

A broker's beans are read one after another while that takes `READ_NS` at most, as it does within a
data center. A broker that is farther away is read by several calls at once, up to
`CALLS_IN_PARALLEL`, and RMI opens a connection for each of them. The round trip is the shortest
call since the connection was made, so a broker or a driver that is slow because it is loaded causes
no more calls at once. One call reads all attributes of a bean. `poll_ms` is the time from the first
to the last of these calls, so that a reading was taken at most half of it before or after the
sample's time.

A connection that leads to another node than the first one did, as behind a load balancer, is an
error.

Between the samples each connection is probed by one cheap attribute five times a second; with more
than 200 brokers, one connection after another, a thousand probes a second in total. `silent_ms` is
the longest wait for a probe's answer since the last sample, less the time for which the driver's
JVM itself was paused meanwhile. So it shows a broker that was paused, or whose machine was.
"""

from __future__ import annotations

from metrics.sources.java_class import java_source

NAME = "RedlineJmxPoller"

SOURCE = java_source(__package__, NAME)

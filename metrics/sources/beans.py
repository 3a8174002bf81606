"""The catalogue of broker readings: short name with unit → JMX bean and attribute.

The name of a reading is its key in `BrokerSample.values`, and ends in its unit. Counters are
cumulative since the broker's start, and a window computes their differences. For a histogram, the
count and the mean are read, because the exact mean of a window follows from these two numbers. The
attributes `Max`, `*Rate` and the percentiles are never read, because they do not describe one
window. An object name with `*` stands for several beans. Each of these beans has its own reading
`name:text matched by *`, for example `network_wait_ns:PLAINTEXT/0`.

The catalogue follows Kafka's monitoring documentation from 2.8 to 4.4. KIP-1207 describes the beans
of the handlers, and KIP-773 describes the names of the selectors' attributes.

Before Kafka 4.2, a process that is both broker and controller has two pools of request handlers,
but only one meter, `RequestHandlerAvgIdlePercent`. Both pools add their idle time to this meter, so
the meter shows 2.0 at rest. The broker's idle time is the meter's value minus the controller's idle
time. The controller's idle time is the elapsed time minus the controller's busy time. The
controller's busy time is at least 0, and has an upper bound:

- For each request of a kind that only a controller answers, the upper bound contains the local
  time of the request and half a millisecond, because Kafka rounds times to whole milliseconds.
- For each other request on the controller's listener, such as a fetch of the metadata, the upper
  bound contains `OTHER_REQUEST_MS`. If no listener's name contains "control", these other requests
  cannot be counted. In this case, the upper bound contains `OTHER_REQUEST_MS` for each fetch of a
  follower.

The upper bound assumes that the controller has only one request handler. If the controller has
several handlers, their mean busy time is less than the upper bound. The broker's idle time is
computed as the middle of its possible range. The largest error of the broker's idle time is half of
the upper bound of the controller's busy time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from metrics.common.errors import ConfigError

UPTIME_MS = "uptime_ms"
HANDLER_IDLE_NS = "handler_idle_ns"
SHARED_HANDLER_IDLE_NS = "shared_handler_idle_ns"
"""Total idle time of the broker's and the controller's request handlers, if both share one
meter."""
CONTROLLER_HANDLER_NS = "controller_handler_ns"
"""Longest possible busy time of the controller's handlers if they share the broker's meter. The
function `with_own_idle` computes this reading, which has no bean."""
TICKED_S = "ticked_s"
TICK_ERROR = "tick_error"
TICK_EDGE_ERROR = "tick_edge_error"
"""Prefixes of three readings without a bean, which `metrics.sources.one_minute_rates` computes for
each count that it derives from a meter's one-minute rates:

- `ticked_s`: total time of the rate's updates (ticks) that are in the count [s];
- `tick_error`: largest error of the count [unit of the count];
- `tick_edge_error`: largest error that each edge of a window adds [unit of the count]."""
NETWORK_WAIT_NS = "network_wait_ns"
NETWORK_REQUESTS = "network_requests"
NETWORK_IN_BYTES = "network_in_bytes"
NETWORK_OUT_BYTES = "network_out_bytes"
PRODUCE_ERRORS = "produce_errors"
"""Number of answers to produce requests, counted separately for each name of an error, for example
`produce_errors:NONE`. Each partition of a request counts once."""
CONTROLLER_QUEUE_MS = "controller_queue_ms"
GC_MS = "gc_ms"
POLL_MS = "poll_ms"
"""Time between the first and the last reading of a sample if its beans are read one after the other
[ms]. Each reading was taken at most half of this time before or after the sample's time. `poll_ms`
has no bean."""
CONTROLLER_EPOCH = "controller_epoch"
SILENT_MS = "silent_ms"
"""Longest time for which the node's JVM did not answer a call, of all calls since the last sample
[ms]. Only `metrics.sources.jmx` measures `silent_ms`, because only this source calls the node all
the time. `silent_ms` has no bean."""

REQUESTS = {
    "produce": "Produce",
    "fetch_consumer": "FetchConsumer",
    "fetch_follower": "FetchFollower",
}
"""Prefix of the name of a reading → kind of request."""

PHASES = {
    "total": "TotalTimeMs",
    "request_queue": "RequestQueueTimeMs",
    "local": "LocalTimeMs",
    "remote": "RemoteTimeMs",
    "throttle": "ThrottleTimeMs",
    "response_queue": "ResponseQueueTimeMs",
    "response_send": "ResponseSendTimeMs",
}
"""Middle part of the name of a reading → phase of a request, in the order of time."""

CONTROLLER_REQUESTS = (
    "BrokerHeartbeat",
    "BrokerRegistration",
    "ControllerRegistration",
    "AlterPartition",
    "AllocateProducerIds",
    "Envelope",
    "FetchSnapshot",
    "Vote",
    "BeginQuorumEpoch",
    "EndQuorumEpoch",
)
"""Kinds of requests that only a controller answers. `Envelope` contains a request that a broker
forwards."""

BROKER_HANDLERS_SINCE = (4, 2)
"""First Kafka version with a separate bean for the broker's request handlers (KIP-1207)."""

_HANDLER_POOL = "kafka.server:type=KafkaRequestHandlerPool,name="
_PROCESSORS = "kafka.server:type=socket-server-metrics,listener=*,networkProcessor=*"


class Kind(str, Enum):
    """The kind of a bean's numbers: counter, gauge or histogram."""

    COUNTER = "counter"
    HISTOGRAM = "histogram"
    GAUGE = "gauge"


class Role(str, Enum):
    """A role of a process: broker, or controller of a KRaft quorum.

    In a cluster with ZooKeeper, every node has the role of a broker only, even the node that is the
    cluster's controller.
    """

    BROKER = "broker"
    CONTROLLER = "controller"


@dataclass(frozen=True)
class Reading:
    """One number that a source reads.

    Attributes:
        name: short name of the reading. If `object_name` contains `*`, `name` has only the part of
            the reading's name before the colon.
        object_name: JMX object name, in which the value of a key property may be `*`.
        attribute: JMX attribute.
        key: item of a composite attribute, or None.
    """

    name: str
    object_name: str
    attribute: str
    key: str | None = None


@dataclass(frozen=True)
class Bean:
    """One bean of the catalogue.

    Attributes:
        name: short name of the reading.
        object_name: JMX object name, in which the value of a key property may be `*`.
        kind: kind of the bean's numbers.
        attribute: JMX attribute of a counter or gauge.
        key: item of a composite attribute, or None.
        earlier: name of the attribute in earlier releases, which is read if `attribute` is missing.
    """

    name: str
    object_name: str
    kind: Kind
    attribute: str = "Value"
    key: str | None = None
    earlier: str = ""

    def readings(self) -> tuple[Reading, ...]:
        """The numbers to read: two numbers of a histogram (count and mean), or one number of any
        other bean.

        If the attribute had another name in earlier releases, the result has two readings with one
        name: first the earlier attribute, then the current attribute. If a node shows two readings
        with one name, the last reading is preferred.
        """
        if self.kind is Kind.HISTOGRAM:
            return (
                Reading(f"{self.name}_count", self.object_name, "Count"),
                Reading(f"{self.name}_mean", self.object_name, "Mean"),
            )
        names = filter(None, (self.earlier, self.attribute))
        return tuple(Reading(self.name, self.object_name, each, self.key) for each in names)


def _meter(name: str, object_name: str) -> Bean:
    return Bean(name, object_name, Kind.COUNTER, "Count")


def _gauge(name: str, object_name: str, attribute: str = "Value", key: str | None = None) -> Bean:
    return Bean(name, object_name, Kind.GAUGE, attribute, key)


def _request_time(name: str, phase: str, request: str) -> Bean:
    bean = f"kafka.network:type=RequestMetrics,name={phase},request={request}"
    return Bean(name, bean, Kind.HISTOGRAM)


def _jvm() -> list[Bean]:
    system = "java.lang:type=OperatingSystem"
    memory = "java.lang:type=Memory"
    return [
        _gauge(UPTIME_MS, "java.lang:type=Runtime", "Uptime"),
        Bean("process_cpu_ns", system, Kind.COUNTER, "ProcessCpuTime"),
        _gauge("processors", system, "AvailableProcessors"),
        Bean("machine_cpu_share", system, Kind.GAUGE, "CpuLoad", earlier="SystemCpuLoad"),
        Bean(GC_MS, "java.lang:type=GarbageCollector,name=*", Kind.COUNTER, "CollectionTime"),
        _gauge("heap_used_bytes", memory, "HeapMemoryUsage", "used"),
        _gauge("heap_max_bytes", memory, "HeapMemoryUsage", "max"),
    ]


def _request_times() -> list[Bean]:
    return [
        _request_time(f"{request}_{phase}_ms", bean_phase, bean_request)
        for request, bean_request in REQUESTS.items()
        for phase, bean_phase in PHASES.items()
    ]


def _shared_handlers() -> list[Bean]:
    """The beans of requests to the controller. If the broker's and the controller's request
    handlers share one meter, these beans show the controller's part of the meter.
    """
    return [
        *(
            _request_time(controller_request(each), "LocalTimeMs", each)
            for each in CONTROLLER_REQUESTS
        ),
        Bean(NETWORK_REQUESTS, _PROCESSORS, Kind.COUNTER, "response-total"),
    ]


def controller_request(kind: str) -> str:
    """The name of the reading that shows one kind of request at a controller."""
    return f"controller_{re.sub('(?<!^)(?=[A-Z])', '_', kind).lower()}_ms"


def _broker(handler_idle: Bean) -> list[Bean]:
    replicas = "kafka.server:type=ReplicaManager,name="
    topics = "kafka.server:type=BrokerTopicMetrics,name="
    server = "kafka.server:type=KafkaServer,name="
    return [
        handler_idle,
        Bean(
            NETWORK_WAIT_NS,
            _PROCESSORS,
            Kind.COUNTER,
            "io-wait-time-ns-total",
            earlier="io-waittime-total",
        ),
        Bean(NETWORK_IN_BYTES, _PROCESSORS, Kind.COUNTER, "incoming-byte-total"),
        Bean(NETWORK_OUT_BYTES, _PROCESSORS, Kind.COUNTER, "outgoing-byte-total"),
        _gauge("request_queue_size", "kafka.network:type=RequestChannel,name=RequestQueueSize"),
        *_request_times(),
        _gauge(
            "produce_delayed",
            "kafka.server:type=DelayedOperationPurgatory,name=NumDelayedOperations,"
            "delayedOperation=Produce",
        ),
        _meter("isr_shrinks", replicas + "IsrShrinksPerSec"),
        _meter("isr_expands", replicas + "IsrExpandsPerSec"),
        _gauge("under_replicated_partitions", replicas + "UnderReplicatedPartitions"),
        _gauge("offline_replicas", replicas + "OfflineReplicaCount"),
        _gauge("leader_partitions", replicas + "LeaderCount"),
        _gauge(
            "replica_max_lag_records",
            "kafka.server:type=ReplicaFetcherManager,name=MaxLag,clientId=Replica",
        ),
        _meter("messages_in", topics + "MessagesInPerSec"),
        _meter("bytes_in", topics + "BytesInPerSec"),
        _meter("bytes_out", topics + "BytesOutPerSec"),
        _meter("replication_bytes_in", topics + "ReplicationBytesInPerSec"),
        _meter("replication_bytes_out", topics + "ReplicationBytesOutPerSec"),
        _meter("failed_produce_requests", topics + "FailedProduceRequestsPerSec"),
        _meter(
            PRODUCE_ERRORS,
            "kafka.network:type=RequestMetrics,name=ErrorsPerSec,request=Produce,error=*",
        ),
        Bean("disk_read_bytes", server + "linux-disk-read-bytes", Kind.COUNTER),
        Bean("disk_write_bytes", server + "linux-disk-write-bytes", Kind.COUNTER),
        Bean(
            "log_flush_ms",
            "kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs",
            Kind.HISTOGRAM,
        ),
    ]


def _controller() -> list[Bean]:
    events = "kafka.controller:type=ControllerEventManager,name=EventQueueTimeMs"
    return [
        _gauge("fenced_brokers", "kafka.controller:type=KafkaController,name=FencedBrokerCount"),
        Bean(CONTROLLER_QUEUE_MS, events, Kind.HISTOGRAM),
    ]


QUORUM = "quorum"
NODE = Reading("version", "kafka.server:type=app-info,id=*", "Version")
"""The reading of a process's Kafka version. The text that `*` matches is the node id."""
PROBE = (
    NODE,
    Reading(QUORUM, "kafka.server:type=raft-metrics", "current-epoch"),
    Reading(
        "controller", "kafka.controller:type=KafkaController,name=LastAppliedRecordOffset", "Value"
    ),
    Reading("broker", "kafka.server:type=ReplicaManager,name=LeaderCount", "Value"),
)
"""Readings that show a process's version, node id and roles, and are read once at the start.

Each role has a bean that no other process has. `ActiveControllerCount` and `FencedBrokerCount` do
not show a role, because every broker of a cluster with ZooKeeper has them, too.
"""

PARTITIONS = Reading("partitions", "kafka.server:type=ReplicaManager,name=PartitionCount", "Value")
"""The number of partitions that a broker leads or follows, which is read once at the start."""

ARGUMENTS = "jvm.arguments"
_RUNTIME, _SYSTEM = "java.lang:type=Runtime", "java.lang:type=OperatingSystem"
FACTS = (
    Reading("jvm.name", _RUNTIME, "VmName"),
    Reading("jvm.vendor", _RUNTIME, "VmVendor"),
    Reading("jvm.version", _RUNTIME, "VmVersion"),
    Reading(ARGUMENTS, _RUNTIME, "InputArguments"),
    Reading("jvm.heap_max_bytes", "java.lang:type=Memory", "HeapMemoryUsage", "max"),
    Reading("cores", _SYSTEM, "AvailableProcessors"),
    Reading("memory_bytes", _SYSTEM, "TotalPhysicalMemorySize"),  # its name before Java 14
    Reading("memory_bytes", _SYSTEM, "TotalMemorySize"),
)
"""Facts for the comparison of two runs' brokers, which are read once at the start."""

AT_START = (*PROBE, *FACTS, PARTITIONS)
"""All readings that are read once, at the start."""


FROM_FIRST_USE = ("log_flush_ms_count", "log_flush_ms_mean", PRODUCE_ERRORS)
"""Readings that are missing until Kafka uses their beans for the first time, for example until the
first flush of a log. Kafka registers such a bean when it first uses the bean."""


def parse_version(text: str) -> tuple[int, int]:
    """Major and minor Kafka version of a version text such as `3.9.2` or `7.9.0-ccs`.

    The major versions of Confluent's builds (`-ccs`, `-ce`) are higher than Apache's by four.

    Raises:
        ConfigError: the text does not begin with two numbers.
    """
    found = re.match(r"(\d+)\.(\d+)", text)
    if found is None:
        raise ConfigError(f"the broker's version is {text!r}; expected a version such as 3.9.2")
    major, minor = int(found[1]), int(found[2])
    return (major - 4 if re.search(r"-(ccs|ce)\b", text) else major, minor)


def shares_handlers(version: str, roles: Iterable[Role]) -> bool:
    """Whether the request handlers of a broker and a controller in one process share one meter."""
    is_combined = {Role.BROKER, Role.CONTROLLER} <= set(roles)
    return is_combined and parse_version(version) < BROKER_HANDLERS_SINCE


def _handler_idle(version: str, roles: Iterable[Role]) -> Bean:
    if parse_version(version) >= BROKER_HANDLERS_SINCE:
        return _meter(HANDLER_IDLE_NS, f"{_HANDLER_POOL}BrokerRequestHandlerAvgIdlePercent")
    name = SHARED_HANDLER_IDLE_NS if shares_handlers(version, roles) else HANDLER_IDLE_NS
    return _meter(name, f"{_HANDLER_POOL}RequestHandlerAvgIdlePercent")


def beans_for(version: str, roles: Iterable[Role], *, has_quorum: bool = True) -> tuple[Bean, ...]:
    """The beans to sample in one process.

    Args:
        version: Kafka version of the process, from its `app-info` bean.
        roles: roles of the process.
        has_quorum: True if the metadata are in KRaft's quorum, and False with ZooKeeper.
    """
    has = frozenset(roles)
    beans = _jvm()
    if has_quorum:  # every node reports the epoch, which each election of a controller raises
        beans.append(_gauge(CONTROLLER_EPOCH, "kafka.server:type=raft-metrics", "current-epoch"))
    if Role.BROKER in has:
        beans += _broker(_handler_idle(version, has))
    if Role.CONTROLLER in has:
        beans += _controller()
    if shares_handlers(version, has):
        beans += _shared_handlers()
    return tuple(beans)


def readings_of(beans: Iterable[Bean]) -> tuple[Reading, ...]:
    """All numbers that a source reads from these beans."""
    return tuple(reading for bean in beans for reading in bean.readings())


EVERY_BEAN = tuple(bean for version in ("4.2", "4.1") for bean in beans_for(version, Role))
"""The beans of all releases and roles. The beans of the handlers changed in release 4.2."""


ROUNDING_MS = 0.5
"""Largest error of a request's time, because Kafka rounds this time to whole milliseconds [ms]."""
OTHER_REQUEST_MS = 1.0
"""Assumed longest mean time that a handler needs for one fetch of metadata from memory [ms]."""
UNKNOWN_SHARE = 0.1
"""Assumed largest busy share of a controller's handlers if the controller's requests are not shown
[ratio]."""
_CONTROLLERS_LISTENER = "control"


def with_own_idle(values: Mapping[str, float], at_s: float) -> dict[str, float]:
    """The readings of a sample, with the computed idle time of the broker's request handlers.

    If the sample has no meter that the broker's and the controller's handlers share, the readings
    are returned unchanged.

    Args:
        values: readings of the sample.
        at_s: time of the sample [s since the epoch], which replaces the uptime if the sample has no
            uptime.
    """
    found = dict(values)
    shared, uptime_ms = found.get(SHARED_HANDLER_IDLE_NS), found.get(UPTIME_MS, at_s * 1e3)
    if shared is None:
        return found
    ticked = f"{TICKED_S}:{SHARED_HANDLER_IDLE_NS}"
    if ticked in found:  # the meter has its own clock
        uptime_ms = found[ticked] * 1e3
        found |= count_as(HANDLER_IDLE_NS, found, SHARED_HANDLER_IDLE_NS)
        found |= count_as(CONTROLLER_HANDLER_NS, found, SHARED_HANDLER_IDLE_NS)
    busy_ns = controller_bound_ns(found, uptime_ms)
    found[CONTROLLER_HANDLER_NS] = busy_ns
    found[HANDLER_IDLE_NS] = shared - uptime_ms * 1e6 + busy_ns / 2
    return found


def count_as(name: str, values: Mapping[str, float], own_name: str) -> dict[str, float]:
    """A count under a new name. The result also has the total time of the count's ticks and the
    count's errors, as readings under the new name.

    Args:
        name: the new name.
        values: readings of a sample.
        own_name: the name of the count in `values`.
    """
    prefixes = ("", f"{TICKED_S}:", f"{TICK_ERROR}:", f"{TICK_EDGE_ERROR}:")
    return {f"{p}{name}": values[f"{p}{own_name}"] for p in prefixes if f"{p}{own_name}" in values}


def controller_share(values: Mapping[str, float]) -> float | None:
    """The largest possible busy share [ratio] of the controller's handlers since the start of the
    process.

    None if the broker's and the controller's handlers share no meter.
    """
    busy_ns, uptime_ms = values.get(CONTROLLER_HANDLER_NS), values.get(UPTIME_MS)
    if busy_ns is None:
        return None
    ticked_s = values.get(f"{TICKED_S}:{SHARED_HANDLER_IDLE_NS}")
    uptime_ms = uptime_ms if ticked_s is None else ticked_s * 1e3
    return busy_ns / (uptime_ms * 1e6) if uptime_ms else UNKNOWN_SHARE


def controller_bound_ns(values: Mapping[str, float], uptime_ms: float) -> float:
    """The longest possible busy time [ns] of the controller's handlers since the start of the
    process.
    """
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
    """The number of requests on the controller's listener, or an upper bound of the number."""
    on_listener = [
        value
        for name, value in values.items()
        if name.startswith(f"{NETWORK_REQUESTS}:") and _CONTROLLERS_LISTENER in name.lower()
    ]
    if on_listener:
        return sum(on_listener)
    kinds = (f"{controller_request(each)}_count" for each in CONTROLLER_REQUESTS)
    return sum(values.get(each, 0.0) for each in (*kinds, "fetch_follower_total_ms_count"))

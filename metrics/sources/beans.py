"""The catalogue of broker readings: short names with units → JMX beans and attributes.

A reading's name is the key in `BrokerSample.values`, with its unit at the end. Counters are
cumulative since the broker's start: windows take differences. Histograms are read by their count
and mean, which give the exact mean of a window; `Max`, percentiles and `*Rate` attributes do not
belong to a window and are never read. A bean whose name contains `*` stands for several beans:
their readings are `name:values of the *`, for example `network_wait_ns:PLAINTEXT/0`.

Source: Kafka's monitoring documentation, 2.8 to 4.4; KIP-1207 for the handlers' beans, KIP-773 for
the names of the selectors' attributes.

The broker's part of a meter that its request handlers share with a controller's.

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

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from metrics.common.errors import ConfigError

UPTIME_MS = "uptime_ms"
HANDLER_IDLE_NS = "handler_idle_ns"
SHARED_HANDLER_IDLE_NS = "shared_handler_idle_ns"
"""Idle time of the broker's and the controller's handlers together, where they share one meter."""
CONTROLLER_HANDLER_NS = "controller_handler_ns"
"""Longest time for which the controller's handlers were busy, where they share the broker's meter.
It has no bean; `metrics.sources.beans` derives it."""
TICKED_S = "ticked_s"
TICK_ERROR = "tick_error"
TICK_EDGE_ERROR = "tick_edge_error"
"""Prefixes of readings beside a count that follows from one-minute rates: the time of its ticks
[s], its largest error, and that of each edge of a window [unit of the count]. They have no bean;
`metrics.sources.one_minute_rates` derives them."""
NETWORK_WAIT_NS = "network_wait_ns"
NETWORK_REQUESTS = "network_requests"
NETWORK_IN_BYTES = "network_in_bytes"
NETWORK_OUT_BYTES = "network_out_bytes"
PRODUCE_ERRORS = "produce_errors"
"""Answers to produce requests by the name of their error, for example `produce_errors:NONE`; one
for each partition of a request."""
CONTROLLER_QUEUE_MS = "controller_queue_ms"
GC_MS = "gc_ms"
POLL_MS = "poll_ms"
"""Time from the first to the last reading of a sample whose beans are read one by one [ms]. It has
no bean. A reading is at most half of it away from the sample's time."""
CONTROLLER_EPOCH = "controller_epoch"
SILENT_MS = "silent_ms"
"""Longest time since the last sample for which the node's JVM did not answer a call [ms]. It has no
bean; only a source with a continuous probe measures it (`metrics.sources.jmx`)."""

REQUESTS = {
    "produce": "Produce",
    "fetch_consumer": "FetchConsumer",
    "fetch_follower": "FetchFollower",
}
"""Prefix of the readings → kind of request."""

PHASES = {
    "total": "TotalTimeMs",
    "request_queue": "RequestQueueTimeMs",
    "local": "LocalTimeMs",
    "remote": "RemoteTimeMs",
    "throttle": "ThrottleTimeMs",
    "response_queue": "ResponseQueueTimeMs",
    "response_send": "ResponseSendTimeMs",
}
"""Middle part of the readings → phase of a request, in the order of time."""

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
"""Kinds of requests that only a controller answers; `Envelope` holds a request that a broker
forwards."""

BROKER_HANDLERS_SINCE = (4, 2)
"""First Kafka version with a bean for the broker's request handlers alone (KIP-1207)."""

_HANDLER_POOL = "kafka.server:type=KafkaRequestHandlerPool,name="
_PROCESSORS = "kafka.server:type=socket-server-metrics,listener=*,networkProcessor=*"


class Kind(str, Enum):
    """The meaning of a bean's numbers."""

    COUNTER = "counter"
    HISTOGRAM = "histogram"
    GAUGE = "gauge"


class Role(str, Enum):
    """A role of a process: broker, or controller of a KRaft quorum.

    A broker of a cluster with ZooKeeper has the role of a broker only, also while it is the
    cluster's controller.
    """

    BROKER = "broker"
    CONTROLLER = "controller"


@dataclass(frozen=True)
class Reading:
    """One number to read.

    Attributes:
        name: short name; for a bean with `*`, the part before the colon.
        object_name: JMX object name, which may contain `*` as the value of a key.
        attribute: JMX attribute.
        key: item of a composite attribute, or None.
    """

    name: str
    object_name: str
    attribute: str
    key: str | None = None


@dataclass(frozen=True)
class Bean:
    """One bean of the catalogue; `attribute` holds the number of a counter or gauge.

    `earlier` is the attribute's name in earlier releases; it is read where `attribute` is absent.
    """

    name: str
    object_name: str
    kind: Kind
    attribute: str = "Value"
    key: str | None = None
    earlier: str = ""

    def readings(self) -> tuple[Reading, ...]:
        """The numbers to read: two for a histogram, else one.

        A reading whose attribute has an earlier name is given under both, the preferred one last.
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
        Bean(
            f"{request}_{phase}_ms",
            f"kafka.network:type=RequestMetrics,name={bean_phase},request={bean_request}",
            Kind.HISTOGRAM,
        )
        for request, bean_request in REQUESTS.items()
        for phase, bean_phase in PHASES.items()
    ]


def _shared_handlers() -> list[Bean]:
    """Requests from which the controller's part of a shared meter of the handlers follows."""
    return [
        *(
            Bean(
                controller_request(each),
                f"kafka.network:type=RequestMetrics,name=LocalTimeMs,request={each}",
                Kind.HISTOGRAM,
            )
            for each in CONTROLLER_REQUESTS
        ),
        Bean(NETWORK_REQUESTS, _PROCESSORS, Kind.COUNTER, "response-total"),
    ]


def controller_request(kind: str) -> str:
    """The name of the readings of requests of this kind at a controller."""
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
"""The reading of a process's version under its node id."""
PROBE = (
    NODE,
    Reading(QUORUM, "kafka.server:type=raft-metrics", "current-epoch"),
    Reading(
        "controller", "kafka.controller:type=KafkaController,name=LastAppliedRecordOffset", "Value"
    ),
    Reading("broker", "kafka.server:type=ReplicaManager,name=LeaderCount", "Value"),
)
"""Readings that show a process's version, node id (the `*`) and roles; read once, at the start.

Each role has a bean that no other process has. `ActiveControllerCount` and `FencedBrokerCount` show
no role, as each broker of a cluster with ZooKeeper has them, too.
"""

PARTITIONS = Reading("partitions", "kafka.server:type=ReplicaManager,name=PartitionCount", "Value")
"""The reading of the number of partitions that a broker has, led or followed; read once, at the
start."""

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
"""Facts by which the brokers of two runs are compared; read once, at the start."""

AT_START = (*PROBE, *FACTS, PARTITIONS)
"""All readings that are read once, at the start."""


FROM_FIRST_USE = ("log_flush_ms_count", "log_flush_ms_mean", PRODUCE_ERRORS)
"""Readings of beans that Kafka registers at their first use; their absence means nothing."""


def parse_version(text: str) -> tuple[int, int]:
    """Major and minor Kafka version of a version text such as `3.9.2` or `7.9.0-ccs`.

    The major versions of Confluent's builds (`-ccs`, `-ce`) are higher than Apache's by four.

    Raises:
        ConfigError: the text does not begin with two numbers.
    """
    found = re.match(r"(\d+)\.(\d+)", text)
    if found is None:
        raise ConfigError(
            f"broker version {text!r} is not understood; expected a version like 3.9.2"
        )
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
    """The beans of one process to sample.

    Args:
        version: the process's Kafka version, from its `app-info` bean.
        roles: its roles.
        has_quorum: whether it keeps its metadata in KRaft's quorum; False with ZooKeeper.
    """
    has = frozenset(roles)
    beans = _jvm()
    if has_quorum:  # its epoch, which every node reports; each election of a controller raises it
        beans.append(_gauge(CONTROLLER_EPOCH, "kafka.server:type=raft-metrics", "current-epoch"))
    if Role.BROKER in has:
        beans += _broker(_handler_idle(version, has))
    if Role.CONTROLLER in has:
        beans += _controller()
    if shares_handlers(version, has):
        beans += _shared_handlers()
    return tuple(beans)


def readings_of(beans: Iterable[Bean]) -> tuple[Reading, ...]:
    """All numbers to read from these beans."""
    return tuple(reading for bean in beans for reading in bean.readings())


EVERY_BEAN = tuple(bean for version in ("4.2", "4.1") for bean in beans_for(version, Role))
"""The beans of all releases and roles; those of the handlers changed with 4.2."""


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
        found |= count_as(HANDLER_IDLE_NS, found, SHARED_HANDLER_IDLE_NS)
        found |= count_as(CONTROLLER_HANDLER_NS, found, SHARED_HANDLER_IDLE_NS)
    busy_ns = controller_bound_ns(found, uptime_ms)
    found[CONTROLLER_HANDLER_NS] = busy_ns
    found[HANDLER_IDLE_NS] = shared - uptime_ms * 1e6 + busy_ns / 2
    return found


def count_as(name: str, values: Mapping[str, float], own_name: str) -> dict[str, float]:
    """A count and the readings of its ticks under another name."""
    prefixes = ("", f"{TICKED_S}:", f"{TICK_ERROR}:", f"{TICK_EDGE_ERROR}:")
    return {f"{p}{name}": values[f"{p}{own_name}"] for p in prefixes if f"{p}{own_name}" in values}


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

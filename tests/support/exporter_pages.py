"""Pages of the Prometheus JMX exporter for a broker, under the rules of several projects.

The exporter is imitated: it reads each attribute of each bean, and the first rule whose pattern
matches `domain<key=value, …><>attribute: ` gives name, labels and type; without such a rule the
attribute is left out, and without any rules the name is `domain_first key's value_attribute`.
Release 1 differs from release 0 in `_total`: counters have it, and all other series lose it. Series
that have one name and the same labels then get the label `_objectname`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from jobs.config.yaml_file import parse_map
from metrics.sources.beans import PHASES, Bean, Kind, Role, beans_for
from tests.support.exporters import rules_of

RULES: Mapping[str, str] = {
    "none": "",
    "lower case": "lowercaseOutputName: true\nlowercaseOutputLabelNames: true\n",
    "kafka-kraft-3_0_0": rules_of("kafka-kraft") + rules_of("quantiles"),
    "kafka-2_0_0": rules_of("kafka-2_0_0"),
    "strimzi": rules_of("strimzi") + rules_of("quantiles"),
    "confluent": rules_of("confluent"),
    "one-minute rates": rules_of("one-minute-rates"),
}
"""Project or example → rules that show what its own show of the beans that are read."""


@dataclass(frozen=True)
class BrokerState:
    """The numbers of a broker.

    Attributes:
        messages: messages received; bytes and requests follow from them.
    """

    at_s: float = 1_000.0
    idle_ns: int = 812_345_678_901
    messages: int = 400_004
    node_id: int = 1

    def later(self, seconds: float = 1.0, idle: float = 0.98, messages: int = 0) -> BrokerState:
        """The broker after some seconds."""
        grown = self.idle_ns + int(1e9 * seconds * idle)
        return BrokerState(self.at_s + seconds, grown, self.messages + messages, self.node_id)


def _meter(count: int, rate: float) -> dict[str, float]:
    rates = ("OneMinuteRate", "FiveMinuteRate", "FifteenMinuteRate", "MeanRate")
    return {"Count": count, **{name: rate * (1 + 0.001 * i) for i, name in enumerate(rates)}}


def _timer(count: int, mean: float) -> dict[str, float]:
    more = {"50thPercentile": mean / 2, "99thPercentile": 3 * mean, "Max": 9 * mean}
    return {"Count": count, "Mean": mean, "StdDev": mean / 3, **more}


_MESSAGE_BYTES = 1_071
_GAUGES = {"LeaderCount": 12.0, "MaxLag": 3.0, "linux-disk-read-bytes": 5e6}


def beans_of(state: BrokerState, version: str) -> dict[str, dict[str, float]]:
    """Object name → attribute → number, of the beans that are read and of others like them."""
    found: dict[str, dict[str, float]] = {}
    for bean in beans_for(version, (Role.BROKER,)):
        if bean.object_name.startswith("java.lang"):
            continue
        if "*" in bean.object_name:
            _add_processors(found, bean, state)
        else:
            found[bean.object_name] = _numbers(bean, state)
    pool = "kafka.server:type=KafkaRequestHandlerPool,name="
    found[f"{pool}RequestHandlerAvgIdlePercent"] = _meter(state.idle_ns, 0.9764)
    found[f"{pool}ControlPlaneRequestHandlerAvgIdlePercent"] = _meter(7, 0.25)
    for name in ("BytesInPerSec", "MessagesInPerSec"):
        topic = f"kafka.server:type=BrokerTopicMetrics,name={name},topic=orders"
        found[topic] = _meter(state.messages // 3, 1.5)
    for phase in PHASES.values():
        metadata = f"kafka.network:type=RequestMetrics,name={phase},request=Metadata"
        found[metadata] = _timer(state.messages // 31, 1.25)
    found["kafka.server:type=ReplicaManager,name=PartitionCount"] = {"Value": 36.0}
    found[f"kafka.server:type=app-info,id={state.node_id}"] = {"StartTimeMs": 1.7e12}
    return found


def _numbers(bean: Bean, state: BrokerState) -> dict[str, float]:
    name = bean.object_name.rpartition("name=")[2].partition(",")[0]
    if bean.kind is Kind.HISTOGRAM:
        return _timer(state.messages // 17 + len(name), 0.37 + 0.01 * len(name))
    if name.endswith("AvgIdlePercent"):
        return _meter(state.idle_ns, 0.9764)
    if bean.attribute != "Count":
        return {bean.attribute: _GAUGES.get(name, 0.0)}
    is_rare = name.startswith(("Isr", "Failed"))
    count = 0 if is_rare else state.messages * (_MESSAGE_BYTES if "Bytes" in name else 1)
    return _meter(count, count / 1_007.7)


def _add_processors(found: dict[str, dict[str, float]], bean: Bean, state: BrokerState) -> None:
    for processor in range(2):
        one = bean.object_name.replace("listener=*", "listener=SASL_SSL")
        one = one.replace("networkProcessor=*", f"networkProcessor={processor}")
        known = found.setdefault(one, {"connection-count": 3.0, "io-wait-ratio": 0.91})
        known[bean.attribute] = float(state.messages * 900 + processor)
        known[bean.attribute.replace("-total", "-rate")] = 12.25


def _jvm_beans(state: BrokerState) -> dict[str, dict[str, float]]:
    """Object name, with keys in the JVM's order → attribute, with that of a composite → number."""
    return {
        "java.lang:type=Runtime": {"Uptime": state.at_s * 1e3},
        "java.lang:type=OperatingSystem": {
            "ProcessCpuTime": state.at_s * 1e8,
            "AvailableProcessors": 2.0,
            "CpuLoad": 0.25,
            "SystemCpuLoad": 0.26,
        },
        "java.lang:name=G1 Young Generation,type=GarbageCollector": {"CollectionTime": 420.0},
        "java.lang:type=Memory": {
            "HeapMemoryUsage_used": 3e8,
            "HeapMemoryUsage_max": 5e8,
            "NonHeapMemoryUsage_used": 1e8,
        },
    }


def _agent(state: BrokerState) -> str:
    return (
        f"process_start_time_seconds 0.0\nprocess_cpu_seconds_total {state.at_s / 10}\n"
        'jvm_gc_collection_seconds_sum{gc="G1 Young Generation"} 0.42\n'
        'jvm_memory_used_bytes{area="heap"} 3.0E8\njvm_memory_max_bytes{area="heap"} 5.0E8\n'
        'jvm_runtime_info{runtime="OpenJDK",vendor="Debian",version="17"} 1\n'
    )


def _safe(name: str) -> str:
    return re.sub("_+", "_", re.sub("[^a-zA-Z0-9_:]", "_", name))


def _filled(text: str, found: re.Match[str]) -> str:
    return re.sub(r"\$(\d+)", lambda group: found[int(group[1])], text)


def page(
    rules: str, state: BrokerState, *, release: int = 1, version: str = "4.1", agent: bool = True
) -> str:
    """A page of the exporter.

    Args:
        rules: a key of `RULES`, or the text of rules.
        agent: whether the exporter runs in the broker's JVM and shows it.
    """
    lines = list(_lines(rules, beans_of(state, version) | _jvm_beans(state), release))
    return "\n".join(lines) + "\n" + (_agent(state) if agent else "")


def _lines(rules: str, beans: Mapping[str, Mapping[str, float]], release: int) -> Iterator[str]:
    found = defaultdict[str, list[tuple[_Series, float]]](list)
    for object_name, attributes in beans.items():
        for attribute, number in attributes.items():
            if made := _named(rules, object_name, attribute):
                name = made.name.removesuffix("_total") if release == 1 else made.name
                found[name].append((made, number))
    for name, same in found.items():
        is_counter = all(each.kind == "COUNTER" for each, _ in same)
        shown = f"{name.removesuffix('_total')}_total" if is_counter else name
        is_unique = len({tuple(each.labels.items()) for each, _ in same}) == len(same)
        for each, number in same:
            more = {} if is_unique or release == 0 else {"_objectname": each.source}
            labels = ",".join(f'{key}="{value}"' for key, value in (each.labels | more).items())
            end = "," if release == 0 else ""
            yield f"{shown}{{{labels}{end}}} {number!r}" if labels else f"{shown} {number!r}"


@dataclass(frozen=True)
class _Series:
    """The series of an attribute of a bean; its source is what patterns match."""

    name: str
    labels: dict[str, str]
    kind: str
    source: str


@cache
def _parsed(rules: str) -> Mapping[str, Any]:
    text = RULES.get(rules, rules)
    return parse_map(text, rules).data if text else {}


@cache
def _named(rules: str, object_name: str, attribute: str) -> _Series | None:
    """The series of an attribute, the same on each page; None where no rule matches."""
    given = _parsed(rules)
    domain, _, listed = object_name.partition(":")
    keys = dict(each.split("=", 1) for each in listed.split(","))
    source = f"{domain}<{', '.join(f'{key}={value}' for key, value in keys.items())}><>{attribute}"
    for rule in given.get("rules") or [{}]:
        name, labels, pattern = (rule.get(key, "") for key in ("name", "labels", "pattern"))
        if pattern in ("", ".*"):
            (_, first), *others = keys.items()
            name, labels = f"{domain}_{first}_{attribute}", dict(others)
        elif found := re.search(pattern, f"{source}: "):
            name = _filled(name, found)
            labels = {_filled(k, found): _filled(v, found) for k, v in (labels or {}).items()}
        else:
            continue
        if given.get("lowercaseOutputName"):
            name = name.lower()
        if given.get("lowercaseOutputLabelNames"):
            labels = {label.lower(): value for label, value in labels.items()}
        safe = {_safe(label): value for label, value in labels.items()}
        return _Series(_safe(name), safe, rule.get("type", "UNTYPED"), source)
    return None

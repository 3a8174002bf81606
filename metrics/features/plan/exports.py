"""A measured limit in the formats of Cruise Control, Kafka's quotas and Prometheus.

The usable part of a limit is the lower end of the limit's 90 % interval, multiplied by a safety
factor.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from metrics.common.errors import ConfigError
from metrics.planning.provisioning import MeasuredLimit, TrafficShare, proportions, weighted
from metrics.reporting.files import yaml_text
from metrics.sources.rules import RuleSet
from metrics.traffic.payload import record_bytes
from metrics.units import format_mb_per_s, format_ratio, format_size
from search.model import LEVEL

BUSY_FOR, RATE_OVER = "10m", "5m"
"""`BUSY_FOR` is the time for which the condition of an alert must be true before the alert fires.
`RATE_OVER` is the time over which PromQL computes a rate."""

HEADROOM_SERIES = "redline:headroom_times"
"""Name of the recorded series: how many times the traffic of a broker fits into the
broker's limit.
"""


@dataclass(frozen=True)
class Allowance:
    """The load that a broker may carry.

    Attributes:
        run_id: the run that measured the limit.
        limit: the limit at the relevant message size.
        safety: share of the limit that may be used [ratio].
        caveat: a remark on the run, as a sentence without a full stop; empty without a remark.
    """

    run_id: str
    limit: MeasuredLimit
    safety: float
    caveat: str = ""

    @property
    def limit_log_bytes_per_s(self) -> float:
        """Highest rate of bytes that a broker should receive from producers, at the lower end of
        the limit's 90 % range [B/s].

        The bytes include the overhead of records. The rate applies to full batches without
        compression. Headers of small batches add further bytes.
        """
        return self.limit.conservative_mb_per_s * 1e6 * weighted(self.limit, _log_bytes)

    def copied_mb_per_s(self, copies: Callable[[TrafficShare], float]) -> float:
        """The allowed rate of bytes [MB/s]. Each record of a part counts `copies(part)` times."""
        each_byte = weighted(self.limit, lambda each: _log_bytes(each) * copies(each))
        return self.limit.conservative_mb_per_s * self.safety * each_byte

    @property
    def origin(self) -> str:
        """The origin of the figures, as a sentence without a full stop."""
        limit = self.limit
        traffic = (
            f"the mix {proportions(limit.parts)}"
            if limit.parts
            else f"{format_size(limit.message_bytes)} messages with replication factor "
            f"{limit.replication_factor} and {limit.consumer_groups} consumer "
            f"group{'' if limit.consumer_groups == 1 else 's'}"
        )
        text = (
            f"redline run {self.run_id}: the limit of a broker is "
            f"{format_mb_per_s(limit.conservative_mb_per_s)} MB/s of {traffic} (lower end of the "
            f"range that contains the limit on {format_ratio(LEVEL)} of days); "
            f"{format_ratio(self.safety)} of this limit may be used"
        )
        return f"{text}; {self.caveat}" if self.caveat else text


def _log_bytes(share: TrafficShare) -> float:
    """Bytes in the log for each byte of payload, without batch headers [ratio]."""
    return record_bytes(0, share.message_bytes, 1.0) / share.message_bytes


def lowest_limit(limits: Sequence[MeasuredLimit]) -> MeasuredLimit:
    """The lowest limit in bytes, which applies to all measured message sizes."""
    return min(limits, key=lambda one: one.conservative_mb_per_s)


def capacity(allowance: Allowance, disk_mb: float) -> str:
    """Cruise Control's capacity.json for equal brokers.

    NW_IN is the rate of bytes that a broker receives as leader and as follower. NW_OUT is the rate
    of bytes that followers and consumer groups fetch from the broker. NW_IN and NW_OUT are in kB/s.
    Cruise Control's BrokerCapacityConfigFileResolver reads this file.

    Args:
        disk_mb: disk space for the logs of each broker [MB]; no run measures the disk space.
    """
    received = allowance.copied_mb_per_s(lambda each: each.replication_factor)
    fetched = allowance.copied_mb_per_s(
        lambda each: each.replication_factor - 1 + each.consumer_groups
    )
    broker = {
        "brokerId": "-1",
        "capacity": {
            "DISK": f"{disk_mb:.0f}",
            "CPU": "100",
            "NW_IN": f"{received * 1000.0:.0f}",
            "NW_OUT": f"{fetched * 1000.0:.0f}",
        },
        "doc": allowance.origin,
    }
    return json.dumps({"brokerCapacities": [broker]}, indent=2) + "\n"


def quotas(allowance: Allowance, tenants: int, bootstrap: str) -> str:
    """The command that sets Kafka's quotas. Each user gets an equal share of a broker's limit."""
    share = allowance.limit_log_bytes_per_s * allowance.safety / tenants
    users = "1 user has" if tenants == 1 else f"{tenants} users share"
    rates = [f"producer_byte_rate={share:.0f}"]
    if allowance.limit.consumer_groups:
        consumed = allowance.copied_mb_per_s(lambda each: each.consumer_groups)
        rates.append(f"consumer_byte_rate={consumed * 1e6 / tenants:.0f}")
    return (
        f"# {allowance.origin}\n"
        f"# Each broker enforces the quota separately; {users} the capacity of a broker.\n"
        f"kafka-configs.sh --bootstrap-server {bootstrap} --alter \\\n"
        "    --entity-type users --entity-default \\\n"
        f"    --add-config '{','.join(rates)}'\n"
    )


def alert_rules(allowance: Allowance, idle_min: float, rules: RuleSet, times_least: float) -> str:
    """Prometheus rules that record the headroom of each broker, and rules that raise alerts for its
    load and its request handlers.

    The headroom of a broker is the broker's limit divided by its traffic. Two rules record this
    headroom: one rule computes it from the request handlers, and the other rule computes it from
    the received bytes. An alert fires if the lower of a broker's two headrooms is below
    `times_least`.

    Args:
        idle_min: idle fraction of the request handlers at the limit [ratio].
        rules: the rule set, which contains the names of the exporter's series.
        times_least: minimum headroom [ratio].
    """
    written, idle = (_rate(rules, name) for name in ("bytes_in", "handler_idle_ns"))
    used = allowance.limit_log_bytes_per_s * allowance.safety
    alerts = [
        _alert(
            "KafkaBrokerNearItsLimit",
            f"sum by (instance) ({written}) > {used:.0f}",
            f"Producers write more than {format_mb_per_s(used / 1e6)} MB/s to {{{{ $labels.instance"
            f" }}}}, which is {format_ratio(allowance.safety)} of its measured limit.",
            allowance,
        ),
        _alert(
            "KafkaRequestHandlersBusy",
            f"max by (instance) ({idle}) / 1e9 < {idle_min:g}",
            f"The request handlers of {{{{ $labels.instance }}}} are idle for less than "
            f"{format_ratio(idle_min)} of the time, so the broker is at its limit.",
            allowance,
        ),
        _record("request handlers", f"{1 - idle_min:g}", f"1 - max by (instance) ({idle}) / 1e9"),
        _record(
            "measured traffic",
            f"{allowance.limit_log_bytes_per_s:.0f}",
            f"sum by (instance) ({written})",
        ),
        _alert(
            "KafkaHeadroomLow",
            f"min by (instance) ({HEADROOM_SERIES}) < {times_least:g}",
            f"The traffic of {{{{ $labels.instance }}}} fits {{{{ $value | humanize }}}} times "
            f"into its measured limit; expected at least {times_least:g} times.",
            allowance,
        ),
    ]
    return yaml_text({"groups": [{"name": "kafka-redline", "rules": alerts}]}, width=1_000)


def _alert(name: str, expr: str, summary: str, allowance: Allowance) -> dict[str, object]:
    return {
        "alert": name,
        "expr": expr,
        "for": BUSY_FOR,
        "labels": {"severity": "warning"},
        "annotations": {"summary": summary, "description": f"{allowance.origin}."},
    }


def _record(resource: str, limit: str, used: str) -> dict[str, object]:
    """A rule that records the limit divided by the use. A use below a thousandth of the limit is
    replaced by a thousandth of the limit.
    """
    return {
        "record": HEADROOM_SERIES,
        "expr": f"{limit} / clamp_min({used}, {limit} / 1000)",
        "labels": {"resource": resource},
    }


def _rate(rules: RuleSet, reading: str) -> str:
    """PromQL for the rate of a reading's series. Release 1 of the exporter appends `_total` to
    names.
    """
    if reading not in rules.selectors:
        raise ConfigError(
            f"{rules.name} has no rule for {reading}; expected a rule for this reading; add the "
            "rule, or name another file with --rules"
        )
    selector = rules.selectors[reading][0]
    labels = {f"{name}": f'="{value}"' for name, value in selector.labels.items()}
    # An empty topic selects the series of the whole broker, not the series of single topics.
    if reading == "bytes_in":
        labels["topic"] = '=""'
    matchers = "".join(f",{name}{value}" for name, value in labels.items())
    series = f'{{__name__=~"{selector.name}(_total)?"{matchers}}}'
    return f"{series} * {selector.factor:g}" if selector.is_rate else f"rate({series}[{RATE_OVER}])"

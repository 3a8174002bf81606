"""A measured limit in the words of other tools: Cruise Control, Kafka's quotas, Prometheus. Pure.

What may be used of a limit is its lower end at 90 % times a safety factor, as `redline plan`
takes it.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass

from ruamel.yaml import YAML

from metrics.common.errors import ConfigError
from metrics.planning.provisioning import MeasuredLimit
from metrics.sources.rules import RuleSet
from metrics.traffic.record_format import record_bytes
from metrics.units import format_mb_per_s, format_ratio, format_size

BUSY_FOR, RATE_OVER = "10m", "5m"
"""How long a broker is beyond its limit before somebody is called, and what rates are means of."""


@dataclass(frozen=True)
class Allowance:
    """What a broker may be used for.

    Attributes:
        run_id: the run that measured the limit.
        limit: at the message size that counts.
        safety: share of the limit that may be used [ratio].
        caveat: what a reader must know of the run, a sentence without its stop, or empty.
    """

    run_id: str
    limit: MeasuredLimit
    safety: float
    caveat: str = ""

    @property
    def mb_per_s(self) -> float:
        """Payload from producers that a broker may lead [MB/s]."""
        return self.limit.mb_per_s_to_buy_for * self.safety

    @property
    def log_mb_per_s(self) -> float:
        """The same as brokers count it, with what a record has around it [MB/s].

        Of batches that are full and not compressed; the headers of small ones add to it.
        """
        size = self.limit.message_bytes
        return self.mb_per_s * record_bytes(0, size, 1.0) / size

    @property
    def origin(self) -> str:
        """Where the figure comes from, in a sentence without its stop."""
        limit = self.limit
        told = (
            f"redline run {self.run_id}: a broker sustained "
            f"{format_mb_per_s(limit.mb_per_s_to_buy_for)} MB/s of "
            f"{format_size(limit.message_bytes)} messages with replication factor "
            f"{limit.replication_factor} and {limit.consumer_groups} consumer "
            f"group{'' if limit.consumer_groups == 1 else 's'}; "
            f"{format_ratio(self.safety)} of it may be used"
        )
        return f"{told}; {self.caveat}" if self.caveat else told


def lowest(limits: Sequence[MeasuredLimit]) -> MeasuredLimit:
    """The limit that holds whatever the message size: the lowest in bytes."""
    return min(limits, key=lambda one: one.mb_per_s_to_buy_for)


def capacity(allowance: Allowance, disk_mb: float) -> str:
    """Cruise Control's capacity.json for brokers that are all alike.

    NW_IN counts what a broker leads and what it copies as a follower, NW_OUT what its followers
    and consumer groups fetch [kB/s]; the format is that of Cruise Control's
    BrokerCapacityConfigFileResolver.

    Args:
        disk_mb: room for logs of each broker [MB]; no run measures it.
    """
    limit, led_kb = allowance.limit, allowance.log_mb_per_s * 1000.0
    followers = limit.replication_factor - 1
    broker = {
        "brokerId": "-1",
        "capacity": {
            "DISK": f"{disk_mb:.0f}",
            "CPU": "100",
            "NW_IN": f"{led_kb * (1 + followers):.0f}",
            "NW_OUT": f"{led_kb * (followers + limit.consumer_groups):.0f}",
        },
        "doc": allowance.origin,
    }
    return json.dumps({"brokerCapacities": [broker]}, indent=2) + "\n"


def quotas(allowance: Allowance, tenants: int, bootstrap: str) -> str:
    """Commands that give each of so many tenants, as Kafka users, an equal part of each broker."""
    limit, share = allowance.limit, allowance.log_mb_per_s * 1e6 / tenants
    users = "1 user has" if tenants == 1 else f"{tenants} users share"
    rates = [f"producer_byte_rate={share:.0f}"]
    if limit.consumer_groups:
        rates.append(f"consumer_byte_rate={share * limit.consumer_groups:.0f}")
    return (
        f"# {allowance.origin}\n"
        f"# Quotas hold for each broker; {users} it.\n"
        f"kafka-configs.sh --bootstrap-server {bootstrap} --alter \\\n"
        "    --entity-type users --entity-default \\\n"
        f"    --add-config '{','.join(rates)}'\n"
    )


def alert_rules(allowance: Allowance, idle_min: float, rules: RuleSet) -> str:
    """Prometheus alert rules: brokers beyond what may be used, and handlers as busy as at a limit.

    Args:
        idle_min: idle fraction of the request handlers at a limit [ratio].
        rules: how the exporter names its series.
    """
    written, idle = (_rate(rules, name) for name in ("bytes_in", "handler_idle_ns"))
    used = allowance.log_mb_per_s * 1e6
    alerts = [
        _alert(
            "KafkaBrokerNearItsLimit",
            f"sum by (instance) ({written}) > {used:.0f}",
            f"Producers write more than {format_mb_per_s(used / 1e6)} MB/s to {{{{ $labels.instance"
            f" }}}}, which is {format_ratio(allowance.safety)} of what it was found to sustain.",
            allowance,
        ),
        _alert(
            "KafkaRequestHandlersBusy",
            f"max by (instance) ({idle}) / 1e9 < {idle_min:g}",
            f"The request handlers of {{{{ $labels.instance }}}} are idle for less than "
            f"{format_ratio(idle_min)} of the time: it is at its limit.",
            allowance,
        ),
    ]
    text = io.StringIO()
    yaml = YAML()
    yaml.width = 1_000
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.dump({"groups": [{"name": "kafka-redline", "rules": alerts}]}, text)
    return text.getvalue()


def _alert(name: str, expr: str, summary: str, allowance: Allowance) -> dict[str, object]:
    return {
        "alert": name,
        "expr": expr,
        "for": BUSY_FOR,
        "labels": {"severity": "warning"},
        "annotations": {"summary": summary, "description": f"{allowance.origin}."},
    }


def _rate(rules: RuleSet, reading: str) -> str:
    """PromQL for the rate of a reading's series, which counters of release 1 end in `_total`."""
    if reading not in rules.selectors:
        raise ConfigError(
            f"{rules.name} does not say how the exporter names {reading}; expected it among its "
            "readings; add it, or give another --rules"
        )
    selector = rules.selectors[reading][0]
    labels = {f"{name}": f'="{value}"' for name, value in selector.labels.items()}
    if reading == "bytes_in":
        labels["topic"] = '=""'  # the sum of all topics, not each of them beside it
    told = "".join(f",{name}{value}" for name, value in labels.items())
    return f'rate({{__name__=~"{selector.name}(_total)?"{told}}}[{RATE_OVER}])'

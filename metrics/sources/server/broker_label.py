"""The label that distinguishes the brokers in a server's series, and the assignment of the label's
values to brokers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from metrics.common.errors import ConfigError
from metrics.common.grouping import grouped
from metrics.units import format_some

_NAMED_MAX = 8
"""Highest number of values that a message names."""


@dataclass(frozen=True)
class BrokerLabel:
    """The assignment of a label's values to brokers.

    Without `pattern` and `values`, a value belongs to a broker if the value is the broker's id or
    the name of the broker's advertised host. After the host's name, the value may also contain a
    port. If no value contains the whole name of the advertised host, the host's name in a value and
    the name of the advertised host are compared only up to their first dot.

    Attributes:
        section: name of the section that contains these settings in the cluster's file, for
            messages.
        name: name of the label.
        pattern: regular expression with one group, which is the broker id, or None.
        values: broker id → value of the label, or None.
        is_shared: whether several brokers may have the same value, for example because they run on
            one host.
    """

    section: str
    name: str = "instance"
    pattern: str | None = None
    values: Mapping[int, str] | None = field(default=None)
    is_shared: bool = False

    def assign(self, shown: Iterable[str], hosts: Mapping[int, str]) -> dict[int, str]:
        """Broker id → value of the label in the broker's series.

        Args:
            shown: values of the label in the server's series.
            hosts: broker id → advertised host, for all brokers.

        Raises:
            ConfigError: a broker has no value or several values, or two brokers have the same
                value.
        """
        known = sorted(set(shown))
        found = {broker: self._values_of(broker, host, known) for broker, host in hosts.items()}
        for broker, own in sorted(found.items()):
            if not own:
                raise self._missing(broker, hosts[broker], known)
            if len(own) > 1:
                raise self._ambiguous(broker, own)
        assigned = {broker: own[0] for broker, own in found.items()}
        if not self.is_shared:
            self._require_distinct(assigned)
        return assigned

    def _values_of(self, broker: int, host: str, known: Iterable[str]) -> list[str]:
        if self.values is not None:
            return [each for each in known if each == self.values.get(broker)]
        if self.pattern is not None:
            expression = re.compile(self.pattern)
            matches = ((each, expression.search(each)) for each in known)
            return [value for value, match in matches if match and _is_id(match[1], broker)]
        whole = [each for each in known if _is_id(each, broker) or host_of(each) == host]
        return whole or [each for each in known if _first_part(host_of(each)) == _first_part(host)]

    def _missing(self, broker: int, host: str, known: list[str]) -> ConfigError:
        if self.values is not None:
            wanted = self.values.get(broker)
            expected = (
                f"{self.section}.broker_values has no value for broker {broker}"
                if wanted is None
                else f"{self.section}.broker_values expects {wanted!r}"
            )
        elif self.pattern is not None:
            expected = (
                f"{self.section}.broker_pattern {self.pattern!r} finds the id {broker} in no value"
            )
        else:
            expected = "no value is the broker's id or names the broker's host"
        return ConfigError(
            f"the series of the Prometheus server show no broker {broker} (host {host}): the label "
            f"{self.name} has the values {_listed(known)}, and {expected}; set "
            f"{self.section}.broker_label to the label that distinguishes the brokers, and "
            "describe its values in broker_pattern or broker_values"
        )

    def _ambiguous(self, broker: int, own: list[str]) -> ConfigError:
        return ConfigError(
            f"the values {_listed(own)} of the label {self.name} all belong to broker {broker}; "
            "expected one value for each broker; if the values belong to several clusters, add a "
            f"label of one cluster to {self.section}.selector; otherwise set each broker's value "
            f"in {self.section}.broker_values"
        )

    def _require_distinct(self, assigned: Mapping[int, str]) -> None:
        brokers = grouped((value, broker) for broker, value in sorted(assigned.items()))
        for value, ids in brokers.items():
            if len(ids) > 1:
                raise ConfigError(
                    f"the value {value!r} of the label {self.name} belongs to brokers "
                    f"{' and '.join(map(str, ids))}; expected a different value for each broker; "
                    f"set each broker's value in {self.section}.broker_values, or another label "
                    f"in {self.section}.broker_label"
                )


def _is_id(text: str | None, broker: int) -> bool:
    return text is not None and text.isdecimal() and int(text) == broker


def host_of(value: str) -> str:
    """The host in a value such as `host:9404` or `[::1]:9404`."""
    host, colon, port = value.rpartition(":")
    has_port = bool(colon) and port.isdecimal() and (":" not in host or host.startswith("["))
    return (host if has_port else value).strip("[]")


def _first_part(host: str) -> str:
    """The first part of a host's name. An IP address is returned unchanged."""
    return host if re.fullmatch(r"[\d.]+|.*:.*", host) else host.partition(".")[0]


def _listed(values: list[str]) -> str:
    return format_some(map(repr, values), _NAMED_MAX) or "(none)"

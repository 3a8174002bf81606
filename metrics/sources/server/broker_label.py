"""The label of a server's series that tells brokers apart, and which broker each value means."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from metrics.common.errors import ConfigError
from metrics.units import format_some

_NAMED_MAX = 8
"""Values that a message names."""


@dataclass(frozen=True)
class BrokerLabel:
    """How a value of a label becomes a broker id.

    Without `pattern` and `values` a value means the broker whose id it is, or whose advertised host
    it names, with or without a port and further parts of the host's name.

    Attributes:
        section: section of the cluster's file that configures it, for messages.
        name: name of the label.
        pattern: regular expression whose one group is the broker id; None for none.
        values: broker id → its value; None for none.
        is_shared: whether brokers may share a value, as those on one host do.
    """

    section: str
    name: str = "instance"
    pattern: str | None = None
    values: Mapping[int, str] | None = field(default=None)
    is_shared: bool = False

    def assign(self, shown: Iterable[str], hosts: Mapping[int, str]) -> dict[int, str]:
        """Broker id → its value.

        Args:
            shown: the values that the server shows.
            hosts: broker id → advertised host, of all brokers.

        Raises:
            ConfigError: a broker has no value or several, or two brokers have the same.
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
                f"no value matches {self.section}.broker_pattern {self.pattern!r} with its id"
            )
        else:
            expected = "no value is its id or names its host"
        return ConfigError(
            f"the series of the Prometheus server show no broker {broker} (host {host}): the label "
            f"{self.name} has the values {_listed(known)}, and {expected}; name the label that "
            f"tells the brokers apart in {self.section}.broker_label, and what its values mean in "
            "broker_pattern or broker_values"
        )

    def _ambiguous(self, broker: int, own: list[str]) -> ConfigError:
        return ConfigError(
            f"the values {_listed(own)} of the label {self.name} all mean broker {broker}; "
            "expected one value for each broker; if they belong to two clusters, name a label of "
            f"one cluster in {self.section}.selector, else name each broker's value in "
            f"{self.section}.broker_values"
        )

    def _require_distinct(self, assigned: Mapping[int, str]) -> None:
        brokers: dict[str, list[int]] = {}
        for broker, value in sorted(assigned.items()):
            brokers.setdefault(value, []).append(broker)
        for value, ids in brokers.items():
            if len(ids) > 1:
                raise ConfigError(
                    f"the value {value!r} of the label {self.name} means brokers "
                    f"{' and '.join(map(str, ids))}; expected a value for each broker; name each "
                    f"broker's value in {self.section}.broker_values, or another label in "
                    f"{self.section}.broker_label"
                )


def _is_id(text: str | None, broker: int) -> bool:
    return text is not None and text.isdecimal() and int(text) == broker


def host_of(value: str) -> str:
    """The host in a value such as `host:9404` or `[::1]:9404`."""
    host, colon, port = value.rpartition(":")
    has_port = bool(colon) and port.isdecimal() and (":" not in host or host.startswith("["))
    return (host if has_port else value).strip("[]")


def _first_part(host: str) -> str:
    """The first part of a host's name; an address as a whole."""
    return host if re.fullmatch(r"[\d.]+|.*:.*", host) else host.partition(".")[0]


def _listed(values: list[str]) -> str:
    return format_some(map(repr, values), _NAMED_MAX) or "(none)"

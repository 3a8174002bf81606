"""Exporters that a run scrapes itself, or reads from a Prometheus server that scrapes them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, TypeVar
from urllib.parse import urlsplit

from pydantic import BeforeValidator, model_validator

from jobs.config.metrics_section import HttpSection
from metrics.common.bounds import Text, UnexpectedError, Whole
from metrics.common.errors import ConfigError
from metrics.sources.server.api import ServerApi
from metrics.sources.server.broker_label import BrokerLabel
from metrics.sources.server.feed import FeedSpec

Served = TypeVar("Served", bound="ServedSection")

_MATCHER = r'\s*[a-zA-Z_]\w*\s*(?:=~|!~|!=|=)\s*"(?:[^"\\]|\\.)*"\s*'
_URL = Text(
    r"https?://[^\s/?#@]+(?:/[^\s?#]*)?",
    "the URL of a Prometheus server, such as https://prometheus.example.com",
)
_SELECTOR = Text(rf"\{{?{_MATCHER}(?:,{_MATCHER})*,?\s*\}}?", 'matchers such as job="kafka"')
_LABEL = Text(r"[a-zA-Z_]\w*", "the name of a label, such as instance or pod")
_PATTERN = Text(r".*\(.*\).*", r"a regular expression with one group, such as -(\d+)$")
_OF_SERVER = ("selector", "broker_label", "broker_pattern", "broker_values")


def _as_values(value: Any) -> Any:
    """Broker ids as numbers: `--set` passes them as text."""
    if not isinstance(value, Mapping) or not value:
        raise UnexpectedError("a map of broker ids to values of the label, such as {1: kafka-1}")
    return {
        int(key) if isinstance(key, str) and key.isdecimal() else key: each
        for key, each in value.items()
    }


class ServedSection(HttpSection):
    """Exporters with an address each, or a Prometheus server that scrapes them.

    Attributes:
        server: base URL of the server.
        selector: matchers that select the exporters of this cluster, and no others.
        broker_label: label whose value tells brokers apart.
        broker_pattern: regular expression whose group is the broker id in that value.
        broker_values: broker id → that value.
    """

    what: ClassVar[str] = "the brokers"
    shares_values: ClassVar[bool] = False

    server: Annotated[str, _URL] | None = None
    selector: Annotated[str, _SELECTOR] | None = None
    broker_label: Annotated[str, _LABEL] = "instance"
    broker_pattern: Annotated[str, _PATTERN] | None = None
    broker_values: (
        Annotated[Mapping[Annotated[int, Whole(0, 2**31 - 1)], str], BeforeValidator(_as_values)]
        | None
    ) = None

    @model_validator(mode="before")
    @classmethod
    def _take_tls_of_url(cls, value: Any) -> Any:
        """The section with `tls` as the URL of the server says."""
        if not isinstance(value, Mapping) or not isinstance(value.get("server"), str):
            return value
        is_https = value["server"].startswith("https://")
        if value.get("tls") is True and not is_https:
            raise ValueError(
                f"tls is true and server {value['server']}; expected https://; correct the URL or "
                "remove tls"
            )
        if value.get("tls") is False and is_https:
            raise ValueError(
                f"tls is false and server {value['server']}; expected http:// or no tls; correct "
                "the URL or remove tls"
            )
        return {**value, "tls": True} if is_https else value

    @model_validator(mode="after")
    def _require_port_or_endpoints(self: Served) -> Served:
        given = [key for key in ("port", "endpoints", "server") if getattr(self, key) is not None]
        if len(given) != 1:
            raise ValueError(
                "expected exactly one of port (the same on every broker), endpoints (an address "
                "for each broker id) and server (a Prometheus server); set one and leave the "
                "others out"
            )
        return self

    @model_validator(mode="after")
    def _require_server_of_its_keys(self: Served) -> Served:
        given = [key for key in _OF_SERVER if key in self.model_fields_set]
        if self.server is None and given:
            raise ValueError(f"{given[0]} has no effect without server; add server or remove it")
        if self.server is not None and self.selector is None:
            raise ValueError(
                'server requires selector; add the matchers of this cluster, such as job="kafka"'
            )
        if self.broker_pattern is not None and self.broker_values is not None:
            raise ValueError(
                "expected one of broker_pattern and broker_values; set one and leave the other out"
            )
        if self.broker_pattern is not None and _groups(self.broker_pattern) != 1:
            raise ValueError(
                f"broker_pattern is {self.broker_pattern!r}; expected {_PATTERN.expected()}; "
                "correct it"
            )
        return self

    def addresses(self, hosts: Mapping[int, str]) -> dict[int, str]:
        """See `AddressedSection.addresses`; no addresses with a server."""
        return {} if self.server is not None else super().addresses(hosts)

    def require_usable(self, hosts: Mapping[int, str]) -> None:
        """See `SourceSection.require_usable`."""
        super().require_usable(hosts)
        missing = sorted(set(hosts) - set(self.broker_values or hosts))
        if missing:
            raise ConfigError(
                f"cluster {self.key}.broker_values has no value for broker {missing[0]}; the "
                f"cluster's brokers are {', '.join(map(str, sorted(hosts)))}; add one for each"
            )

    def tls_hint(self) -> tuple[str, str]:
        """See `SourceSection.tls_hint`."""
        if self.server is None:
            return super().tls_hint()
        return f"https:// in {self.key}.server", "let the server, or a proxy before it, speak HTTPS"

    def contacted_hosts(self, advertised: Iterable[str]) -> list[str]:
        """See `SourceSection.contacted_hosts`."""
        if self.server is None:
            return super().contacted_hosts(advertised)
        return [urlsplit(self.server).hostname or ""]

    def served(
        self, hosts: Mapping[int, str], deadline_s: float
    ) -> tuple[ServerApi, FeedSpec] | None:
        """The server and what to read there; None where exporters are scraped.

        Args:
            hosts: broker id → advertised host.
            deadline_s: longest silence of the server [s].

        Raises:
            ConfigError: a secret or a file is missing.
        """
        if self.server is None or self.selector is None:
            return None
        label = BrokerLabel(
            self.key,
            self.broker_label,
            self.broker_pattern,
            self.broker_values,
            is_shared=self.shares_values,
        )
        selector = self.selector.strip().removeprefix("{").removesuffix("}").strip().strip(",")
        api = ServerApi(self.server, self.access(), deadline_s)
        return api, FeedSpec(selector, label, hosts, self.what)


def _groups(pattern: str) -> int:
    """The number of groups of a regular expression; 0 for a malformed one."""
    try:
        return re.compile(pattern).groups
    except re.error:
        return 0

"""JMX as a source of the brokers' metrics: configured, or of brokers that the run started."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from jobs.config.metrics_section import BrokerSection, SecuredSection, SourceTarget
from metrics.sources.access import JmxAccess
from metrics.sources.jmx import open_jmx
from metrics.sources.source import MetricsSource


class Jmx(SecuredSection, BrokerSection):
    """The brokers' JMX; TLS applies to its registry, too."""

    key: ClassVar[str] = "jmx"
    example: ClassVar[str] = "jmx: {port: 9999}"
    remedy: ClassVar[str] = (
        "start the brokers with JMX_PORT and add `jmx: {port: 9999}` with that port"
    )
    tls_remedy: ClassVar[str] = (
        "start the brokers with com.sun.management.jmxremote.ssl and .registry.ssl"
    )

    def require_usable(self, hosts: Mapping[int, str]) -> None:
        """See `SourceSection.require_usable`."""
        super().require_usable(hosts)
        self.access()

    def access(self) -> JmxAccess | None:
        """The login and the certificates of JMX, secrets resolved; None where it is open.

        Raises:
            ConfigError: a secret is missing.
        """
        login = self.user_and_password()
        if login is None and not self.tls:
            return None
        username, password = login or (None, None)
        return JmxAccess(username, password, self.tls, self.cafile, self.check_hostname)

    def open(self, target: SourceTarget) -> MetricsSource:
        """See `BrokerSection.open`."""
        return open_jmx(self.addresses(target.hosts), target.jvm, access=self.access())


class JmxOfStartedBrokers(BrokerSection):
    """JMX of brokers that the run started, which needs no configuration."""

    @classmethod
    def configured(cls, value: Any) -> JmxOfStartedBrokers:
        """See `SourceSection.configured`."""
        return cls()

    def open(self, target: SourceTarget) -> MetricsSource:
        """See `BrokerSection.open`."""
        jmx = target.started_jmx
        if jmx is None:
            return open_jmx({}, target.jvm)
        return open_jmx(jmx.addresses, target.jvm, access=jmx.access)

"""The cluster under load: a testbed to start, or real brokers with the way to their metrics."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, PrivateAttr, model_validator

from jobs.config.base import ConfigModel, HostPort, Name
from jobs.config.cluster_metrics import Jmx, Metrics
from jobs.config.security import Protocol, Security
from jobs.config.variables import Written
from jobs.setup.kafka_release import DEFAULT_RELEASE, RELEASE
from metrics.common.bounds import Number, Properties, Text, Whole


class TestbedOptions(ConfigModel):
    """Brokers that the run starts on this machine and stops at its end.

    Attributes:
        profile: a file of conf/testbed/, by its name without .yaml, or a path.
        brokers: number of brokers; the controller is a process of its own.
        kafka_version: any release from 3.9.0 on.
        properties: broker properties by Kafka's names that replace the profile's.
        security: protocol of the clients' listener; the profile's when left out.
        jmx_secured: whether JMX needs a password and speaks TLS; as the profile says when
            left out.
    """

    __test__ = False  # not a test class, whatever pytest thinks of its name

    profile: Annotated[str, Text(r"\S.*", "the name of a testbed profile, such as disk-bound")]
    brokers: Annotated[int, Whole(1, 5, "brokers")] = 3
    kafka_version: Annotated[str, RELEASE] = DEFAULT_RELEASE
    properties: Properties = Field(default_factory=dict)
    security: Protocol | None = None
    jmx_secured: bool | None = None

    @property
    def overrides(self) -> dict[str, object]:
        """What replaces the profile's keys and properties, as `jobs.testbed` takes it."""
        keys = {"security": self.security, "jmx_secured": self.jmx_secured}
        return {
            **self.properties,
            **{key: value for key, value in keys.items() if value is not None},
        }


class Cluster(ConfigModel):
    """The brokers to load: either `testbed` or `bootstrap_servers`.

    Attributes:
        name: the file's name without .yaml unless the file says another.
        description: a sentence for people.
        testbed: brokers to start here.
        bootstrap_servers: addresses of some brokers of a real cluster.
        client_properties: a file of properties for Kafka's own clients, which is read as it is
            for the addresses and the security that are not given here.
        jmx: of a real cluster's brokers; a testbed brings its own.
        metrics: another way to a real cluster's metrics, and the way to its hosts'.
        security: of the connections to a real cluster.
        link_mbit_per_s: speed of each broker's network interface, one direction [Mbit/s];
            unknown when left out, and then its use is unknown too.
        warm_up_max_s: load before a trial on brokers whose JVMs are cold, at most [s]; it
            ends earlier when more load makes them no faster.
        planted_handler_ms: broker id → the time that its request handlers wait in each produce
            request; a testbed that stands on its own writes it into its file [ms].
        network_namespace: file of the network namespace from which executors open connections
            to the brokers; a testbed behind a link writes it into its file.
        link: what lies between the two, by the keys of a testbed's link, for the record.
    """

    _written: Written = PrivateAttr(default_factory=dict)

    name: Name
    description: str = ""
    testbed: TestbedOptions | None = None
    bootstrap_servers: Annotated[tuple[HostPort, ...], Field(strict=False, min_length=1)] | None = (
        None
    )
    client_properties: str | None = None
    jmx: Jmx | None = None
    metrics: Metrics | None = None
    security: Security = Security()
    link_mbit_per_s: Annotated[float, Number(0, 10_000_000, "Mbit/s", above=True)] | None = None
    warm_up_max_s: Annotated[float, Number(0, 600, "seconds")] = 60.0
    planted_handler_ms: dict[int, Annotated[float, Number(0, 1_000, "milliseconds")]] = Field(
        default_factory=dict
    )
    network_namespace: Annotated[str, Text(r"/\S+", "the path of a namespace's file")] | None = None
    link: dict[str, str] = Field(default_factory=dict)

    @property
    def written(self) -> Written:
        """Where its file names environment variables, and how; recorded in place of values."""
        return self._written

    def keep_written(self, written: Written) -> None:
        """Keep what its file says in place of the values; for whoever reads the file."""
        self._written = written

    @model_validator(mode="after")
    def _one_kind(self) -> Cluster:
        if (self.testbed is None) == (self.bootstrap_servers is None):
            raise ValueError(
                "expected exactly one of testbed (brokers to start on this machine) and "
                "bootstrap_servers (brokers that run already); set one and leave the other out"
            )
        return self

    @model_validator(mode="after")
    def _metrics_of_real_brokers(self) -> Cluster:
        if self.testbed is None:
            names_a_way = self.metrics is not None and self.metrics.names_a_way
            if (self.jmx is None) != names_a_way:
                what = "jmx is missing" if self.jmx is None else "jmx and metrics are both given"
                raise ValueError(
                    f"{what}; the brokers' metrics decide what they sustain; start the "
                    "brokers with JMX_PORT and add `jmx: {port: 9999}` with that port, or name "
                    "their exporters in metrics.prometheus, or say metrics.client_only: true; "
                    "expected one of them"
                )
        elif not self._leaves_testbed_its_own():
            raise ValueError(
                "a testbed brings its own jmx, security, planted_handler_ms, network_namespace "
                "and link; expected none of them next to testbed; remove them"
            )
        return self

    def _leaves_testbed_its_own(self) -> bool:
        """Metrics of a testbed can only be done without."""
        parts = (self.jmx, self.planted_handler_ms, self.network_namespace, self.link)
        brings = any(parts) or self.security != Security()
        way = self.metrics
        return not brings and (way is None or (way.client_only and way.host is None))

    def client_kwargs(self) -> dict[str, Any]:
        """Connection options of kafka-python's clients, secrets resolved: never log them.

        Raises:
            ConfigError: when a secret or a file is not there.
        """
        return self.security.client_kwargs()

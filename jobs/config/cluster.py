"""The cluster under load: a testbed to start, or running brokers with their metrics sources.

Only `jobs.config` and `jobs.testbed` depend on testbeds. The code of other packages reads facts of
a `Cluster`, such as `is_exclusive` and `starts_brokers`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PrivateAttr

from jobs.config.base import ConfigModel, HostPort, Name
from jobs.config.metrics_registry import (
    BrokerSection,
    HostSection,
    Jmx,
    JmxOfStartedBrokers,
    LocalProc,
    Metrics,
    SourceSection,
)
from jobs.config.problems import Written
from jobs.config.security import Protocol, Security
from jobs.engine.network.options import NAME_PREFIX, ClientIds, ClientOptions
from jobs.setup.releases import DEFAULT_RELEASE, RELEASE, Metadata, as_broker_releases
from metrics.common.bounds import Checked, Number, Properties, Text, Whole
from metrics.planning.load_hours import EXPECTED_HOURS, LoadHours
from metrics.planning.planted import environment_of_handlers

DEFAULT_CLUSTER = "testbed"
"""The default for `--cluster`: a file of conf/clusters."""

BROKERS_START_S = 5.0
"""Typical time until a testbed's brokers serve clients [s]; 4 to 6 s were measured on two cores."""

TESTBED_CAVEAT = (
    "the testbed is a small cluster on this machine: its figures do not apply to other hardware"
)


@dataclass(frozen=True)
class Hours(Checked):
    """The hours of each day, such as `22:00-06:00 Europe/Berlin`."""

    def expected(self) -> str:
        """The expected values as a noun phrase, for messages and docs."""
        return EXPECTED_HOURS

    def accepts(self, value: Any) -> bool:
        """Whether a value has the form of `LoadHours`, with a known time zone or without one."""
        try:
            LoadHours.parse(value)
        except (TypeError, AttributeError, ValueError):
            return False
        return True


NAME_START = Text(
    r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}", "1 to 40 letters, digits, dots, dashes and underscores"
)


TOPIC = Text(r"[A-Za-z0-9._-]{1,249}", "the name of a topic")


class TestbedOptions(ConfigModel):
    """Brokers that the run starts on this machine, and stops when the run ends.

    Attributes:
        profile: testbed profile: a file of conf/testbed/ by its name without .yaml, or a path.
        brokers: number of brokers to start; one controller is added.
        kafka_version: Kafka release of the brokers.
        kafka_versions: broker id → Kafka release of the broker, if it differs from `kafka_version`,
            as during a rolling upgrade.
        metadata: the store of the cluster's metadata: `zookeeper`; `kraft`, with a separate
            controller; or `combined`, with each broker also as a controller. The default is
            `zookeeper` before Kafka 3.9, and `kraft` from 3.9 on.
        properties: values that replace values of the profile. The names are properties of brokers,
            or keys of the profile, such as `heap_mb` and `link.delay`.
        security: security protocol of the clients' listener; if not given, the profile decides.
        jmx_secured: whether JMX requires a password and TLS; if not given, the profile decides.
    """

    __test__ = False  # otherwise pytest collects the class, because of its name

    profile: Annotated[str, Text(r"\S.*", "the name of a testbed profile, such as disk-bound")]
    brokers: Annotated[int, Whole(1, 5, "brokers")] = 3
    kafka_version: Annotated[str, RELEASE] = DEFAULT_RELEASE
    kafka_versions: Annotated[Mapping[int, str], BeforeValidator(as_broker_releases)] = Field(
        default_factory=dict
    )
    metadata: Metadata | None = None
    properties: Properties = Field(default_factory=dict)
    security: Protocol | None = None
    jmx_secured: bool | None = None

    @property
    def overrides(self) -> dict[str, object]:
        """Key → value that replaces a key or a property of the profile, for `jobs.testbed`."""
        own = {
            key: value
            for key, value in self
            if key not in ("profile", "properties") and value not in (None, {})
        }
        return {**self.properties, **own}


class Cluster(ConfigModel):
    """The brokers under load: either `testbed` or `bootstrap_servers`.

    Attributes:
        name: the name of the cluster in tables.
        description: a sentence for readers.
        testbed: brokers that the run starts on this machine.
        bootstrap_servers: addresses of some brokers of a running cluster. Clients ask these brokers
            for the addresses of all brokers.
        cluster_id: the expected id of the cluster; a run on a cluster with another id ends with
            exit code 2 (docs/shared-clusters.md#the-right-cluster).
        client_properties: a `client.properties` file of Kafka's tools. The properties file supplies
            the addresses and the security settings that the cluster's file does not have
            (docs/client-properties.md).
        name_prefix: prefix of all names that a run gives: of its topics, consumer groups (including
            the lock), transactional ids and client ids. The topic that stops a run has the same
            prefix. ACLs on the prefix apply to all these names.
        topics: existing topics, for users without permission to create topics. A run writes to
            these topics, and never changes or deletes them (docs/shared-clusters.md#given-topics).
            In a mix, each part uses the next `topic.count` topics of this list. All message sizes
            use the same topics.
        topics_hold_data: whether the existing topics in `topics` may already have records when a
            run starts.
        client_id: one client id for all connections, for example an id that has a quota. If not
            given, `client.id` of `client_properties` applies; without both, each connection has its
            own client id. A quota of this client id applies to all producers together.
        client_id_suffix: whether the name of each connection is appended to `client_id`, as in
            `orders-redline-RUN_ID-…`.
        jmx: JMX of a running cluster's brokers. A testbed sets up JMX itself, so its file has no
            `jmx`.
        metrics: two sources of a running cluster: one for the hosts' metrics, and one for the
            brokers' metrics. If the brokers' metrics come from JMX, `jmx` configures their source
            instead.
        security: security of the connections to a running cluster.
        link_mbit_per_s: speed of each broker's network interface in one direction [Mbit/s]; if not
            given, the utilization of the interfaces is unknown.
        warm_up_max_s: longest warm-up load on cold brokers before a trial [s]. Brokers are cold if
            they started less than 10 minutes ago, or have served few requests since their start.
            The load ends before `warm_up_max_s` if the brokers no longer become faster.
        planted_handler_ms: broker id → time [ms] for which a request handler waits whenever it
            processes a produce request. `redline testbed up` writes `planted_handler_ms` into the
            cluster's file. A run then shows the planted limit next to the measured limit.
        load_hours: the hours of each day in which the cluster may be loaded; if not given, any
            time. If `load_hours` names no time zone, the driver's time zone applies.
        network_namespace: Linux network namespace in which tasks open their connections to the
            brokers, such as /run/netns/far. Tasks then run on the machine of the namespace, as
            root. `redline testbed up --link` writes `network_namespace`.
        link: key → value of the testbed's link between brokers and tasks; only for the run's
            record. `redline testbed up --link` writes `link`.
        disk: the options of the brokers' disks if their write rate is configured, as key → value. A
            run shows two limits: the limit that follows from `write_rate`, and the measured limit.
            `redline testbed up` writes `disk`.
    """

    _written: Written = PrivateAttr(default_factory=dict)
    _given: str = PrivateAttr(default="")

    name: Name
    description: str = ""
    testbed: TestbedOptions | None = None
    bootstrap_servers: Annotated[tuple[HostPort, ...], Field(strict=False, min_length=1)] | None = (
        None
    )
    cluster_id: Annotated[str, Text(r"\S{1,100}", "the id that Kafka gave the cluster")] | None = (
        None
    )
    client_properties: str | None = None
    name_prefix: Annotated[str, NAME_START] = NAME_PREFIX
    topics: Annotated[tuple[Annotated[str, TOPIC], ...], Field(strict=False, max_length=1_000)] = ()
    topics_hold_data: bool = False
    client_id: Annotated[str, Text(r"\S(.{0,248}\S)?", "a client id")] | None = None
    client_id_suffix: bool = False
    jmx: Jmx | None = None
    metrics: Metrics | None = None
    security: Security = Security()
    link_mbit_per_s: Annotated[float, Number(0, 10_000_000, "Mbit/s", above=True)] | None = None
    warm_up_max_s: Annotated[float, Number(0, 600, "seconds")] = 60.0
    planted_handler_ms: dict[int, Annotated[float, Number(0, 1_000, "milliseconds")]] = Field(
        default_factory=dict
    )
    load_hours: Annotated[str, Hours()] | None = None
    network_namespace: Annotated[str, Text(r"/\S+", "the path of a namespace's file")] | None = None
    link: dict[str, str] = Field(default_factory=dict)
    disk: dict[str, str] = Field(default_factory=dict)

    @property
    def written(self) -> Written:
        """Path of a key → the file's text with names of environment variables instead of their
        values; the run records this text.
        """
        return self._written

    @property
    def given(self) -> str:
        """The value of `--cluster`; the cluster's name if the configuration comes from a run's
        record.
        """
        return self._given or self.name

    def keep(self, written: Written | None = None, given: str = "") -> None:
        """Store the values of the properties `written` and `given`. If an argument is missing, the
        property keeps its previous value.
        """
        self._written = self._written if written is None else written
        self._given = given or self._given

    # --- facts --------------------------------------------------------------

    @property
    def starts_brokers(self) -> bool:
        """Whether each run starts and stops the brokers, so that each run has a new cluster id."""
        return self.testbed is not None

    @property
    def is_exclusive(self) -> bool:
        """Whether the run is the only user of the brokers.

        A run that is the only user needs no guards for other users, no consent to a load, and no
        check of permissions. The secrets of its brokers are valid only during the run.
        """
        return self.starts_brokers

    @property
    def hours(self) -> LoadHours | None:
        """The hours in which the cluster may be loaded; None for any time."""
        return None if self.load_hours is None else LoadHours.parse(self.load_hours)

    @property
    def brokers_known(self) -> int | None:
        """The number of brokers; None if it is unknown before the run connects to the cluster."""
        return None if self.testbed is None else self.testbed.brokers

    @property
    def start_s(self) -> float:
        """Time until the brokers have started [s]; 0 for running brokers."""
        return BROKERS_START_S if self.starts_brokers else 0.0

    @property
    def caveats(self) -> tuple[str, ...]:
        """Sentences that limit the meaning of all figures from these brokers."""
        return (TESTBED_CAVEAT,) if self.starts_brokers else ()

    def environment(self, broker_ids: Iterable[int]) -> dict[str, str]:
        """Facts for the run's record: the link, the disks and the handler times of running brokers,
        as configured in the cluster's file.
        """
        return stated_environment(self.planted_handler_ms, self.link, broker_ids, self.disk)

    @property
    def broker_sources(self) -> list[BrokerSection]:
        """The sources that the file configures for the brokers' metrics."""
        jmx = [] if self.jmx is None else [self.jmx]
        return [*jmx, *(self.metrics.broker_sources if self.metrics else ())]

    @property
    def broker_source(self) -> BrokerSection:
        """The section that opens the source of the brokers' metrics."""
        return next(iter(self.broker_sources), JmxOfStartedBrokers())

    @property
    def host_source(self) -> HostSection:
        """The section that opens the source of the hosts' metrics."""
        host = self.metrics.host if self.metrics else None
        return host.prometheus if host and host.prometheus else LocalProc()

    @property
    def sources(self) -> list[SourceSection]:
        """The sections of all metrics sources that the file configures."""
        return [each for each in (*self.broker_sources, self.host_source) if each.key]

    @property
    def client_ids(self) -> ClientIds:
        """The client ids of all connections."""
        return ClientIds(self.client_id or "", self.client_id_suffix)

    @property
    def topics_note(self) -> str:
        """A note about `topics` for plans; empty without topics."""
        if not self.topics:
            return ""
        return (
            f"writes to {', '.join(self.topics)} (cluster.topics), and deletes nothing: all "
            "records of the run stay in these topics until the topics' retention deletes them"
        )

    # --- checks -------------------------------------------------------------

    def require_consistent(self) -> None:
        """See `ConfigModel.require_consistent`."""
        if (self.testbed is None) == (self.bootstrap_servers is None):
            raise ValueError(
                "expected exactly one of testbed (brokers to start on this machine) and "
                "bootstrap_servers (running brokers); set one, and remove the other"
            )
        self._require_own_sources()
        if self.client_id_suffix and not self.client_id:
            raise ValueError(
                "client_id_suffix is true and client_id is missing; expected client_id, or "
                "client.id in client_properties; add client_id, or remove client_id_suffix"
            )
        self._require_distinct("topics", "names", "topic")

    def _require_own_sources(self) -> None:
        """Require one source of brokers' metrics for running brokers, and none for a testbed."""
        if self.testbed is None:
            given = [each.key.partition(".")[0] for each in self.broker_sources]
            if len(given) != 1:
                what = f"{' and '.join(given)} are both given" if given else "jmx is missing"
                raise ValueError(
                    f"{what}; expected one source of the brokers' metrics, which judge the trials; "
                    "set one of these keys: jmx (such as {port: 9999} for brokers with "
                    "JMX_PORT=9999), metrics.prometheus (for exporters), metrics.client_only "
                    "(true if there are no metrics), metrics.extension (for a package)"
                )
            return
        own = (
            self.planted_handler_ms,
            self.network_namespace,
            self.link,
            self.disk,
            self.cluster_id,
            self.topics,
            self.security != Security(),
        )
        # The file of a testbed may only turn its metrics off.
        if any(own) or not all(source.suits_testbed for source in self.sources):
            raise ValueError(
                "a testbed sets cluster_id, topics, jmx, security, planted_handler_ms, "
                "network_namespace, link and disk; expected none of these keys next to testbed; "
                "remove them"
            )

    def client_kwargs(self) -> ClientOptions:
        """Connection options of all clients, with secrets in plain text; never log them.

        Raises:
            ConfigError: a secret or a file is missing.
        """
        return ClientOptions(self.security.client_kwargs(), client_id=self.client_ids)


def are_started_by_run(settings: Mapping[str, object]) -> bool:
    """Whether each run starts the brokers of a recorded cluster.

    Args:
        settings: the cluster's flat keys, as `jobs.config.describe` returns them.
    """
    return any(key.startswith("testbed.") for key in settings)


def stated_environment(
    handler_ms: Mapping[int, float],
    link: Mapping[str, str],
    broker_ids: Iterable[int],
    disk: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Facts for the run's record: the handler times, the link and the disks that are configured for
    the brokers.

    Args:
        handler_ms: broker id → time [ms] for which a request handler waits whenever it processes a
            produce request.
        link: key → value of the link; empty without a link.
        broker_ids: ids of all brokers of the cluster.
        disk: the options of the brokers' disks, as key → value; empty if no write rate is
            configured.
    """
    return {
        **environment_of_handlers(handler_ms, broker_ids),
        **{f"link.{key}": value for key, value in link.items()},
        **{f"disk.{key}": value for key, value in (disk or {}).items()},
    }

"""The cluster under load: a testbed to start, or running brokers with the way to their metrics.

Only this package and `jobs.testbed` know what a testbed is. All other code asks a `Cluster` for
facts, such as `is_exclusive` and `starts_brokers`.
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
"""The file of conf/clusters that is used where none is named."""

BROKERS_START_S = 5.0
"""Time in which a testbed's brokers start [s]; measured 4 to 6 on two cores."""

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
        """True for the hours of each day with a known time zone, or none."""
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
    """Brokers that the run starts on this machine and stops at its end.

    Attributes:
        profile: a file of conf/testbed/, by its name without .yaml, or a path.
        brokers: number of brokers to start, besides one controller.
        kafka_version: the release to run.
        kafka_versions: broker id → its release, where it differs from kafka_version, as in the
            middle of a rolling upgrade.
        metadata: where the brokers keep the metadata of the cluster: zookeeper; kraft, with a
            controller of its own; or combined, where each broker is also a controller. When left
            out: ZooKeeper before 3.9, and kraft from 3.9 on.
        properties: broker properties by Kafka's names that replace the profile's, and keys of the
            profile, such as `heap_mb` and `link.delay`.
        security: protocol of the clients' listener; the profile's when left out.
        jmx_secured: whether JMX needs a password and uses TLS; as in the profile when left out.
    """

    __test__ = False  # its name makes pytest collect it otherwise

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
        """Values that replace the profile's keys and properties, as `jobs.testbed` takes them."""
        own = {
            key: value
            for key, value in self
            if key not in ("profile", "properties") and value not in (None, {})
        }
        return {**self.properties, **own}


class Cluster(ConfigModel):
    """The brokers to load: either `testbed` or `bootstrap_servers`.

    Attributes:
        name: the name of the cluster in tables.
        description: a sentence for people.
        testbed: brokers to start on this machine.
        bootstrap_servers: addresses of some brokers of a running cluster, which name the others.
        cluster_id: the only cluster that may be loaded; a run on another one ends with exit code 2
            (docs/shared-clusters.md#the-right-cluster).
        client_properties: a `client.properties` file of Kafka's own tools; it supplies the
            addresses and the security that are not given here (docs/client-properties.md).
        name_prefix: begins the names of topics, consumer groups (including the lock), transactional
            ids and client ids of runs, and of the topic that stops a run; for users with ACLs on
            one prefix.
        topics: existing topics, for users who may not create any: a run uses them as they are, and
            never changes or deletes them (docs/shared-clusters.md#given-topics). Each part of a mix
            takes as many of them as its topic.count says, in their order; all message sizes share
            them.
        topics_hold_data: whether runs may write to topics of `topics` that hold records already.
        client_id: the client id of all connections, instead of one for each, such as one with a
            quota or a zone; `client.id` of `client_properties` when left out. A quota for it then
            holds for all producers together.
        client_id_suffix: whether the name of each connection follows `client_id`, as in
            `orders-redline-RUN_ID-…`.
        jmx: JMX of a running cluster's brokers; a testbed brings its own.
        metrics: another way to a running cluster's metrics, and the way to its hosts' metrics.
        security: security of the connections to a running cluster.
        link_mbit_per_s: speed of each broker's network interface, one direction [Mbit/s]; its use
            is unknown when this is left out.
        warm_up_max_s: longest load before a trial on cold brokers [s]: they started less than 10
            minutes ago, or have served few requests since. The load ends earlier when more load
            makes them no faster.
        planted_handler_ms: broker id → the time that its request handlers wait in each produce
            request [ms]; `redline testbed up` writes it into the cluster file, and a run then shows
            the planted limit beside the found one.
        load_hours: the hours of each day in which the cluster may be loaded, in the driver's time
            zone unless they name one; any time when left out.
        network_namespace: network namespace of Linux in which tasks open their connections to the
            brokers, such as /run/netns/far; tasks then run on its machine, as root. `redline
            testbed up --link` writes it.
        link: the link between brokers and tasks, by the keys of a testbed's link; recorded only.
            `redline testbed up --link` writes it.
        disk: the planted disk of each broker, by the keys of a testbed's disk; a run shows the
            limit that follows from its `write_rate` beside the found one. `redline testbed up`
            writes it.
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
        """The file's references to environment variables, recorded in place of their values."""
        return self._written

    @property
    def given(self) -> str:
        """What `--cluster` named; the cluster's name where a run was continued without it."""
        return self._given or self.name

    def keep(self, written: Written | None = None, given: str = "") -> None:
        """Keep the file's own text of values from environment variables, or what names it."""
        self._written = self._written if written is None else written
        self._given = given or self._given

    # --- facts --------------------------------------------------------------

    @property
    def starts_brokers(self) -> bool:
        """Whether each run starts the brokers and stops them, so that the cluster id is new."""
        return self.testbed is not None

    @property
    def is_exclusive(self) -> bool:
        """Whether the run is the only user of the brokers.

        Others then need no guard and no consent, permissions need no check, and secrets end with
        the run.
        """
        return self.starts_brokers

    @property
    def hours(self) -> LoadHours | None:
        """The hours in which the cluster may be loaded; None for any time."""
        return None if self.load_hours is None else LoadHours.parse(self.load_hours)

    @property
    def brokers_known(self) -> int | None:
        """The number of brokers, where it is known before the cluster is opened."""
        return None if self.testbed is None else self.testbed.brokers

    @property
    def start_s(self) -> float:
        """Time in which the brokers start [s]; 0 for brokers that run already."""
        return BROKERS_START_S if self.starts_brokers else 0.0

    @property
    def caveats(self) -> tuple[str, ...]:
        """Sentences that every reader of figures from these brokers must know."""
        return (TESTBED_CAVEAT,) if self.starts_brokers else ()

    def environment(self, broker_ids: Iterable[int]) -> dict[str, str]:
        """The link, disks and handlers' stated times of running brokers, as environment facts."""
        return stated_environment(self.planted_handler_ms, self.link, broker_ids, self.disk)

    @property
    def broker_sources(self) -> list[BrokerSection]:
        """The sources of the brokers' metrics that the file configures."""
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
        """The sections of all sources that the file configures."""
        return [each for each in (*self.broker_sources, self.host_source) if each.key]

    @property
    def client_ids(self) -> ClientIds:
        """The client ids of all connections."""
        return ClientIds(self.client_id or "", self.client_id_suffix)

    @property
    def topics_note(self) -> str:
        """A sentence for plans on the topics of `topics`; empty without any."""
        if not self.topics:
            return ""
        return (
            f"writes to {', '.join(self.topics)} (cluster.topics) as they are, and deletes "
            "nothing: all bytes that are written stay there until the topics' retention ends"
        )

    # --- checks -------------------------------------------------------------

    def require_consistent(self) -> None:
        """See `ConfigModel.require_consistent`."""
        if (self.testbed is None) == (self.bootstrap_servers is None):
            raise ValueError(
                "expected exactly one of testbed (brokers to start on this machine) and "
                "bootstrap_servers (brokers that run already); set one and leave the other out"
            )
        self._require_own_sources()
        if self.client_id_suffix and not self.client_id:
            raise ValueError(
                "client_id_suffix is true and there is no client_id; expected client_id, or "
                "client.id in client_properties; add it, or remove client_id_suffix"
            )
        if twice := {each for each in self.topics if self.topics.count(each) > 1}:
            raise ValueError(
                f"topics names {min(twice)} more than once; expected each topic once; remove the "
                "repetition"
            )

    def _require_own_sources(self) -> None:
        """Require one source of metrics of running brokers, and none beside those of a testbed."""
        if self.testbed is None:
            given = [each.key.partition(".")[0] for each in self.broker_sources]
            if len(given) != 1:
                what = f"{' and '.join(given)} are both given" if given else "jmx is missing"
                raise ValueError(
                    f"{what}; the brokers' metrics decide what they sustain; start the brokers "
                    "with JMX_PORT and add `jmx: {port: 9999}` with that port, or name their "
                    "exporters in metrics.prometheus, or set metrics.client_only: true, or name "
                    "the source of an installed package in metrics.extension; expected one of them"
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
                "a testbed brings its own cluster_id, topics, jmx, security, planted_handler_ms, "
                "network_namespace, link and disk; expected none of them next to testbed; remove "
                "them"
            )

    def client_kwargs(self) -> ClientOptions:
        """Connection options of all clients, secrets resolved: never log them.

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
    """The stated properties of brokers, their link and disks, as environment facts of a run.

    Args:
        handler_ms: broker id → time that a request handler waits in each produce request [ms].
        link: keys of the link → their values; empty without a link.
        broker_ids: all brokers of the cluster.
        disk: keys of each broker's planted disk → their values; empty without one.
    """
    return {
        **environment_of_handlers(handler_ms, broker_ids),
        **{f"link.{key}": value for key, value in link.items()},
        **{f"disk.{key}": value for key, value in (disk or {}).items()},
    }

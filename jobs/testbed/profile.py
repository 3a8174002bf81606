"""Profiles of conf/testbed, which describe the brokers of a testbed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError

from jobs.config.base import ConfigModel, FileSection, Name, nearest
from jobs.config.cluster import TestbedOptions
from jobs.config.files import load_model
from jobs.config.link import Link, PlantedDisk
from jobs.config.problems import config_error
from jobs.config.yaml_file import ParsedFile
from jobs.setup.releases import DEFAULT_RELEASE, RELEASE, Metadata, as_broker_releases, metadata_of
from jobs.testbed.handler_time import AUTHORIZER_PROPERTY
from jobs.testbed.model import RACK_PROPERTY
from metrics.common.bounds import Number, Properties, UnexpectedError, Whole
from metrics.common.errors import ConfigError

BROKERS_MAX = 5

# The launcher sets these properties, because they depend on ports, folders and roles.
OWN_PROPERTIES = frozenset(
    {
        "process.roles",
        "node.id",
        "broker.id",
        "listeners",
        "advertised.listeners",
        "listener.security.protocol.map",
        "inter.broker.listener.name",
        "security.inter.broker.protocol",
        "controller.listener.names",
        "controller.quorum.voters",
        "controller.quorum.bootstrap.servers",
        "log.dir",
        "log.dirs",
        "metadata.log.dir",
    }
)

SECURED = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")


def _as_protocols(value: Any) -> Any:
    """The secured protocols in a comma-separated text or a list; empty for PLAINTEXT."""
    given = value.split(",") if isinstance(value, str) else value
    if not isinstance(given, list | tuple):
        raise UnexpectedError(f"one or more of {', '.join(SECURED)}")
    names = [each.strip() if isinstance(each, str) else each for each in given]
    protocols = [] if names == ["PLAINTEXT"] else names
    if len(set(protocols)) != len(protocols) or not set(protocols) <= set(SECURED):
        raise UnexpectedError(f"one or more of {', '.join(SECURED)}, each once, or only PLAINTEXT")
    return tuple(protocols)


def _as_jvm_options(value: Any) -> Any:
    """The JVM options in a list, or in a text with spaces between the options."""
    given = value.split() if isinstance(value, str) else value
    if not isinstance(given, list | tuple) or not all(
        isinstance(each, str) and re.fullmatch(r"-X\S+", each) for each in given
    ):
        raise UnexpectedError("JVM options such as -XX:TieredStopAtLevel=1, separated by spaces")
    return tuple(given)


_HANDLER_MS = Number(0, 1_000, "milliseconds")


def _as_handler_ms(value: Any) -> Any:
    """A time for all brokers, or broker id → time; a text such as `1: 5, 2: 9.5` is accepted."""
    given = _times_of(value) if isinstance(value, str) else value
    if isinstance(given, Mapping):
        ids = all(isinstance(each, int) and not isinstance(each, bool) for each in given)
        if ids and all(_HANDLER_MS.accepts(time_ms) for time_ms in given.values()):
            return {broker_id: float(time_ms) for broker_id, time_ms in given.items()}
    elif given is None or _HANDLER_MS.accepts(given):
        return None if given is None else float(given)
    raise UnexpectedError(f"{_HANDLER_MS.expected()}, or times by broker id such as 1: 5, 2: 9.5")


def _times_of(text: str) -> Any:
    """The number in a text, or the map of broker ids to times; if the text contains neither, the
    text itself.
    """
    try:
        if ":" not in text:
            return float(text)
        pairs = (part.split(":") for part in text.strip(" {}").split(","))
        return {int(broker_id): float(time_ms) for broker_id, time_ms in pairs}
    except ValueError:
        return text


class Profile(ConfigModel):
    """A testbed profile: the description of a testbed's brokers in a file of conf/testbed.

    Attributes:
        name: name of the profile; the file's name without .yaml if not given.
        description: a noun phrase for readers.
        brokers: number of brokers; the controller is a separate process.
        kafka_version: release of Kafka.
        kafka_versions: broker id → release of the broker, if it differs from `kafka_version`.
        metadata: store of the cluster's metadata: `kraft`, `combined` or `zookeeper`; if not given,
            the release's default.
        heap_mb: Java heap of each process [MiB].
        jvm_options: JVM options of each process (-X and -XX), in addition to Kafka's default
            options.
        disk_limit_bytes: largest total size of all log directories [B]; above this size the testbed
            stops.
        security: protocols of the listeners for clients. Runs use the first protocol. If no
            protocol is given, the listeners are plain.
        jmx_secured: whether JMX requires a password and TLS.
        log_dirs: number of log directories of each broker; Kafka creates a new partition in the
            directory with the fewest partitions.
        cpus: number of cores that each broker may use, such as 0.5 or 2; if not given, all cores.
        racks: number of racks; the brokers are assigned to them in turn; 0 for no racks.
        produce_handler_ms: time [ms] that a request handler waits when it processes a produce
            request: one time for all brokers, or one time for each broker id. If not given, no
            handler waits.
        link: emulated link between brokers and clients; if not given, the loopback interface.
        disk: planted disk of each broker, with a stated write rate; if not given, the machine's
            disk.
        broker: Kafka's name of a broker property → value. The controller also gets the broker
            properties, because the controller applies the defaults of new topics.
        controller: Kafka's name of an additional property of the controller → value.
    """

    name: Name
    description: str = ""
    brokers: Annotated[int, Whole(1, BROKERS_MAX, "brokers")] = 3
    kafka_version: Annotated[str, RELEASE] = DEFAULT_RELEASE
    kafka_versions: Annotated[Mapping[int, str], BeforeValidator(as_broker_releases)] = Field(
        default_factory=dict
    )
    metadata: Metadata | None = None
    heap_mb: Annotated[int, Whole(128, 65_536, "MiB")] = 512
    jvm_options: Annotated[tuple[str, ...], BeforeValidator(_as_jvm_options)] = ()
    disk_limit_bytes: Annotated[int, Whole(100_000_000, 10**15, "bytes")] = 8_000_000_000
    security: Annotated[tuple[str, ...], BeforeValidator(_as_protocols)] = ()
    jmx_secured: bool = False
    log_dirs: Annotated[int, Whole(1, 16, "log dirs")] = 1
    cpus: Annotated[float, Number(0.05, 1_024, "cores")] | None = None
    racks: Annotated[int, Whole(0, BROKERS_MAX, "racks")] = 0
    produce_handler_ms: Annotated[
        float | Mapping[int, float] | None, BeforeValidator(_as_handler_ms)
    ] = None
    link: Annotated[Link, FileSection()] | None = None
    disk: Annotated[PlantedDisk, FileSection()] | None = None
    broker: Properties = Field(default_factory=dict)
    controller: Properties = Field(default_factory=dict)

    @property
    def handler_ms(self) -> dict[int, float]:
        """Broker id → time [ms] that a request handler waits when it processes a produce request.
        The map may be empty.
        """
        given = self.produce_handler_ms
        if given is None:
            return {}
        if isinstance(given, Mapping):
            return dict(sorted(given.items()))
        return dict.fromkeys(range(1, self.brokers + 1), given)

    def require_consistent(self) -> None:
        """See `ConfigModel.require_consistent`."""
        self._require_times_of_all()
        self._require_releases()
        if self.racks > self.brokers:
            raise ValueError(
                f"racks is {self.racks} for {self.brokers} broker{'s' * (self.brokers > 1)}; "
                f"expected 0 to {self.brokers}; lower racks"
            )
        if self.racks and RACK_PROPERTY in self.broker:
            raise ValueError(
                f"{RACK_PROPERTY} is set next to racks, which sets the rack of each broker; "
                f"expected only one of them; remove {RACK_PROPERTY} or racks"
            )
        if self.handler_ms and AUTHORIZER_PROPERTY in self.broker:
            raise ValueError(
                f"{AUTHORIZER_PROPERTY} is set next to produce_handler_ms, which installs another "
                "authorizer that allows every operation; expected only one of them; remove "
                f"{AUTHORIZER_PROPERTY} or produce_handler_ms"
            )

    def _require_times_of_all(self) -> None:
        known = set(range(1, self.brokers + 1))
        named = set(self.handler_ms)
        if self.produce_handler_ms is not None and named != known:
            raise ValueError(
                f"produce_handler_ms names {_brokers(named)}, and the testbed has "
                f"{_brokers(known)}; expected a time for each broker (0 for no wait); name all "
                "brokers, or give one time for all brokers"
            )

    @property
    def keeps_metadata_in(self) -> Metadata:
        """The store of the cluster's metadata."""
        return metadata_of(self.kafka_version, self.metadata)

    def _require_releases(self) -> None:
        unknown = sorted(set(self.kafka_versions) - set(range(1, self.brokers + 1)))
        if unknown:
            raise ValueError(
                f"kafka_versions names broker {unknown[0]}; expected ids from 1 to {self.brokers}; "
                "correct it"
            )
        kept_in = self.keeps_metadata_in
        for release in self.kafka_versions.values():
            metadata_of(release, kept_in)
        if kept_in == "zookeeper" and any(each.startswith("SASL_") for each in self.security):
            raise ValueError(
                "security has a login and metadata is zookeeper; expected kraft, because the "
                "testbed creates users for SCRAM only in KRaft; choose SSL, or kraft"
            )


def _brokers(ids: Iterable[int]) -> str:
    *most, last = [str(each) for each in sorted(ids)] or ["none"]
    return f"brokers {', '.join(most)} and {last}" if most else f"broker {last}"


def load_profile(name_or_path: str) -> Profile:
    """Read a profile: a file of conf/testbed/ by its name without .yaml, or a path.

    Raises:
        ConfigError: the profile cannot be read, or has an error.
    """
    profile, source = load_model("testbed", name_or_path, "testbed profile", Profile)
    for section in ("broker", "controller"):
        _check_properties(getattr(profile, section), f"{source.label}, {section}")
    return profile


_OWN_KEYS = [
    key
    for key in Profile.model_fields
    if key not in ("name", "description", "broker", "controller")
]
"""The keys of a profile that an override may set, in addition to broker properties."""


def _as_yaml(text: str) -> object:
    """The number or boolean that YAML would read from a text; otherwise the text itself."""
    if text.isdecimal():
        return int(text)
    if re.fullmatch(r"\d+\.\d+", text):
        return float(text)
    return {"true": True, "false": False}.get(text, text)


def _scalar(value: object) -> object:
    """The value of a link's key; `none` means no value."""
    if isinstance(value, str):
        return None if value.strip() == "none" else _as_yaml(value.strip())
    return value


_EXAMPLES = {
    "link": "delay=25ms,jitter=1ms,rate=100MB/s,loss=0.1%",
    "disk": "write_rate=10MB/s,dirty_bytes=4000000",
}


def _as_section(name: str, value: object) -> Any:
    """A link or disk, from a map or from a text such as `delay=25ms,rate=100MB/s`; None for
    `none`.
    """
    if not isinstance(value, str):
        return value
    if value.strip() == "none":
        return None
    section: dict[str, Any] = {}
    for part in value.split(","):
        key, _, given = (text.strip() for text in part.partition("="))
        if not key or not given or key in section:
            raise ConfigError(
                f"{name} {value} has {part.strip()!r}, which is not of the form key=value, or "
                f"repeats a key; expected for example {_EXAMPLES[name]}; correct it"
            )
        section[key] = _scalar(given)
    return section


def adapt(
    profile: Profile,
    *,
    brokers: int | None = None,
    kafka_version: str | None = None,
    overrides: Mapping[str, object] | None = None,
) -> Profile:
    """A copy of a profile with other values of some keys.

    Args:
        profile: the profile to copy.
        brokers: number of brokers, 1 to 5.
        kafka_version: any release, 2.8.0 or later.
        overrides: key → value. A key has one of these forms: a key of the profile (`heap_mb`), a
            key of its link (`link.delay`), a key of its disk (`disk.write_rate`), or Kafka's name
            of a broker property. If the key belongs to the profile, to its link or to its disk, a
            text such as `3` or `true` becomes a number or a boolean, as in YAML.

    Raises:
        ConfigError: a value is not valid for its key, or the property is one that only the launcher
            sets.
    """
    data = dict(profile)
    sections: dict[str, Any] = {name: data[name] and asdict(data[name]) for name in _EXAMPLES}
    properties = dict(profile.broker)
    given: dict[str, object] = {"brokers": brokers, "kafka_version": kafka_version}
    data.update({key: value for key, value in given.items() if value is not None})
    for key, value in (overrides or {}).items():
        if key in sections:
            sections[key] = _as_section(key, value)
        elif key in _OWN_KEYS:
            data[key] = _as_yaml(value) if isinstance(value, str) else value
        elif key.partition(".")[0] in sections:
            name, _, own = key.partition(".")
            sections[name] = {**(sections[name] or {}), own: _scalar(value)}
        else:
            _check_properties({key: value}, "testbed override")
            properties[key] = str(value).lower() if isinstance(value, bool) else str(value)
    data |= {"broker": properties, **sections}
    try:
        return Profile.model_validate(data)
    except ValidationError as error:
        source = ParsedFile("testbed override", {})
        raise config_error(error, source, Profile) from None


def profile_of(options: TestbedOptions) -> Profile:
    """The checked profile for a cluster file's section `testbed`; see `adapt`."""
    return adapt(load_profile(options.profile), overrides=options.overrides)


def _check_properties(properties: Mapping[str, object], where: str) -> None:
    for key in properties:
        if key in OWN_PROPERTIES:
            raise ConfigError(
                f"{where}: {key} is given; expected no {key}, because the testbed sets it from "
                "ports, folders and roles; remove it"
            )
        # Kafka ignores an unknown property, except for a line in its log. A name without a dot is
        # never a property of Kafka, so it is refused here.
        if not re.fullmatch(r"(listener\.name\.[a-z0-9_-]+\.)?[a-z0-9]+([.-][a-z0-9.-]+)+", key):
            close = nearest(key, _OWN_KEYS)
            meant = f" (did you mean {close}?)" if close else ""
            raise ConfigError(
                f"{where}: {key} is not the name of a Kafka property{meant}; expected a name such "
                f"as num.io.threads, or one of {', '.join(_OWN_KEYS)}; correct it"
            )

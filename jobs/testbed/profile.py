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
from jobs.config.source import ParsedFile
from jobs.setup.releases import DEFAULT_RELEASE, RELEASE, Metadata, as_broker_releases, metadata_of
from jobs.testbed.handler_time import AUTHORIZER_PROPERTY
from jobs.testbed.model import RACK_PROPERTY
from metrics.common.bounds import Number, Properties, UnexpectedError, Whole
from metrics.common.errors import ConfigError

BROKERS_MAX = 5

# The launcher decides these properties, as they depend on its ports, folders and roles.
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
    """The protocols of a comma-separated text or a list; PLAINTEXT alone means none."""
    given = value.split(",") if isinstance(value, str) else value
    if not isinstance(given, list | tuple):
        raise UnexpectedError(f"one or more of {', '.join(SECURED)}")
    names = [each.strip() if isinstance(each, str) else each for each in given]
    protocols = [] if names == ["PLAINTEXT"] else names
    if len(set(protocols)) != len(protocols) or not set(protocols) <= set(SECURED):
        raise UnexpectedError(f"one or more of {', '.join(SECURED)}, each once, or PLAINTEXT alone")
    return tuple(protocols)


def _as_jvm_options(value: Any) -> Any:
    """The options of the java command, from a list or a text with spaces between them."""
    given = value.split() if isinstance(value, str) else value
    if not isinstance(given, list | tuple) or not all(
        isinstance(each, str) and re.fullmatch(r"-X\S+", each) for each in given
    ):
        raise UnexpectedError(
            "options of the JVM such as -XX:TieredStopAtLevel=1, with spaces between"
        )
    return tuple(given)


_HANDLER_MS = Number(0, 1_000, "milliseconds")


def _as_handler_ms(value: Any) -> Any:
    """A time for all brokers, or broker id → its time, also from a text such as `1: 5, 2: 9.5`."""
    given = _times_of(value) if isinstance(value, str) else value
    if isinstance(given, Mapping):
        ids = all(isinstance(each, int) and not isinstance(each, bool) for each in given)
        if ids and all(_HANDLER_MS.accepts(time_ms) for time_ms in given.values()):
            return {broker_id: float(time_ms) for broker_id, time_ms in given.items()}
    elif given is None or _HANDLER_MS.accepts(given):
        return None if given is None else float(given)
    raise UnexpectedError(f"{_HANDLER_MS.expected()}, or one for each broker such as 1: 5, 2: 9.5")


def _times_of(text: str) -> Any:
    """The times that a text states; a text without times stays as it is."""
    try:
        if ":" not in text:
            return float(text)
        pairs = (part.split(":") for part in text.strip(" {}").split(","))
        return {int(broker_id): float(time_ms) for broker_id, time_ms in pairs}
    except ValueError:
        return text


class Profile(ConfigModel):
    """The kind of brokers of a testbed, as one file of conf/testbed describes it.

    Attributes:
        name: the file's name without .yaml.
        description: a noun phrase for people.
        brokers: number of brokers; the controller is a process of its own.
        kafka_version: release of Kafka.
        kafka_versions: broker id → its release, where it differs from kafka_version.
        metadata: place of the metadata; the release's default when left out.
        heap_mb: Java heap of each process [MiB].
        jvm_options: options of each process's JVM, -X and -XX, after Kafka's own.
        disk_limit_bytes: the testbed is stopped when its log dirs hold more than this [B].
        security: protocols of listeners for clients; runs use the first. Plain when left out.
        jmx_secured: whether JMX needs a password and speaks TLS.
        log_dirs: number of log dirs of each broker; Kafka puts a new partition into the dir with
            the fewest.
        cpus: cores that each broker may use, or a part of a core; all when left out.
        racks: number of racks over which the brokers are spread in turns; 0 without racks.
        produce_handler_ms: time that a request handler waits in each produce request, for all
            brokers or by broker id [ms]; no wait when left out.
        link: link between the brokers and their clients; the loopback interface when left out.
        disk: disk of each broker with a stated write rate; the machine's own when left out.
        broker: broker properties by Kafka's names. The controller reads them too, as it applies
            the defaults of new topics.
        controller: additional properties of the controller.
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
        """Broker id → stated wait in each produce request [ms]; empty without stated times."""
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
                f"racks is {self.racks}, and {_brokers(range(1, self.brokers + 1))} can be in "
                f"{self.brokers} at most; expected 0 to {self.brokers}; correct it"
            )
        if self.racks and RACK_PROPERTY in self.broker:
            raise ValueError(
                f"{RACK_PROPERTY} is set next to racks, which gives each broker its rack; "
                "expected only one of them; remove the other"
            )
        if self.handler_ms and AUTHORIZER_PROPERTY in self.broker:
            raise ValueError(
                f"{AUTHORIZER_PROPERTY} is set next to produce_handler_ms, which installs an "
                "authorizer of its own that allows every operation; expected only one of them; "
                "remove the other"
            )

    def _require_times_of_all(self) -> None:
        known = set(range(1, self.brokers + 1))
        named = set(self.handler_ms)
        if self.produce_handler_ms is not None and named != known:
            raise ValueError(
                f"produce_handler_ms names {_brokers(named)}, and there "
                f"{'is' if self.brokers == 1 else 'are'} {_brokers(known)}; expected a time for "
                "each broker, 0 for no wait; name all brokers, or give one time for all"
            )

    @property
    def keeps_metadata_in(self) -> Metadata:
        """Where the brokers keep the cluster's metadata."""
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
                "security has a login and metadata is zookeeper; expected kraft, as the testbed "
                "creates users for SCRAM in KRaft only; choose SSL, or kraft"
            )


def _brokers(ids: Iterable[int]) -> str:
    *most, last = [str(each) for each in sorted(ids)] or ["none"]
    return f"brokers {', '.join(most)} and {last}" if most else f"broker {last}"


def load_profile(name_or_path: str) -> Profile:
    """Read a profile: a file of conf/testbed/ by its name without .yaml, or a path.

    Raises:
        ConfigError: it cannot be read or is wrong.
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
"""The keys of a profile that an override may set, beside broker properties."""


def _as_yaml(text: str) -> object:
    """The number or truth value that YAML reads from a text, or the text itself."""
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
    """A link or a disk from a map or a text such as `delay=25ms,rate=100MB/s`; `none` for none."""
    if not isinstance(value, str):
        return value
    if value.strip() == "none":
        return None
    section: dict[str, Any] = {}
    for part in value.split(","):
        key, _, given = (text.strip() for text in part.partition("="))
        if not key or not given or key in section:
            raise ConfigError(
                f"{name} {value} has {part.strip()!r}, which is not a setting or repeats one; "
                f"expected for example {_EXAMPLES[name]}; correct it"
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
    """A profile with another size, version, or other values of some keys.

    Args:
        profile: the profile to change.
        brokers: number of brokers, 1 to 5.
        kafka_version: any release from 2.8.0 on.
        overrides: a key of the profile (`heap_mb`, `security`, …), of its link (`link.delay`)
            or disk (`disk.write_rate`), or a broker property by Kafka's name, with its value;
            YAML's rules apply to text.

    Raises:
        ConfigError: a value does not fit its key, or the launcher decides this property.
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
    """The checked profile that a cluster file describes; see `adapt`."""
    return adapt(load_profile(options.profile), overrides=options.overrides)


def _check_properties(properties: Mapping[str, object], where: str) -> None:
    for key in properties:
        if key in OWN_PROPERTIES:
            raise ConfigError(
                f"{where}: {key} is given, but the testbed sets it from its ports, folders and "
                "roles; remove it"
            )
        # Kafka ignores an unknown property with a line in its log. A name without a dot is
        # not one of Kafka's, so it is a mistake that would stay unnoticed.
        if not re.fullmatch(r"(listener\.name\.[a-z0-9_-]+\.)?[a-z0-9]+([.-][a-z0-9.-]+)+", key):
            close = nearest(key, _OWN_KEYS)
            meant = f"; did you mean {close}?" if close else ";"
            raise ConfigError(
                f"{where}: {key} is not the name of a Kafka property{meant} expected one such as "
                f"num.io.threads, or one of {', '.join(_OWN_KEYS)}; correct it"
            )

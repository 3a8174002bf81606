"""The kinds of metrics sources, and the `metrics` section of a cluster's file that they make up.

A new kind is a subclass of `BrokerSection` or `HostSection` in a module of its own, and an entry
in `BROKER_SOURCES` or `HOST_SOURCES`. From there its key joins the section and its schema, the
messages about sources, doctor's checks of secrets, and the opening of a cluster's sources.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import Field, create_model, model_validator

from jobs.config.base import ConfigModel
from jobs.config.metrics_client_only import ClientOnly
from jobs.config.metrics_extension import ExtensionSection
from jobs.config.metrics_hosts import LocalProc, NodeExporter
from jobs.config.metrics_jmx import Jmx, JmxOfStartedBrokers
from jobs.config.metrics_prometheus import Prometheus
from jobs.config.metrics_section import BrokerSection, HostSection, SourceSection

Section = TypeVar("Section", bound=SourceSection)

BROKER_SOURCES: tuple[type[BrokerSection], ...] = (
    Jmx,
    Prometheus,
    ClientOnly,
    ExtensionSection,
    JmxOfStartedBrokers,
)
"""Sources of the brokers' metrics; the last needs no configuration and is the default."""
HOST_SOURCES: tuple[type[HostSection], ...] = (NodeExporter, LocalProc)
"""Sources of the hosts' metrics; the last needs no configuration and is the default."""

_METRICS = "metrics"
_HOST = "metrics.host"


def _kinds_in(kinds: Sequence[type[Section]], parent: str) -> dict[str, type[Section]]:
    """Key → kind, of the kinds whose key stands directly in the section `parent`."""
    places = {kind: kind.key.rpartition(".") for kind in kinds if kind.key}
    return {key: kind for kind, (above, _, key) in places.items() if above == parent}


def _keys_of(kinds: Mapping[str, type[SourceSection]]) -> dict[str, Any]:
    """Fields of a model with a key for each kind."""
    fields = {key: (kind, *kind.field()) for key, kind in kinds.items()}
    return {
        key: (annotation, Field(default, description=kind.meaning))
        for key, (kind, annotation, default) in fields.items()
    }


def _configured_in(section: ConfigModel, kinds: Mapping[str, type[SourceSection]]) -> list[str]:
    """Keys of the kinds that a section configures."""
    return [key for key, kind in kinds.items() if kind.configured(getattr(section, key))]


def _examples(kinds: Mapping[str, type[SourceSection]], joint: str) -> str:
    return joint.join(kind.example for kind in kinds.values())


_IN_HOST = _kinds_in(HOST_SOURCES, _HOST)
_IN_METRICS = _kinds_in(BROKER_SOURCES, _METRICS)


class _HostMetrics(ConfigModel):
    """The source of the metrics of the brokers' hosts."""

    @model_validator(mode="after")
    def _require_one_source(self) -> _HostMetrics:
        if len(_configured_in(self, _IN_HOST)) != 1:
            raise ValueError(
                f"expected one of {_examples(_IN_HOST, ' and ')}; set one and leave any other "
                f"out, or remove {_HOST}"
            )
        return self


class _Metrics(ConfigModel):
    """The source of the brokers' metrics where it is not JMX, and that of their hosts' metrics."""

    if TYPE_CHECKING:
        host: _HostMetrics | None

    @model_validator(mode="after")
    def _require_one_source(self) -> _Metrics:
        configured = _configured_in(self, _IN_METRICS)
        if len(configured) > 1:
            raise ValueError(
                f"expected one of {_examples(_IN_METRICS, ' and ')}; set one and leave the other "
                "out"
            )
        if not configured and self.host is None:
            raise ValueError(
                f"expected {_examples(_IN_METRICS, ', ')} or host; set one, or remove metrics"
            )
        return self


if TYPE_CHECKING:
    HostMetrics = _HostMetrics
    Metrics = _Metrics
else:
    HostMetrics = create_model(
        "HostMetrics", __base__=_HostMetrics, __doc__=_HostMetrics.__doc__, **_keys_of(_IN_HOST)
    )
    Metrics = create_model(
        "Metrics",
        __base__=_Metrics,
        __doc__=_Metrics.__doc__,
        **_keys_of(_IN_METRICS),
        host=(
            HostMetrics | None,
            Field(None, description="metrics of their hosts, beside any source of the brokers'"),
        ),
    )


def configured_sources(cluster: ConfigModel) -> Iterator[SourceSection]:
    """The sections of all sources that a cluster's file configures."""
    for kind in (*BROKER_SOURCES, *HOST_SOURCES):
        section = _section_of(kind, cluster)
        if kind.key and section is not None:
            yield section


def broker_source(cluster: ConfigModel) -> BrokerSection:
    """The section that opens the source of the brokers' metrics."""
    return _first_of(BROKER_SOURCES, cluster)


def host_source(cluster: ConfigModel) -> HostSection:
    """The section that opens the source of the hosts' metrics."""
    return _first_of(HOST_SOURCES, cluster)


def require_one_broker_source(cluster: ConfigModel) -> None:
    """Check that the file of a cluster that runs already configures one source of its brokers.

    Raises:
        ValueError: it configures none, or several.
    """
    kinds = [kind for kind in BROKER_SOURCES if kind.key]
    given = [kind.key for kind in kinds if _section_of(kind, cluster) is not None]
    if len(given) == 1:
        return
    names = [key.partition(".")[0] for key in given]
    what = f"{' and '.join(names)} are both given" if given else f"{kinds[0].key} is missing"
    raise ValueError(
        f"{what}; the brokers' metrics decide what they sustain; "
        f"{', or '.join(kind.remedy for kind in kinds)}; expected one of them"
    )


def _first_of(kinds: Iterable[type[Section]], cluster: ConfigModel) -> Section:
    found = (_section_of(kind, cluster) for kind in kinds)
    return next(section for section in found if section is not None)


def _section_of(kind: type[Section], cluster: ConfigModel) -> Section | None:
    """The section of a kind in a cluster's file; None where it is not configured."""
    value: Any = cluster
    for key in filter(None, kind.key.split(".")):
        value = getattr(value, key, None)
    return kind.configured(value)

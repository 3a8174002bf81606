"""Metrics sources of installed packages. docs/extending.md describes them.

A package adds an entry point to the group `redline.sources`. The entry point is a callable with
`api = 1`. The callable gets a `SourceRequest`, and returns a `MetricsSource` that is not open.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from metrics.common.errors import ConfigError, RedlineError
from metrics.common.extensions import SOURCES, Extension, explain_failure, load_extension
from metrics.sources.sample import BrokerSample
from metrics.sources.source import MetricsSource, NodeInfo

_PROTOCOL = ("nodes", "open", "sample_all", "close")


@dataclass(frozen=True)
class SourceRequest:
    """The facts about a cluster that a package's source gets.

    Attributes:
        hosts: broker id → advertised host.
        version: the part of Kafka's version that the protocol shows, such as `4.1`.
        options: key below `metrics.extension.options` in the cluster's file → its value as text.
        secret: gets the name of an option, and returns the secret to which this option refers. The
            option's value is a reference such as `env:NAME`.
    """

    hosts: Mapping[int, str]
    version: str
    options: Mapping[str, str]
    secret: Callable[[str], str]


class ExtensionSource:
    """A package's source, wrapped so that it raises no unexpected error.

    An error in `open` ends the run with a message. An error in a poll makes the samples of all
    nodes fail, as if the nodes did not answer.
    """

    def __init__(self, name: str, extension: Extension, source: MetricsSource) -> None:
        self._what = f"the source {name} of {extension.package}"
        self._source = source
        self.name = name

    @property
    def nodes(self) -> Mapping[int, NodeInfo]:
        """Node id → the node, for all nodes that `open` found."""
        return self._source.nodes

    def open(self) -> None:
        """Open the package's source, and close it if this fails. See `MetricsSource.open`."""
        try:
            self._source.open()
            found = dict(self._source.nodes)
            if not found or not all(isinstance(node, NodeInfo) for node in found.values()):
                raise ConfigError(
                    f"{self._what} found {found or 'no nodes'}; expected a NodeInfo for each "
                    "broker; report it to the authors of the package, or uninstall it"
                )
        except RedlineError:
            self.close()
            raise
        except Exception as error:
            self.close()
            raise explain_failure(self._what, error) from error

    def sample_all(self) -> list[BrokerSample]:
        """One sample of each node, as `MetricsSource.sample_all` describes."""
        try:
            return [_checked(each) for each in self._source.sample_all()]
        except Exception as error:  # noqa: BLE001 - code of others may raise anything
            text = f"{self._what} failed with {type(error).__name__}: {error}"
            return [BrokerSample(node, time.time(), error=text) for node in self.nodes]

    def close(self) -> None:
        """Close the package's source. An error is logged."""
        try:
            self._source.close()
        except Exception as error:  # noqa: BLE001 - code of others may raise anything
            explain_failure(f"the end of {self._what}", error)


def extension_source(name: str, request: SourceRequest) -> ExtensionSource:
    """The source of an installed package. The source is not open yet.

    Args:
        name: name of the source in the group `redline.sources`.
        request: the facts about the cluster.

    Raises:
        ConfigError: no package has the source, the package is broken or has another version of the
            API, or the source refuses the options.
    """
    extension = load_extension(SOURCES, name)
    try:
        source = extension.found(request)
    except RedlineError:
        raise
    except Exception as error:
        raise explain_failure(f"the source {name} of {extension.package}", error) from error
    missing = [each for each in _PROTOCOL if not hasattr(source, each)]
    if missing:
        raise ConfigError(
            f"the source {name} of {extension.package} lacks {', '.join(missing)}; expected a "
            "metrics.sources.source.MetricsSource; report it to the authors of the package, or "
            "uninstall it"
        )
    return ExtensionSource(name, extension, source)


def _checked(sample: object) -> BrokerSample:
    if not isinstance(sample, BrokerSample):
        raise TypeError(f"a sample is {sample!r}; expected a BrokerSample")
    return sample

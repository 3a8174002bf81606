"""A source of an installed package, as a source of the brokers' metrics."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field

from jobs.config.metrics_section import BrokerSection, SourceTarget
from jobs.config.problems import may_be_secret
from jobs.config.security import REFERENCE, as_reference, is_reference, read_secret
from metrics.common.bounds import UnexpectedError
from metrics.common.errors import ConfigError
from metrics.common.extensions import SOURCES, ExtensibleName, load_extension
from metrics.sources.extension import SourceRequest, extension_source
from metrics.sources.source import MetricsSource

_LOGIN_IN_URL = re.compile(r"://[^\s/@]*:[^\s/@]*@")


def _as_texts(value: Any) -> Any:
    """Options as texts; YAML has numbers and booleans, too."""
    is_map = isinstance(value, Mapping) and all(
        isinstance(key, str) and isinstance(each, (str, int, float)) for key, each in value.items()
    )
    if not is_map:
        raise UnexpectedError("a map of names to texts, numbers and booleans, such as {port: 8778}")
    return {key: _as_text(key, each) for key, each in value.items()}


def _as_text(name: str, value: Any) -> str:
    if is_reference(value):
        return str(as_reference(value))
    if may_be_secret((name,)) or _LOGIN_IN_URL.search(str(value)):
        raise UnexpectedError(f"for {name} {REFERENCE}")
    return str(value).lower() if isinstance(value, bool) else str(value)


class ExtensionSection(BrokerSection):
    """A source of the brokers' metrics that an installed package adds.

    Attributes:
        source: its name in the group `redline.sources`.
        options: its own options; secrets are references, such as `env:NAME`.
    """

    key: ClassVar[str] = "metrics.extension"
    meaning: ClassVar[str] = "a source of an installed package, see docs/extending.md."
    example: ClassVar[str] = "extension"
    remedy: ClassVar[str] = "name the source of an installed package in metrics.extension"

    source: Annotated[str, ExtensibleName((), SOURCES)]
    options: Annotated[Mapping[str, str], BeforeValidator(_as_texts)] = Field(default_factory=dict)

    def require_usable(self, hosts: Mapping[int, str]) -> None:
        """Check that the package can be imported, and that secrets exist."""
        load_extension(SOURCES, self.source)
        for name, value in self.options.items():
            if is_reference(value):
                self._secret(name)

    def contacted_hosts(self, advertised: Iterable[str]) -> list[str]:
        """See `SourceSection.contacted_hosts`; only the package knows others."""
        return list(advertised)

    def open(self, target: SourceTarget) -> MetricsSource:
        """See `BrokerSection.open`."""
        request = SourceRequest(target.hosts, target.version, self.options, self._secret)
        source = extension_source(self.source, request)
        source.open()  # closes itself when it fails
        return source

    def _secret(self, option: str) -> str:
        reference, key = self.options.get(option), f"{self.key}.options.{option}"
        if reference is None or not is_reference(reference):
            raise ConfigError(
                f"{key} is {'missing' if reference is None else 'no reference'}; expected the "
                "place of a secret, such as env:NAME or file:PATH; correct it"
            )
        return read_secret(reference, key)

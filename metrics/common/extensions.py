"""Extensions: what installed packages of others add, found by Python's entry points.

A package is imported only where a configuration names what it adds. One that is broken, or that
was written for another version of a protocol, ends in a sentence. docs/extending.md describes the
groups and their protocols.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from metrics.common.bounds import Checked, UnexpectedError
from metrics.common.errors import ConfigError

MEASUREMENTS = "redline.measurements"
SOURCES = "redline.sources"
CLIENTS = "redline.clients"
APIS = {MEASUREMENTS: 1, SOURCES: 1, CLIENTS: 1}
"""Group of entry points → the version of its protocol."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Extension:
    """What a package adds under a name.

    Attributes:
        found: the object to which its entry point leads.
        package: the package and its version, for messages.
        distribution: the name of the package, as pip knows it; empty if it is not known.
        module: the module with the object.
    """

    found: Any
    package: str
    distribution: str
    module: str


def installed_names(group: str) -> tuple[str, ...]:
    """The names that installed packages add to a group, sorted; no package is imported."""
    return tuple(sorted({each.name for each in entry_points(group=group)}))


def version_of(group: str, name: str) -> tuple[str, str] | None:
    """The package that adds a name to a group, and its version; None if none is installed."""
    found = [each.dist for each in entry_points(group=group, name=name) if each.dist is not None]
    return (found[0].name, found[0].version) if found else None


def load_extension(group: str, name: str) -> Extension:
    """Import what an installed package adds under a name.

    Raises:
        ConfigError: no package, or several, add the name; the package cannot be imported, or was
            written for another version of the protocol.
    """
    points = sorted(entry_points(group=group, name=name), key=lambda each: each.value)
    packages = [_package_of(each) for each in points]
    if not points:
        others = ", ".join(installed_names(group)) or "no package adds any"
        raise ConfigError(
            f"no installed package adds {name} to {group}; expected a name that one adds "
            f"({others}); correct the name, or install its package beside kafka-redline"
        )
    if len({each.value for each in points}) > 1:
        raise ConfigError(
            f"{' and '.join(packages)} add {name} to {group}; expected one package; uninstall the "
            "others"
        )
    point, package = points[0], packages[0]
    try:
        found = point.load()
    except (Exception, SystemExit) as error:
        raise explain_failure(f"{package}, which adds {name} to {group},", error) from error
    given, api = getattr(found, "api", None), APIS[group]
    if given != api:
        # 0 is the default value of a class that states nothing.
        stated = f"api {given!r}" if given not in (None, 0) else "no api"
        raise ConfigError(
            f"{package} adds {name} to {group} with {stated}; expected api {api}, the "
            "version of the protocol that this release supports; install a release of the package "
            "for it, see docs/extending.md"
        )
    distribution = "" if point.dist is None else point.dist.name
    return Extension(found, package, distribution, point.module)


def _package_of(point: EntryPoint) -> str:
    if point.dist is None:
        return f"the package of {point.value}"
    return f"{point.dist.name} {point.dist.version}"


def explain_failure(what: str, error: BaseException) -> ConfigError:
    """The error for code of others that failed; the log of the run has its traceback."""
    _log.warning("%s failed", what, exc_info=error)
    text = " ".join(f"{error}".split())[:300]
    return ConfigError(
        f"{what} failed with {type(error).__name__}: {text or 'no message'}; expected no error; "
        "report it to the authors of the package, or uninstall it"
    )


@dataclass(frozen=True)
class ExtensibleName(Checked):
    """One of several names, or a name that an installed package adds to a group."""

    known: tuple[str, ...]
    group: str

    def expected(self) -> str:
        """The expected values as a noun phrase, for messages and docs."""
        others = f"a name that an installed package adds to {self.group}"
        return f"{', '.join(self.known)} or {others}" if self.known else others

    def accepts(self, value: Any) -> bool:
        """True for one of the names; a name of a package is looked up without importing it."""
        return value in self.known or value in installed_names(self.group)

    def _check(self, value: Any) -> Any:
        if not self.accepts(value):
            added = ", ".join(installed_names(self.group)) or "none is installed"
            raise UnexpectedError(f"{self.expected()} ({added})")
        return value

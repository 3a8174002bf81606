"""Extensions that other authors provide in installed packages, as entry points of Python.

A package is imported only if a configuration names an extension of the package. The user sees an
error if a package is broken, or if a package supports another version of a protocol.
docs/extending.md describes the groups of entry points and their protocols.
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
    """An extension of an installed package.

    Attributes:
        found: the object that the entry point refers to.
        package: name and version of the package, for messages.
        distribution: name of the package in pip; empty if the name is not known.
        module: name of the module with the object.
    """

    found: Any
    package: str
    distribution: str
    module: str


def installed_names(group: str) -> tuple[str, ...]:
    """The sorted names that installed packages add to a group. No package is imported."""
    return tuple(sorted({each.name for each in entry_points(group=group)}))


def version_of(group: str, name: str) -> tuple[str, str] | None:
    """(package, version) of the package that adds a name to a group; None if no package adds the
    name.
    """
    found = [each.dist for each in entry_points(group=group, name=name) if each.dist is not None]
    return (found[0].name, found[0].version) if found else None


def load_extension(group: str, name: str) -> Extension:
    """Import an extension by its group of entry points and its name.

    Raises:
        ConfigError: no package or several packages add the name, the package cannot be imported, or
            it supports another version of the protocol.
    """
    points = sorted(entry_points(group=group, name=name), key=lambda each: each.value)
    packages = [_package_of(each) for each in points]
    if not points:
        others = ", ".join(installed_names(group)) or "none is installed"
        raise ConfigError(
            f"no installed package adds {name} to {group}; expected a name that an installed "
            f"package adds ({others}); correct the name, or install its package with kafka-redline"
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
        # 0 is the default of a class without its own value.
        stated = f"api {given!r}" if given not in (None, 0) else "no api"
        raise ConfigError(
            f"{package} adds {name} to {group} with {stated}; expected api {api}, the "
            "version of the protocol that this release supports; install another release of the "
            "package, see docs/extending.md"
        )
    distribution = "" if point.dist is None else point.dist.name
    return Extension(found, package, distribution, point.module)


def _package_of(point: EntryPoint) -> str:
    if point.dist is None:
        return f"the package of {point.value}"
    return f"{point.dist.name} {point.dist.version}"


def explain_failure(what: str, error: BaseException) -> ConfigError:
    """The error for a failure in code of an extension. The traceback is logged."""
    _log.warning("%s failed", what, exc_info=error)
    text = " ".join(f"{error}".split())[:300]
    return ConfigError(
        f"{what} failed with {type(error).__name__}: {text or 'no message'}; expected no error; "
        "report it to the authors of the package, or uninstall it"
    )


@dataclass(frozen=True)
class ExtensibleName(Checked):
    """A check that accepts several fixed names, and the names that installed packages add to a
    group.
    """

    known: tuple[str, ...]
    group: str

    def expected(self) -> str:
        """The expected values as a noun phrase, for messages and docs."""
        others = f"a name that an installed package adds to {self.group}"
        return f"{', '.join(self.known)} or {others}" if self.known else others

    def accepts(self, value: Any) -> bool:
        """True if the name is fixed or if an installed package adds it.

        The package is not imported.
        """
        return value in self.known or value in installed_names(self.group)

    def _check(self, value: Any) -> Any:
        if not self.accepts(value):
            added = ", ".join(installed_names(self.group)) or "none is installed"
            raise UnexpectedError(f"{self.expected()} ({added})")
        return value

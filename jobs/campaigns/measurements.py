"""The measurements by their names: each file of `jobs/measurements`, and those of packages."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

import jobs.measurements
from jobs.runs.measurement import Measurement
from metrics.common.errors import ConfigError
from metrics.common.extensions import (
    MEASUREMENTS,
    explain_failure,
    installed_names,
    load_extension,
)
from metrics.comparing.figures import FigureKind

_ATTRIBUTES = {"figure": FigureKind, "unit": str}
"""Attribute of a class of a package → its type; without it the answer fails after all trials."""


def own_names() -> tuple[str, ...]:
    """The names of the project's own measurements, sorted."""
    modules = pkgutil.iter_modules(jobs.measurements.__path__)
    return tuple(sorted(each.name.replace("_", "-") for each in modules))


def measurement_named(name: str) -> Measurement:
    """The measurement with this name.

    Raises:
        ConfigError: it is unknown, or the package that adds it is broken.
    """
    if name in own_names():
        return _own(name)
    if name not in installed_names(MEASUREMENTS):
        others = ", ".join(installed_names(MEASUREMENTS)) or "none is installed"
        raise ConfigError(
            f"asks is {name}; expected {', '.join(own_names())}, or a measurement of an installed "
            f"package ({others}); correct it, or install the package beside kafka-redline"
        )
    added = load_extension(MEASUREMENTS, name)
    if not (isinstance(added.found, type) and issubclass(added.found, Measurement)):
        raise ConfigError(
            f"{added.package} adds {name} to {MEASUREMENTS}, which leads to no class of "
            "jobs.runs.measurement.Measurement; expected one; report it to the authors of the "
            "package, or uninstall it"
        )
    if getattr(added.found, "name", None) != name:
        raise ConfigError(
            f"{added.package} adds {name} to {MEASUREMENTS}, and its class has the name "
            f"{getattr(added.found, 'name', None)!r}; expected the same name; report it to the "
            "authors of the package, or uninstall it"
        )
    for attribute, kind in _ATTRIBUTES.items():
        given = getattr(added.found, attribute, None)
        if not isinstance(given, kind):
            raise ConfigError(
                f"{added.package} adds {name} to {MEASUREMENTS}, and its class has "
                f"{f'no {attribute}' if given is None else f'the {attribute} {given!r}'}; expected "
                f"one of type {kind.__name__}, see docs/extending.md; report it to the authors of "
                "the package, or uninstall it"
            )
    try:
        found: Measurement = added.found()
    except Exception as error:
        raise explain_failure(f"the measurement {name} of {added.package}", error) from error
    found.package = added.package
    return found


@cache
def _own(name: str) -> Measurement:
    module = importlib.import_module(f"{jobs.measurements.__name__}.{name.replace('-', '_')}")
    found: type[Measurement] = module.MEASUREMENT
    return found()

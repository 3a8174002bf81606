"""The check of installed packages that add measurements, sources or clients."""

from __future__ import annotations

from jobs.checks.finding import Finding, ok, warning
from metrics.common.errors import ConfigError
from metrics.common.extensions import APIS, installed_names, load_extension

CHECK = "packages of others"


def extension_findings() -> list[Finding]:
    """A finding for each name that a package adds; a broken one matters where it is used."""
    return [_finding(group, name) for group in APIS for name in installed_names(group)]


def _finding(group: str, name: str) -> Finding:
    try:
        added = load_extension(group, name)
    except ConfigError as error:
        return warning(CHECK, str(error))
    return ok(CHECK, f"{name} of {added.package} ({group})")

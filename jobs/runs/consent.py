"""Asking before a cluster is loaded that others may use."""

from __future__ import annotations

import sys

from jobs.config import Configuration
from jobs.console.events import Reporter
from search.errors import ConfigError


def require_consent(
    config: Configuration,
    reporter: Reporter,
    yes: bool,
    deed: str = "load it until it is overloaded",
) -> None:
    """Ask, unless it is a testbed or the answer was given.

    Args:
        deed: what would be done with it.

    Raises:
        ConfigError: there is nobody to ask, or the answer is no.
    """
    servers = config.cluster.bootstrap_servers
    if yes or servers is None:
        return
    told = f"cluster {config.cluster.name} at {', '.join(servers)} is no testbed"
    if not sys.stdin.isatty():
        raise ConfigError(
            f"{told}, and this would {deed}; expected --yes, as nobody can be asked; see what "
            "it would do with --dry-run"
        )
    if not reporter.confirm(f"{told}: {deed}?"):
        raise ConfigError(f"{told}, and the answer was no; nothing was loaded")

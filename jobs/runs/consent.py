"""Asking before a cluster is loaded that others may use."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable

from jobs.config import Configuration
from jobs.console.events import PlanShown, Reporter
from metrics.common.errors import ConfigError


def require_consent(
    configs: Iterable[Configuration],
    reporter: Reporter,
    yes: bool,
    action: str = "load it until it is overloaded",
    plan: Callable[[], PlanShown] | None = None,
) -> None:
    """Ask for each cluster once, unless only this run uses it or the answer was given.

    Args:
        action: what would be done with it.
        plan: what whoever is asked has to know first, such as time and bytes.

    Raises:
        ConfigError: there is nobody to ask, or the answer is no.
    """
    clusters = {
        config.cluster.bootstrap_servers: config.cluster.name
        for config in configs
        if config.cluster.bootstrap_servers is not None and not yes
    }
    for servers, name in clusters.items():
        told = f"cluster {name} at {', '.join(servers)} may have other users"
        if not sys.stdin.isatty():
            raise ConfigError(
                f"{told}, and this would {action}; expected --yes, as nobody can be asked; see what "
                "it would do with --dry-run"
            )
        if plan is not None:
            reporter.report(plan())
            plan = None  # once is enough
        if not reporter.confirm(f"{told}: {action}?"):
            raise ConfigError(f"{told}, and the answer was no; nothing was loaded")

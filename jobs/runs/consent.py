"""The user's consent to load a cluster that others may use."""

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
    """Ask for consent once for each cluster with other users, unless --yes was given.

    Args:
        action: what the run does with the cluster.
        plan: makes the plan that is shown before the question, such as time and bytes.

    Raises:
        ConfigError: standard input is no terminal, or the answer is no.
    """
    clusters = {
        config.cluster.bootstrap_servers: config.cluster.name
        for config in configs
        if config.cluster.bootstrap_servers is not None and not yes
    }
    for servers, name in clusters.items():
        cluster = f"cluster {name} at {', '.join(servers)} may have other users"
        if not sys.stdin.isatty():
            raise ConfigError(
                f"{cluster}, and this run would {action}; expected --yes, as standard input is no "
                "terminal; check the plan with --dry-run, then add --yes"
            )
        if plan is not None:
            reporter.report(plan())
            plan = None  # show it once
        if not reporter.confirm(f"{cluster}: {action}?"):
            raise ConfigError(f"{cluster}, and the answer was no; nothing was loaded")

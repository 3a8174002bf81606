"""The launch of a run from its command line: the dry run, the question for consent, and the run."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from jobs.cluster.opening import require_startable
from jobs.cluster.owner_topic import OWNER_TOPIC
from jobs.config import Configuration
from jobs.console.events import PlanShown, Reporter
from jobs.live.followers import reporter_of
from jobs.runs.context_factory import RunOrder
from jobs.runs.lifecycle import Body, execute, new_run_id
from jobs.runs.options import RunOptions
from jobs.spark.compatibility import require_supported_spark
from jobs.trials.context import Session
from metrics.common.errors import ConfigError

OVERLOAD = "load it until it is overloaded"
OWNER_NOTE = (
    f"bounds of the cluster's owner (topic {OWNER_TOPIC}) are read at the start of the run, and "
    "may lower these figures"
)


def launch(
    body: Body,
    options: RunOptions,
    *,
    action: str = OVERLOAD,
    run_id: str | None = None,
    resumes: bool = False,
    check: Callable[[], None] | None = None,
    session: Session | None = None,
) -> int:
    """Launch a run with the options of its command line, and return the exit code. The user is
    asked for consent after all checks that are possible before brokers start. A dry run only shows
    the plan.

    Args:
        body: the job of the run.
        options: the options of the command line.
        action: what the run does to a cluster; the user is asked to agree to this.
        run_id: the id of the run; a new id by default.
        resumes: whether the run may continue an earlier part.
        check: raises an error if this machine cannot carry out the run; a dry run does not call it.
        session: an open session, which stays open after the run; None to open a session.

    Raises:
        ConfigError: this release of Spark is not supported, a setting is invalid, or the user does
            not agree to the load.
        RedlineError: see `execute`.
    """
    with reporter_of(options.metrics_at, options.notify_from) as reporter:
        require_supported_spark()
        for config in body.loaded:
            require_startable(config.cluster)

        def plan() -> PlanShown:
            found = body.plan(options.out)
            others = any(not config.cluster.is_exclusive for config in body.loaded)
            return PlanShown(
                replace(found, notes=(*found.notes, *([OWNER_NOTE] if others else [])))
            )

        if options.dry_run:
            reporter.report(plan())
            return 0
        require_consent(body.loaded, reporter, options.yes, action, plan)
        if check is not None:
            check()
        named = run_id or new_run_id(time.time())
        order = RunOrder(**vars(options), reporter=reporter, run_id=named, resumes=resumes)
        return execute(body, order, session=session)


def require_consent(
    configs: Iterable[Configuration],
    reporter: Reporter,
    yes: bool,
    action: str = OVERLOAD,
    plan: Callable[[], PlanShown] | None = None,
) -> None:
    """Ask for consent, once for each cluster with other users; with --yes, ask no question.

    Args:
        configs: the configurations of all loaded clusters.
        reporter: shows the plan and asks the question.
        yes: whether --yes was given.
        action: what the run does with the cluster.
        plan: computes the plan to show before the first question; None to show no plan.

    Raises:
        ConfigError: standard input is not a terminal, or the answer is no.
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
                f"{cluster}, and this run would {action}; expected --yes, because standard input "
                "is not a terminal; check the plan with --dry-run, then add --yes"
            )
        if plan is not None:
            reporter.report(plan())
            plan = None  # shown once
        if not reporter.confirm(f"{cluster}: {action}?"):
            raise ConfigError(f"{cluster}, and the answer was no; nothing was loaded")

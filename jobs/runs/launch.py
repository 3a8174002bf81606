"""From a command line to a run: its plan shown, or consent asked for and all of it done."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from jobs.cluster.opening import require_startable
from jobs.config import Configuration
from jobs.console.events import Plan, PlanShown, Reporter
from jobs.live.followers import reporter_of
from jobs.runs.consent import require_consent
from jobs.runs.lifecycle import Body, RunOrder, execute, new_run_id
from jobs.runs.options import RunOptions
from jobs.trials.context import Session

OVERLOAD = "load it until it is overloaded"


def may_begin(
    configs: Sequence[Configuration],
    plan: Callable[[], Plan],
    options: RunOptions,
    reporter: Reporter,
    action: str = OVERLOAD,
) -> bool:
    """Check what can be checked before anything is started, and ask for consent.

    False where the plan is all that was asked for; it has been shown then.

    Raises:
        ConfigError: a setting is wrong, or consent is missing.
    """
    for config in configs:
        require_startable(config.cluster)
    if options.dry_run:
        reporter.report(PlanShown(plan()))
        return False
    require_consent(configs, reporter, options.yes, action, lambda: PlanShown(plan()))
    return True


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
    """Carry out a run as its command line asks; the exit code.

    Args:
        body: what the run does.
        options: the command line.
        action: what would be done with a cluster, for whoever is asked for consent.
        run_id: of a run that has a name; a new one by default.
        resumes: whether a run of this name may have been begun before.
        check: raises where this machine cannot carry it out; not asked for a plan.
        session: that is open already and stays so; None to open one.

    Raises:
        ConfigError: a setting is wrong, or consent is missing.
        RedlineError: see `execute`.
    """
    with reporter_of(options.metrics_at, options.notify_from) as reporter:
        configs = tuple(body.configurations.values())
        if not may_begin(configs, partial(body.plan, options.out), options, reporter, action):
            return 0
        if check is not None:
            check()
        order = RunOrder(
            reporter,
            options.out.absolute(),
            options.tables_or_default,
            run_id or new_run_id(time.time()),
            options.slots,
            resumes,
            options.locks,
            options.json_file,
        )
        return execute(body, order, session=session)

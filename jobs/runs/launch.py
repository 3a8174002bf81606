"""From a command line to a run: its plan shown, or consent asked for and all of it done."""

from __future__ import annotations

import time
from collections.abc import Callable

from jobs.cluster.opening import require_startable
from jobs.console.events import PlanShown
from jobs.console.printing import make_reporter
from jobs.runs.asked import Asked
from jobs.runs.consent import require_consent
from jobs.runs.lifecycle import Body, RunOrder, execute, new_run_id

OVERLOAD = "load it until it is overloaded"


def launch(
    body: Body,
    asked: Asked,
    *,
    deed: str = OVERLOAD,
    run_id: str | None = None,
    resumes: bool = False,
    check: Callable[[], None] | None = None,
) -> int:
    """Carry out a run as its command line asks; the exit code.

    Args:
        body: what the run does.
        asked: the command line.
        deed: what would be done with a cluster, for whoever is asked for consent.
        run_id: of a run that has a name; a new one by default.
        resumes: whether a run of this name may have been begun before.
        check: raises where this machine cannot carry it out; not asked for a plan.

    Raises:
        ConfigError: a testbed's settings are wrong, or nobody consents.
        RedlineError: see `execute`.
    """
    configs = tuple(body.configurations.values())
    with make_reporter() as reporter:
        for config in configs:
            require_startable(config.cluster)
        if asked.dry_run:
            reporter.report(PlanShown(body.plan(asked.out)))
            return 0
        require_consent(configs, reporter, asked.yes, deed)
        if check is not None:
            check()
        out = asked.out.absolute()
        order = RunOrder(
            reporter,
            out,
            asked.tables or str(out / "tables"),
            run_id or new_run_id(time.time()),
            asked.slots,
            resumes,
            asked.locks,
        )
        return execute(body, order)

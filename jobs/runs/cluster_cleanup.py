"""Cleanup of what killed runs left on a cluster."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial

from jobs.cluster.admin import KafkaAdmin
from jobs.cluster.leftovers import Leftover, delete_leftovers, leftovers
from jobs.cluster.lock import RunLocks, holder_text
from jobs.cluster.opening import open_cluster
from jobs.config.loading import load_cluster
from jobs.console.events import Reporter, Table, note, warn
from jobs.console.printing import make_reporter
from metrics.common.errors import ConfigError, RedlineError
from metrics.units import UNKNOWN, iso_utc


def clean_up_cluster(
    cluster: str,
    overrides: Sequence[str],
    run_id: str | None,
    age_s: float | None,
    *,
    deletes: bool,
    locks: bool,
) -> int:
    """List and delete leftover topics and consumer groups of runs; return the exit code.

    Args:
        cluster, overrides: as in `load_cluster`.
        run_id: selects the leftovers of one run; None for all runs.
        age_s: selects runs that began at least this time ago [s]; None for all.
        deletes: whether to delete the selected leftovers, and not only to list them.
        locks: whether to take the cluster's lock first.

    Raises:
        ConfigError: the cluster runs only during a run, or its file is invalid.
        TryLaterError: another run holds the lock.
        RedlineError: some leftovers could not be deleted.
    """
    config = load_cluster(cluster, overrides)
    if config.starts_brokers:
        raise ConfigError(
            f"cluster {config.name} is started by each run and ends with it; expected a "
            "cluster with running brokers; name one"
        )
    with make_reporter() as reporter, ExitStack() as stack:
        opened = open_cluster(config, reporter, stack)
        if locks:
            held = RunLocks(holder_text("cleanup", time.time()))
            held.take(opened, partial(warn, reporter), stack).require()
        everything = leftovers(opened.admin.topic_names(), opened.admin.empty_groups())
        chosen = [each for each in everything if _is_chosen(each, run_id, age_s)]
        if chosen:
            reporter.report(_table(chosen))
        if not chosen or not deletes:
            hint = "; --yes deletes them" if chosen else ""
            note(reporter, f"{len(chosen)} of {len(everything)} leftovers of runs match{hint}")
            return 0
        return _delete(opened.admin, chosen, reporter)


def _is_chosen(each: Leftover, run_id: str | None, age_s: float | None) -> bool:
    if run_id is not None and not each.is_of(run_id):
        return False
    if age_s is None:
        return True
    if each.begun_s is None:
        return run_id is not None
    return time.time() - each.begun_s > age_s


def _table(found: Sequence[Leftover]) -> Table:
    rows = (
        (each.kind, each.name, UNKNOWN if each.begun_s is None else iso_utc(each.begun_s))
        for each in found
    )
    return Table("Leftovers of runs", ("kind", "name", "run began"), tuple(rows))


def _delete(admin: KafkaAdmin, chosen: Sequence[Leftover], reporter: Reporter) -> int:
    troubles = delete_leftovers(admin, chosen)
    left = len(troubles)
    for trouble in troubles:
        warn(reporter, trouble)
    note(reporter, f"deleted {len(chosen) - left} of {len(chosen)} leftovers")
    if left:
        raise RedlineError(
            f"{left} of {len(chosen)} leftovers could not be deleted; the reasons are above"
        )
    return 0

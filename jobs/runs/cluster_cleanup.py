"""Clearing up what runs that died left on a cluster."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial

from jobs.cluster.admin import KafkaAdmin
from jobs.cluster.leftovers import Leftover, delete_leftovers, leftovers
from jobs.cluster.lock import RunLocks, holder_words
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
    """List topics and consumer groups of runs, and delete them; the exit code.

    Args:
        cluster, overrides: as of `load_cluster`.
        run_id: whose they are; None for all runs.
        age_s: how long ago their run began, at least [s]; None for however long.
        deletes: whether they are deleted, and not only listed.
        locks: whether the cluster's lock is taken first.

    Raises:
        ConfigError: each run starts the cluster itself, or its file is wrong.
        TryLaterError: another run holds the lock.
        RedlineError: some of it could not be deleted.
    """
    config = load_cluster(cluster, overrides)
    if config.starts_brokers:
        raise ConfigError(
            f"cluster {config.name} is a testbed, and what its runs make ends with it; expected "
            "brokers that run already; name their cluster"
        )
    with make_reporter() as reporter, ExitStack() as stack:
        opened = open_cluster(config, reporter, stack)
        if locks:
            held = RunLocks(holder_words("cleanup", time.time()))
            held.take(opened, partial(warn, reporter), stack).require()
        everything = leftovers(opened.admin.topic_names(), opened.admin.empty_groups())
        chosen = [each for each in everything if _is_chosen(each, run_id, age_s)]
        if chosen:
            reporter.report(_table(chosen))
        if not chosen or not deletes:
            told = "; --yes deletes it" if chosen else ""
            note(reporter, f"{len(chosen)} of {len(everything)} leftovers of runs match{told}")
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
    return Table("What runs left", ("what", "name", "run began"), tuple(rows))


def _delete(admin: KafkaAdmin, chosen: Sequence[Leftover], reporter: Reporter) -> int:
    troubles = delete_leftovers(admin, chosen)
    left = len(troubles)
    for trouble in troubles:
        warn(reporter, trouble)
    note(reporter, f"deleted {len(chosen) - left} of {len(chosen)}")
    if left:
        raise RedlineError(f"{left} of {len(chosen)} could not be deleted; see above why")
    return 0

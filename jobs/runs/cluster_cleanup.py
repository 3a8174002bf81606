"""Cleanup of topics and consumer groups that killed runs left on a cluster."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial

from jobs.cluster.admin import KafkaAdmin
from jobs.cluster.lock import RunLocks, holder_text
from jobs.cluster.opening import OpenCluster, open_cluster
from jobs.cluster.topic_plan import Leftover, delete_leftovers, leftovers
from jobs.config.loading import load_cluster
from jobs.console.events import Reporter, Table, note, warn
from jobs.console.printing import make_reporter
from jobs.engine.network.options import join_address
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
    """List leftover topics and consumer groups of runs, and delete them on request; return the exit
    code.

    Args:
        cluster, overrides: see `load_cluster`.
        run_id: selects the leftovers of one run; None for all runs.
        age_s: selects runs that began at least this time ago [s]; None for all runs.
        deletes: whether to delete the selected leftovers; otherwise they are only listed.
        locks: whether to take the cluster's lock first.

    Raises:
        ConfigError: the cluster exists only during a run, or the cluster's file is invalid.
        TryLaterError: another run has the lock.
        RedlineError: some leftovers could not be deleted.
    """
    config = load_cluster(cluster, overrides)
    if config.starts_brokers:
        raise ConfigError(
            f"cluster {config.name} is started by each run and ends with the run; expected a "
            "cluster with running brokers; name such a cluster with --cluster"
        )
    with make_reporter() as reporter, ExitStack() as stack:
        opened = open_cluster(config, reporter, stack)
        if locks:
            held = RunLocks(holder_text("cleanup", time.time()))
            held.take(opened, partial(warn, reporter), stack).require()
        everything = leftovers(opened.admin, config.name_prefix, config.topics)
        _name_kept(everything, opened, run_id, locks, reporter)
        chosen = [each for each in everything if _is_chosen(each, run_id, age_s, locks)]
        if chosen:
            rows = tuple(
                (each.kind, each.name, UNKNOWN if each.begun_s is None else iso_utc(each.begun_s))
                for each in chosen
            )
            reporter.report(Table("Leftovers of runs", ("kind", "name", "run began"), rows))
        if not chosen or not deletes:
            hint = "; --yes deletes them" if chosen else ""
            note(reporter, f"{len(chosen)} of {len(everything)} leftovers of runs match{hint}")
            return 0
        if left := delete_and_report(opened.admin, chosen, reporter):
            raise RedlineError(
                f"{left} of {len(chosen)} leftovers could not be deleted; the reasons are above"
            )
        return 0


def _name_kept(
    found: Sequence[Leftover],
    opened: OpenCluster,
    run_id: str | None,
    locks: bool,
    reporter: Reporter,
) -> None:
    """Report the topics and groups that are kept although they have names like those of a run. Also
    report the commands that delete these topics and groups.
    """
    server = next(join_address(*each) for each in opened.info.addresses.values())
    unproven = [each for each in found if not each.run_id]
    for each in unproven:
        text = f"{each.kind} {each.name} is kept, because nothing proves that a run created it"
        note(reporter, f"{text}; if it is yours: {each.command(server)}")
    known = {each.run_id for each in found if each.run_id}
    over = {each.run_id for each in found if locks and each.is_locked}
    for run in sorted(known - over) if run_id is None else ():
        text = f"leftovers of run {run} are kept, because the run may be active without the lock"
        note(reporter, f"{text}; once this run has ended, --run {run} selects these leftovers")


def _is_chosen(each: Leftover, run_id: str | None, age_s: float | None, locks: bool) -> bool:
    if not each.run_id or (run_id is not None and each.run_id != run_id):
        return False
    if run_id is None and not (locks and each.is_locked):
        return False
    if age_s is None:
        return True
    if each.begun_s is None:
        return run_id is not None
    return time.time() - each.begun_s > age_s


def delete_and_report(
    admin: KafkaAdmin, chosen: Sequence[Leftover], reporter: Reporter, origin: str = "of runs"
) -> int:
    """Delete leftovers and report the result; return the number of leftovers that remain.

    Args:
        admin: the client for requests to the cluster.
        chosen: the leftovers to delete.
        reporter: shows the result, and a warning for each leftover that remains.
        origin: the origin of the leftovers, for the message.
    """
    troubles = delete_leftovers(admin, chosen)
    for trouble in troubles:
        warn(reporter, trouble)
    deleted = len(chosen) - len(troubles)
    note(reporter, f"deleted {deleted} of {len(chosen)} leftovers {origin}")
    return len(troubles)

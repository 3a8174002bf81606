"""`redline cleanup`: lists what runs that died left on a cluster, and deletes it.

The same as a script for schedulers: spark-submit --py-files WHEEL jobs/cleanup.py …
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial

import click

from jobs.cluster.admin import KafkaAdmin
from jobs.cluster.leftovers import Leftover, delete_leftovers, leftovers
from jobs.cluster.lock import RunLocks, holder_words
from jobs.cluster.opening import open_cluster
from jobs.config.loading import load_cluster
from jobs.console.events import Reporter, Table, note, warn
from jobs.console.printing import make_reporter
from jobs.entry import run
from jobs.options import RunId, duration_s, lock_option
from metrics.units import UNKNOWN, iso_utc
from search.errors import ConfigError, RedlineError


@click.command("cleanup")
@click.option("--cluster", required=True, metavar="NAME|FILE",
              help="The brokers: a file of conf/clusters, or a path.")  # fmt: skip
@click.option("--set", "overrides", multiple=True, metavar="FILE.KEY=VALUE",
              help="Override a key of the cluster's file; may be repeated.")  # fmt: skip
@click.option("--run", "run_id", type=RunId(), metavar="RUN_ID",
              help="Only what this run left.  [default: all runs]")  # fmt: skip
@click.option("--older-than", metavar="TIME",
              help="Only what runs left that began longer ago, such as 24h; without --run what "
                   "has no time in its name stays.")  # fmt: skip
@click.option("--yes", is_flag=True, help="Delete it; else it is only listed.")
@lock_option
def cleanup(
    cluster: str,
    overrides: tuple[str, ...],
    run_id: str | None,
    older_than: str | None,
    yes: bool,
    locks: bool,
) -> int:
    """List what runs that died left on a cluster, and delete it with --yes.

    Topics and consumer groups of runs, known by the form of their names; nothing else is touched.
    Takes the cluster's lock, so that nothing of a run on its way is deleted (exit code 75).
    """
    config = load_cluster(cluster, overrides)
    if config.testbed is not None:
        raise ConfigError(
            f"cluster {config.name} is a testbed, and what its runs make ends with it; expected "
            "brokers that run already; name their cluster"
        )
    age_s = None if older_than is None else duration_s(older_than)
    with make_reporter() as reporter, ExitStack() as stack:
        opened = open_cluster(config, reporter, stack)
        if locks:
            held = RunLocks(holder_words("cleanup", time.time()))
            held.take(opened, partial(warn, reporter), stack).require()
        everything = leftovers(opened.admin.topic_names(), opened.admin.empty_groups())
        chosen = [each for each in everything if _is_chosen(each, run_id, age_s)]
        if chosen:
            reporter.report(_table(chosen))
        if not chosen or not yes:
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


if __name__ == "__main__":
    run(cleanup)

"""`redline cleanup`: lists and deletes what killed runs left on a cluster.

Schedulers run it as a script: spark-submit --py-files WHEEL jobs/cleanup.py …
"""

from __future__ import annotations

import click

from jobs.entry import run
from jobs.options import RunId, duration_s, lock_option


@click.command("cleanup")
@click.option("--cluster", required=True, metavar="NAME|FILE",
              help="The brokers: a file of conf/clusters, or a path.")  # fmt: skip
@click.option("--set", "overrides", multiple=True, metavar="FILE.KEY=VALUE",
              help="Override a key of the cluster's file; may be repeated.")  # fmt: skip
@click.option("--run", "run_id", type=RunId(), metavar="RUN_ID",
              help="Select only what this run left.  [default: all runs]")  # fmt: skip
@click.option("--older-than", metavar="TIME",
              help="Select only what is left of runs that began longer ago, such as 24h; without "
                   "--run, names without a time are kept.")  # fmt: skip
@click.option("--yes", is_flag=True, help="Delete what is listed.")
@lock_option
def cleanup(
    cluster: str,
    overrides: tuple[str, ...],
    run_id: str | None,
    older_than: str | None,
    yes: bool,
    locks: bool,
) -> int:
    """List what killed runs left on a cluster; --yes deletes it.

    These are topics and consumer groups, which are recognized by their names; everything else on
    the cluster stays. The command takes the cluster's lock, so that it deletes nothing of a
    running run: exit code 75 when another run holds the lock.
    """
    # Imported here, as --help and shell completion need none of it.
    from jobs.runs.cluster_cleanup import clean_up_cluster

    age_s = None if older_than is None else duration_s(older_than)
    return clean_up_cluster(cluster, overrides, run_id, age_s, deletes=yes, locks=locks)


if __name__ == "__main__":
    run(cleanup)

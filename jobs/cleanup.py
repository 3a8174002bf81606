"""`redline cleanup`: lists what runs that died left on a cluster, and deletes it.

The same as a script for schedulers: spark-submit --py-files WHEEL jobs/cleanup.py …
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
    # Not at the top: --help, and a shell that completes a word, need none of it.
    from jobs.runs.cluster_cleanup import clean_up_cluster

    age_s = None if older_than is None else duration_s(older_than)
    return clean_up_cluster(cluster, overrides, run_id, age_s, deletes=yes, locks=locks)


if __name__ == "__main__":
    run(cleanup)

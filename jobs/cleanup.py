"""`redline cleanup`: lists and deletes topics and groups that killed runs left on a cluster.

Schedulers can run this module as a script: spark-submit --py-files WHEEL jobs/cleanup.py …
"""

from __future__ import annotations

from typing import Any

import click

from jobs.entry import run
from jobs.options import Duration, RunId, cluster_options, lock_option


@click.command("cleanup")
@cluster_options
@click.option("--run", "run_id", type=RunId(), metavar="RUN_ID",
              help="Select only topics and groups of this run.  [default: all runs]")  # fmt: skip
@click.option("--older-than", "age_s", type=Duration(), metavar="TIME",
              help="Select only topics and groups of runs that began longer ago than this, such as "
                   "24h. Names without a time are selected only with --run.")  # fmt: skip
@click.option("--yes", is_flag=True, help="Delete the listed topics and groups.")
@lock_option
def cleanup(yes: bool, **selected: Any) -> int:
    """List topics and consumer groups that killed runs left on a cluster; --yes deletes them.

    The command recognizes the topics and groups by their names, and touches nothing else on the
    cluster. The command takes the cluster's lock, so no topic of an active run is deleted. The exit
    code is 75 if another run has the lock.
    """
    # Imported here, because --help and shell completion do not need these modules.
    from jobs.runs.cluster_cleanup import clean_up_cluster

    return clean_up_cluster(deletes=yes, **selected)


if __name__ == "__main__":
    run(cleanup)

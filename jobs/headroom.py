"""`redline headroom`: how many times today's traffic fits into a cluster, without any load.

Schedulers run it as a script: spark-submit --py-files WHEEL jobs/headroom.py …
"""

from __future__ import annotations

from typing import Any

import click

from jobs.entry import run
from jobs.options import Amount, ConfName, Duration, RunId, json_option, out_option, tables_option


@click.command("headroom")
@click.option("--cluster", type=ConfName("clusters"), required=True, metavar="NAME|FILE",
              help="The running cluster: a file of conf/clusters, or a path.")  # fmt: skip
@click.option("--run", "run_id", type=RunId(), metavar="RUN_ID",
              help="The run that measured this cluster's limit.  "
                   "[default: an estimate by thresholds]")  # fmt: skip
@click.option("--goal", metavar="NAME",
              help="The run's goal, if it has several; for an estimate a file of conf/goals.  "
                   "[default: the only one, or default]")  # fmt: skip
@click.option("--window", "window_s", type=Duration(), metavar="TIME",
              help="Time to watch the brokers, or to read from a Prometheus server.  "
                   "[default: 60s, or 24h of a server]")  # fmt: skip
@click.option("--fail-below", type=Amount(min=0, min_open=True), metavar="TIMES",
              help="End with exit code 4 when today's traffic fits fewer times.")  # fmt: skip
@click.option("--set", "overrides", multiple=True, metavar="FILE.KEY=VALUE",
              help="Override a key, such as cluster.link_mbit_per_s=10000; may be "
                   "repeated.")  # fmt: skip
@out_option
@tables_option
@json_option
def headroom(**given: Any) -> int:
    """Answer how many times today's traffic fits into a cluster, and until when.

    It loads nothing: it watches the brokers for a minute, or reads the busiest part of the last
    day from a Prometheus server, and compares it with the limit of a run. Each call adds rows to
    the table headroom; with two weeks of them it states when the cluster is full.

    Exit codes: 4 with less headroom than --fail-below, 3 where nothing can be concluded.
    """
    # Imported here, as --help and shell completion need none of it.
    from jobs.features.headroom.body import HeadroomOrder, show_headroom

    return show_headroom(HeadroomOrder(**given))


if __name__ == "__main__":
    run(headroom)

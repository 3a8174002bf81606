"""`redline headroom`: estimates without a load test how many times today's traffic fits into a
cluster.

Schedulers can run this module as a script: spark-submit --py-files WHEEL jobs/headroom.py …
"""

from __future__ import annotations

from typing import Any

import click

from jobs.entry import run
from jobs.options import (
    Amount,
    Duration,
    RunId,
    cluster_options,
    json_option,
    out_option,
    tables_option,
)


@click.command("headroom")
@cluster_options
@click.option("--run", "run_id", type=RunId(), metavar="RUN_ID",
              help="The run that measured this cluster's limit.  "
                   "[default: none; the limit is estimated from thresholds]")  # fmt: skip
@click.option("--goal", metavar="NAME",
              help="For a run with several goals, the name of one of them. For an estimate, a "
                   "name in conf/goals.  "
                   "[default: the run's only goal, or the goal default]")  # fmt: skip
@click.option("--window", "window_s", type=Duration(), metavar="TIME",
              help="Length of the traffic that is watched on the brokers, or that is read from a "
                   "Prometheus server.  [default: 60s on brokers, 24h from a server]")  # fmt: skip
@click.option("--fail-below", type=Amount(min=0, min_open=True), metavar="TIMES",
              help="End with exit code 4 if the headroom is below this value.")  # fmt: skip
@out_option
@tables_option
@json_option
def headroom(**given: Any) -> int:
    """Answer how many times today's traffic fits into a cluster, and when it will be full.

    The job offers no load. The job watches the brokers for a minute, or reads the busiest part of
    the last day from a Prometheus server, and compares this traffic with the limit of a run. Each
    call adds rows to the table headroom. If the table has rows of two weeks, the job also forecasts
    the date on which the cluster will be full.

    Exit codes: 4 if the headroom is less than --fail-below, 3 if there is no conclusion.
    """
    # Imported here, because --help and shell completion do not need these modules.
    from jobs.features.headroom.estimate import HeadroomOrder, show_headroom

    return show_headroom(HeadroomOrder(**given))


if __name__ == "__main__":
    run(headroom)

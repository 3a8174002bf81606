"""`redline learn`: writes a workload from the traffic that producers really send.

Schedulers run it as a script: spark-submit --py-files WHEEL jobs/learn.py …
"""

from __future__ import annotations

from typing import Any

import click

from jobs.entry import run
from jobs.options import Amount, ConfName, Count, Duration, OutputFile, json_option

MOMENTS = ("peak", "mean", "now")
PARTS_MAX = 20


@click.command("learn")
@click.option("--cluster", required=True, type=ConfName("clusters"), metavar="NAME|FILE",
              help="The cluster: a file of conf/clusters, or a path.")  # fmt: skip
@click.option("--topics", required=True, multiple=True, metavar="REGEX",
              help="The topics whose whole names match; may be repeated.")  # fmt: skip
@click.option("--out", required=True, type=OutputFile(), metavar="FILE",
              help="The workload to write, such as my-traffic.yaml.")  # fmt: skip
@click.option("--scale-1", "moment", type=click.Choice(MOMENTS), default="peak", show_default=True,
              help="The rate of the workload: the busiest hour of the last day, its mean, or the "
                   "rate of the time that is read.")  # fmt: skip
@click.option("--decode", "decodes", is_flag=True,
              help="Decode messages for the sizes of keys, values and headers; no content is "
                   "kept.")  # fmt: skip
@click.option("--read-mb-per-s", type=Amount(0, 1_000, min_open=True), default=5.0,
              show_default=True, help="Highest rate of reading.")  # fmt: skip
@click.option("--duration", "duration_s", type=Duration(), default="60s", show_default=True,
              metavar="TIME", help="Longest time of reading.")  # fmt: skip
@click.option("--parts", "parts_max", type=Count(1, PARTS_MAX), default=6, show_default=True,
              help="Parts of the mix at most; topics that look alike are one part.")  # fmt: skip
@click.option("--set", "overrides", multiple=True, metavar="FILE.KEY=VALUE",
              help="Override a key of the cluster's file; may be repeated.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Print what would be read, and read nothing.")
@click.option("--force", is_flag=True, help="Overwrite existing files.")
@json_option
def learn(read_mb_per_s: float, duration_s: float, decodes: bool, **given: Any) -> int:
    """Write a workload from the traffic that producers really send to a cluster.

    It reads recent data within a rate and a time, joins no group and commits nothing. It keeps
    only counts and sizes of messages.
    """
    # Imported here, as --help and shell completion need none of it.
    from jobs.console.printing import make_reporter
    from jobs.features.learn.learning import LearnOrder
    from jobs.features.learn.learning import learn as make
    from jobs.features.learn.survey import Bounds

    bounds = Bounds(read_mb_per_s * 1e6, duration_s, decodes)
    order = LearnOrder(bounds=bounds, **given)
    with make_reporter() as reporter:
        return make(order, reporter)


if __name__ == "__main__":
    run(learn)

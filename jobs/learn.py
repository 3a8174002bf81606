"""`redline learn`: writes a workload from the traffic of production.

Schedulers can run this module as a script: spark-submit --py-files WHEEL jobs/learn.py …
"""

from __future__ import annotations

from typing import Any

import click

from jobs.entry import run
from jobs.options import Amount, Count, Duration, OutputFile, cluster_options, json_option

MOMENTS = ("peak", "mean", "now")
PARTS_MAX = 20


@click.command("learn")
@cluster_options
@click.option("--topics", required=True, multiple=True, metavar="REGEX",
              help="Regular expression for whole topic names; may be repeated.")  # fmt: skip
@click.option("--out", required=True, type=OutputFile(), metavar="FILE",
              help="The workload file to write, such as my-traffic.yaml.")  # fmt: skip
@click.option("--scale-1", "moment", type=click.Choice(MOMENTS), default="peak", show_default=True,
              help="The rate of scale 1. peak: the rate in the busiest hour of the last day. "
                   "mean: the mean rate of the last day. now: the rate in the time range that is "
                   "read.")  # fmt: skip
@click.option("--decode", "decodes", is_flag=True,
              help="Decode messages to count the sizes of keys, values and headers. No content is "
                   "stored.")  # fmt: skip
@click.option("--read-mb-per-s", type=Amount(0, 1_000, min_open=True), default=5.0,
              show_default=True, help="Maximum rate of reading.")  # fmt: skip
@click.option("--duration", "duration_s", type=Duration(), default="60s", show_default=True,
              metavar="TIME", help="Maximum time of reading.")  # fmt: skip
@click.option("--parts", "parts_max", type=Count(1, PARTS_MAX), default=6, show_default=True,
              help="Maximum number of parts of the mix. Similar topics form one part.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Print the topics and the bounds, and read nothing.")
@click.option("--force", is_flag=True, help="Overwrite existing files.")
@json_option
def learn(read_mb_per_s: float, duration_s: float, decodes: bool, **given: Any) -> int:
    """Write a workload from the traffic that producers really send to a cluster.

    The job reads recent data with a limited rate and a limited time. The job joins no consumer
    group, commits no offsets, and stores only counts and sizes of messages.
    """
    # Imported here, because --help and shell completion do not need these modules.
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

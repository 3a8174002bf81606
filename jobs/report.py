"""`redline report`: writes the HTML report of a run again.

Schedulers can run this module as a script: spark-submit --py-files WHEEL jobs/report.py …
"""

from __future__ import annotations

from pathlib import Path

import click

from jobs.entry import run
from jobs.options import OutputFile, RunId, out_option, tables_option


@click.command("report")
@click.argument("run_id", type=RunId())
@out_option
@tables_option
@click.option("--to", "target", metavar="FILE",
              type=OutputFile(),
              help="The page to write.  [default: OUT/RUN_ID/report.html]")  # fmt: skip
def report(run_id: str, out: Path, tables: str | None, target: Path | None) -> None:
    """Write a run's HTML report: its answer, its evidence, and the command to repeat it.

    The page loads nothing from a network. Each run writes its report at its end; this job writes
    the report again, from the Delta tables.
    """
    # Imported here, because --help and shell completion do not need these modules.
    from jobs.runs.recorded_runs import regenerate_report

    regenerate_report(run_id, out, tables, target)


if __name__ == "__main__":
    run(report)

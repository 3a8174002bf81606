"""`redline report`: a run as one page that people can pass around.

The same as a script for schedulers: spark-submit --py-files WHEEL jobs/report.py …
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
    """Write a run as one HTML page: the answer, its evidence, and how to make it again.

    The page holds all that it shows and loads nothing. A run writes its own at its end;
    this makes it anew, from the Delta tables.
    """
    # Not at the top: --help, and a shell that completes a word, need none of it.
    from jobs.runs.report_regeneration import regenerate_report

    regenerate_report(run_id, out, tables, target)


if __name__ == "__main__":
    run(report)

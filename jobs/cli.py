"""`redline`: one command, a subcommand for each job."""

from __future__ import annotations

from typing import NoReturn

import click

from jobs.cleanup import cleanup
from jobs.compare import compare
from jobs.doctor import doctor
from jobs.entry import run
from jobs.export import export
from jobs.find_limit import find_limit
from jobs.nightly import nightly
from jobs.plan import plan
from jobs.report import report
from jobs.setup.version import __version__
from jobs.sweep import sweep
from jobs.testbed.commands import testbed
from jobs.traffic import traffic


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="redline")
def redline() -> None:
    """Find how much traffic a Kafka cluster can take, and say why no more.

    Exit codes: 0 done, 1 unexpected error, 2 bad usage or configuration, 3 no conclusion,
    4 regression found, 5 stopped by a guard, 75 try again later (the cluster is in use),
    130 interrupted, 143 terminated.
    """


redline.add_command(cleanup)
redline.add_command(compare)
redline.add_command(doctor)
redline.add_command(export)
redline.add_command(find_limit)
redline.add_command(nightly)
redline.add_command(plan)
redline.add_command(report)
redline.add_command(sweep)
redline.add_command(testbed)
redline.add_command(traffic)


def main() -> NoReturn:
    """The console command's entry point."""
    run(redline)


if __name__ == "__main__":
    main()

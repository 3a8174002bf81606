"""`redline`: one command, a subcommand for each job."""

from __future__ import annotations

import importlib
from typing import Any

import click

from jobs.entry import run
from jobs.setup.version import __version__
from metrics.common.errors import ConfigError

JOBS = {
    "cleanup": "List what runs that died left on a cluster, and delete it with --yes.",
    "compare": "Say whether side B takes less load than side A, how sure that is, and what may "
    "cause it.",
    "doctor": "Say whether a run would start, before anything is loaded.",
    "export": "Give what a run found to the tools that run the cluster.",
    "find-limit": "Find the highest load that a cluster sustains, for each message size.",
    "init": "Write a cluster file from the answers to at most five questions, or from options.",
    "nightly": "Measure the cases of a suite, and tell which of them are worse than before.",
    "plan": "Say how many brokers a load needs, with what headroom, and what binds first.",
    "report": "Write a run as one HTML page: the answer, its evidence, and how to make it again.",
    "runs": "List the runs of a folder, show one, tag it or delete it.",
    "sweep": "Measure the cases of an experiment, and say what each thing that varies does.",
    "testbed": "Real Kafka brokers on this machine, to try things on.",
    "traffic": "Hold one traffic pattern at a fixed load: trials, or for hours without a gap.",
}
"""Name of each job and the first sentence of its help: `redline --help` imports none of them,
as Spark and its libraries take seconds. A test holds each sentence against the job's own."""
ELSEWHERE = {"runs": "jobs.list_runs", "testbed": "jobs.testbed.commands"}
"""Jobs whose module has another name than they have."""


SPARK = ("pyspark", "py4j", "delta")


class Jobs(click.Group):
    """The jobs, each imported when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Their names."""
        return sorted(JOBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """One of them; None where there is none of this name."""
        if cmd_name not in JOBS:
            return None
        attribute = cmd_name.replace("-", "_")
        module = importlib.import_module(ELSEWHERE.get(cmd_name, f"jobs.{attribute}"))
        command: click.Command = getattr(module, attribute)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run one of them.

        Raises:
            ConfigError: it needs Spark, which is not installed.
        """
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            if missing not in SPARK:
                raise
            raise ConfigError(
                f"redline {ctx.invoked_subcommand} needs Spark, and {missing} is not installed "
                "here; expected it, or a Spark of the platform's own; "
                "pip install 'kafka-redline[spark]', or use spark-submit where Spark is"
            ) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """What each does, in a line or two."""
        with formatter.section("Commands"):
            formatter.write_dl(sorted(JOBS.items()))


@click.group(
    cls=Jobs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="redline")
def redline() -> None:
    """Find how much traffic a Kafka cluster can take, and what limits it.

    Exit codes: 0 done, 1 unexpected error, 2 bad usage or configuration, 3 no conclusion,
    4 regression found, 5 stopped by a guard, 75 try again later (the cluster is in use or down),
    130 interrupted, 143 terminated.
    """


def main() -> None:
    """The console command's entry point."""
    run(redline)


if __name__ == "__main__":
    main()

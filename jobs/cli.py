"""`redline`: one command with a subcommand for each job."""

from __future__ import annotations

import importlib
from typing import Any

import click

from jobs.entry import run
from jobs.setup.version import __version__
from metrics.common.errors import ConfigError

JOBS = {
    "cleanup": "List topics and consumer groups that killed runs left on a cluster; --yes deletes "
    "them.",
    "compare": "Test whether side B has less capacity than side A, with an interval and a "
    "likely cause.",
    "doctor": "Check without any load whether a run would start.",
    "export": "Export a run's limit for Cruise Control, Kafka's quotas or Prometheus.",
    "find-limit": "Find the highest load that a cluster sustains, for each message size.",
    "headroom": "Answer how many times today's traffic fits into a cluster, and when it will be "
    "full.",
    "init": "Write a cluster file from the answers to a few questions, or from options.",
    "learn": "Write a workload from the traffic that producers really send to a cluster.",
    "nightly": "Measure the cases of a suite, and report which of them are worse than before.",
    "plan": "Calculate how many brokers a load needs, with the headroom and the limiting resource.",
    "report": "Write a run's HTML report: its answer, its evidence, and the command to repeat it.",
    "runs": "List the runs of a folder, show one, tag it or delete it.",
    "sweep": "Measure the cases of an experiment, and report the effect of each varied setting.",
    "testbed": "Real Kafka brokers on this machine, for trials.",
    "traffic": "Offer one traffic pattern at a fixed load, in trials or without interruption.",
}
"""Name of each job → first sentence of its help. `redline --help` imports no job, because the
import of Spark takes seconds. A test checks that each sentence equals the one in the job's help.
"""
ELSEWHERE = {"export": "jobs.plan", "runs": "jobs.list_runs", "testbed": "jobs.testbed.commands"}
"""Job → its module, for jobs whose module has another name."""

SPARK = ("pyspark", "py4j", "delta")


class Jobs(click.Group):
    """The group of all jobs. A job's module is imported only when the job is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the jobs."""
        return sorted(JOBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command with this name; None if the name is unknown."""
        if cmd_name not in JOBS:
            return None
        attribute = cmd_name.replace("-", "_")
        module = importlib.import_module(ELSEWHERE.get(cmd_name, f"jobs.{attribute}"))
        command: click.Command = getattr(module, attribute)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run a job.

        Raises:
            ConfigError: the job needs Spark, and Spark is not installed.
        """
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            if missing not in SPARK:
                raise
            raise ConfigError(
                f"redline {ctx.invoked_subcommand} needs Spark, and {missing} is not installed; "
                "expected the extra spark, or the platform's own Spark; run "
                "pip install 'kafka-redline[spark]', or use the platform's spark-submit"
            ) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a help line for each job, with its name and its sentence."""
        with formatter.section("Commands"):
            formatter.write_dl(sorted(JOBS.items()))


@click.group(
    cls=Jobs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="redline")
def redline() -> None:
    """Find how much traffic a Kafka cluster can take, and what limits it.

    Exit codes: 0 done, 1 unexpected error, 2 bad usage or configuration, 3 no conclusion,
    4 a limit that you set is exceeded (regression, or too little headroom), 5 stopped by a guard,
    75 try again later (the cluster is in use or down), 130 interrupted, 143 terminated.
    """


def main() -> None:
    """The entry point of the console command."""
    run(redline)


if __name__ == "__main__":
    main()

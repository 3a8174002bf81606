"""`redline compare`: compares two clusters, Kafka versions or broker settings.

Schedulers can run this module as a script: spark-submit --py-files WHEEL jobs/compare.py …
"""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from jobs.entry import run
from jobs.options import COUNT_MAX, Amount, Count, RunId, run_options
from jobs.runs.options import RunOptions
from metrics.common.errors import ConfigError
from metrics.comparing.effects import PAIRS_MIN


def _once(_context: click.Context, option: click.Parameter, given: tuple[str, ...]) -> str | None:
    """The value of an option that may be given only once. Click would silently use the last value
    of several.
    """
    if len(given) > 1:
        name = option.opts[0]
        raise ConfigError(
            f"{name} is given {len(given)} times; expected the option once, with commas between "
            f"settings; write {name} {','.join(given)}"
        )
    return given[0] if given else None


@click.command("compare")
@click.argument("run_ids", nargs=-1, type=RunId(), metavar="[RUN_ID RUN_ID]")
@click.option("--a", metavar="NAME|FILE|SETTINGS", multiple=True, callback=_once,
              help="The reference side: a cluster (a name in conf/clusters, or a path), or "
                   "settings with commas between them. A setting is a property of the testbed's "
                   "brokers, such as kafka=3.9.2 or num.io.threads=2, or the full path of a key, "
                   "such as workload.producer.acks=all.")  # fmt: skip
@click.option("--b", metavar="NAME|FILE|SETTINGS", multiple=True, callback=_once,
              help="The side that is compared with A, in the same form as --a.")  # fmt: skip
@click.option("--cluster", default="testbed", show_default=True, metavar="NAME|FILE",
              help="The testbed to which the settings of --a and --b apply.")  # fmt: skip
@click.option("--workload", default="1kB", show_default=True, metavar="NAME|FILE",
              help="The traffic pattern: a name in conf/workloads, or a path.")  # fmt: skip
@click.option("--goal", default="default", show_default=True, metavar="NAME|FILE",
              help="The goal that sets the guards and the limits beyond which a trial is INVALID: "
                   "a name in conf/goals, or a path.")  # fmt: skip
@click.option("--pairs", default=4, show_default=True, type=Count(PAIRS_MIN, COUNT_MAX),
              help="Number of pairs of saturated trials for each message size.")  # fmt: skip
@click.option("--steady-pairs", default=3, show_default=True, type=Count(0, COUNT_MAX),
              help="Number of pairs of trials that help to explain a loss, at a load that both "
                   f"sides sustain; an interval needs {PAIRS_MIN} pairs or more.")  # fmt: skip
@click.option("--min-effect", default=0.05, show_default=True,
              type=Amount(0, 1, max_open=True),
              help="The smallest relevant loss of capacity; 0.05 is 5 %.")  # fmt: skip
@click.option("--budget-s", type=Amount(min=0, min_open=True), metavar="SECONDS",
              help="Begin no trial after this time.")  # fmt: skip
@run_options
def compare(
    run_ids: tuple[str, ...],
    a: str | None,
    b: str | None,
    pairs: int,
    steady_pairs: int,
    min_effect: float,
    budget_s: float | None,
    options: RunOptions,
    **files: Any,
) -> int:
    """Test whether side B has less capacity than side A, with an interval and a likely cause.

    Both sides run at the same time, and the load alternates in the order A B B A. A slow hour of
    the machine therefore affects both sides. The exit code is 4 if B is worse.

    If you give the ids of two finished runs, the command compares their limits without any load.
    """
    # Imported here, because --help and shell completion do not need these modules.
    from jobs.console.printing import make_reporter
    from jobs.features.compare.answer import Effort
    from jobs.features.compare.comparison_run import ComparisonRun
    from jobs.features.compare.sides import compare_finished, load_sides, require_memory
    from jobs.runs.launch import launch
    from metrics.comparing.effects import Side

    if run_ids:
        if len(run_ids) != 2 or a is not None or b is not None:
            raise ConfigError(
                f"{len(run_ids)} RUN_ID{' and a side' if a or b else ''} are given "
                f"({', '.join(run_ids)}); expected two RUN_ID, or --a and --b; correct the options"
            )
        with make_reporter() as reporter:
            compare_finished(run_ids, options.out, min_effect, options.json_file, reporter)
        return 0
    if a is None or b is None:
        raise ConfigError(
            f"--{'b' if a else 'a'} is missing; expected --a and --b, or two RUN_ID; add the "
            "missing side"
        )
    sides = load_sides({Side.A: a, Side.B: b}, **files)
    body = ComparisonRun(sides, Effort(pairs, steady_pairs), min_effect, budget_s)
    return launch(body, options, check=partial(require_memory, sides))


if __name__ == "__main__":
    run(compare)

"""Options that several jobs have, so that they are called and explained alike."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from jobs.runs.asked import Asked
from search.errors import ConfigError

Command = TypeVar("Command", bound=Callable[..., Any])

_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def duration_s(text: str) -> float:
    """A time with its unit, such as 90s, 30m or 1.5h [s].

    Raises:
        ConfigError: it is none.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text.strip())
    if found is None or not float(found[1]):
        raise ConfigError(
            f"{text!r} is no time; expected a number above 0 and s, m or h, such as 30m"
        )
    return float(found[1]) * _SECONDS[found[2]]


_CLUSTER = click.option(
    "--cluster",
    default="testbed",
    show_default=True,
    metavar="NAME|FILE",
    help="The brokers: a file of conf/clusters, or a path.",
)
_WORKLOAD = click.option(
    "--workload",
    default="demo",
    show_default=True,
    metavar="NAME|FILE",
    help="The traffic pattern: a file of conf/workloads, or a path.",
)
_SET = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="FILE.KEY=VALUE",
    help="Override a key, as workload.producer.acks=all; may be repeated.",
)
_OUT = click.option(
    "--out",
    default="out",
    show_default=True,
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the run's own folder is made.",
)
_TABLES = click.option(
    "--tables",
    metavar="PATH|SCHEMA",
    help="The Delta tables: any path of Spark's, or a catalog's schema.  [default: OUT/tables]",
)
_SLOTS = click.option(
    "--slots",
    type=click.IntRange(min=1),
    help="Tasks that share the load.  [default: as many as Spark can run at once]",
)
_DRY_RUN = click.option(
    "--dry-run", is_flag=True, help="Print the plan, its duration and its bytes; load nothing."
)
_YES = click.option(
    "--yes", is_flag=True, help="Load a cluster that is not a testbed without asking."
)
lock_option = click.option(
    "--no-lock",
    "locks",
    flag_value=False,
    default=True,
    help="Load the cluster without its lock, where brokers permit none; nobody may load it, too.",
)


def pattern_options(command: Command) -> Command:
    """`--cluster` and `--workload`."""
    return _CLUSTER(_WORKLOAD(command))


def place_options(command: Command) -> Command:
    """`--set`, `--out`, `--tables` and `--slots`."""
    return _SET(_OUT(_TABLES(_SLOTS(command))))


def run_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of a job that loads a cluster: `--set` as `overrides`, the rest as `asked`."""

    @functools.wraps(command)
    def gathered(
        *,
        out: Path,
        tables: str | None,
        slots: int | None,
        dry_run: bool,
        yes: bool,
        locks: bool,
        **own: Any,
    ) -> Any:
        return command(asked=Asked(out, tables, slots, dry_run, yes, locks), **own)

    return place_options(_DRY_RUN(_YES(lock_option(gathered))))

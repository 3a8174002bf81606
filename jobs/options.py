"""The command line options that several jobs share."""

from __future__ import annotations

import functools
import math
import re
import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from jobs.runs.options import RunOptions
from metrics.common.bounds import OfferedRate, amount, offered_rate
from metrics.common.errors import ConfigError
from metrics.planning.load_hours import next_time
from metrics.reporting.files import require_place

Command = TypeVar("Command", bound=Callable[..., Any])

TESTBED_WORKLOAD = "demo"
"""Name of the default workload on a testbed."""

COUNT_MAX = 1_000_000_000
"""Upper bound of every option that is a count. A count above this bound is taken for a typing
error.
"""


class Parsed(click.ParamType):  # type: ignore[type-arg]  # not generic in older versions
    """An option type that converts a text. A ValueError of `read` becomes a usage error."""

    def read(self, value: Any) -> Any:
        """Convert the given text to the value of the option."""
        raise NotImplementedError

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The value of the option. An invalid text is a usage error."""
        try:
            return self.read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Duration(Parsed):
    """A duration: a number of seconds, or a number with a unit, such as 8h."""

    name = "time"

    def read(self, value: Any) -> float:
        """The duration [s]. A text that is not a finite time above 0 is an error."""
        text = str(value).strip()
        try:
            seconds = float(text)
        except ValueError:
            seconds = amount(text, "seconds") or 0.0
        if not 0 < seconds < math.inf:
            raise ValueError(
                f"{value!r} is not a time; expected a finite number above 0 with the unit s, m or "
                "h, such as 30m, or a number of seconds."
            )
        return float(seconds)


class Rate(Parsed):
    """A rate of all producers together: payload, such as 200 MB/s, or messages, such as 50k/s."""

    name = "rate"

    def read(self, value: Any) -> OfferedRate:
        """The rate. A text without the unit of a rate is an error."""
        rate = offered_rate(str(value))
        if rate is None:
            raise ValueError(
                f"{value!r} is not a rate; expected a payload such as 200MB/s (MB is 10^6 bytes), "
                "or messages such as 50000/s or '50k msg/s'."
            )
        return rate


class ConfName(click.ParamType):  # type: ignore[type-arg]  # not generic in older versions
    """The name of a file in a folder of conf, or the path of any file. Shells complete both."""

    name = "text"

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The completions: names and files that begin with the incomplete word."""
        # Imported here, because the import loads all configuration models, which options do not
        # need.
        from jobs.config.files import names_in

        names = [each for each in names_in(self._folder) if each.startswith(incomplete)]
        return [*map(CompletionItem, names), CompletionItem(incomplete, type="file")]


class Count(click.IntRange):
    """A whole number in a range."""

    name = "whole number"


class Amount(click.FloatRange):
    """A finite number in a range."""

    name = "number"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number. NaN and infinities are errors."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


class OutputFile(click.ParamType):  # type: ignore[type-arg]  # not generic in older versions
    """A file to write. A path that cannot be written is refused before the job starts."""

    name = "file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """The path of the file.

        Raises:
            ConfigError: the file cannot be written.
        """
        path = Path(value)
        require_place(_name_of(param), path)
        return path

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The completions: files that begin with the incomplete word."""
        return [CompletionItem(incomplete, type="file")]


def _name_of(param: click.Parameter | None) -> str:
    """The name of a parameter as shown on the command line, such as --json or FILE."""
    if isinstance(param, click.Option):
        return param.opts[0]
    return "FILE" if param is None else param.human_readable_name


class RunId(Parsed):
    """The id of a run, a sweep or a comparison, which is also the name of its folder."""

    name = "id"

    def read(self, value: Any) -> str:
        """The id. Only letters, digits, dots, dashes and underscores are permitted, because any
        other text could be a path or a part of a query.
        """
        if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,120}", str(value)) is None:
            raise ValueError(
                f"{value!r} is not a run id; expected letters, digits, dots, dashes and "
                "underscores, such as 20261122-210000-ab12."
            )
        return str(value)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The completions: folders in --out that begin with the incomplete word, the
        newest first.
        """
        out = Path(ctx.params.get("out") or "out")
        found = [each.name for each in out.iterdir() if each.is_dir()] if out.is_dir() else []
        own = (each for each in found if each.startswith(incomplete) and each[:1].isalnum())
        return [CompletionItem(each) for each in sorted(own, reverse=True) if each != "tables"]


class RunPlace(RunId):
    """The id of a run in --out, or the path of a run's folder."""

    def read(self, value: Any) -> str:
        """The given text. A text that is neither an id nor a path is an error."""
        return str(value) if "/" in str(value) else super().read(value)


class Tables(Parsed):
    """The place of the Delta tables: a path with a slash, or the name of a catalog's schema."""

    name = "tables"

    def read(self, value: Any) -> str:
        """The given text. A name that is both a local folder and a possible schema is an error."""
        name = str(value)
        if "/" not in name and "." not in name and Path(name).is_dir():
            raise ValueError(
                f"{name!r} is a folder here, and a name without a slash means a schema; write "
                f"./{name} for the folder, or spark_catalog.{name} for the schema."
            )
        return name


def require_one(**given: object) -> None:
    """Require that exactly one of several options is given.

    Args:
        given: name of each option in the form of a parameter → its value, or None.

    Raises:
        ConfigError: several or none of the options are given.
    """
    names = [f"--{name.replace('_', '-')}" for name in given]
    count = sum(value is not None for value in given.values())
    if count != 1:
        raise ConfigError(
            f"{count} of {', '.join(names[:-1])} and {names[-1]} are given; expected exactly one "
            "of them; correct the options"
        )


def place_of(out: Path, run: str) -> Path:
    """The folder of the run that a `RunPlace` names."""
    return Path(run) if "/" in run else out / run


_CLUSTER = click.option("--cluster", type=ConfName("clusters"), default="testbed",
                        show_default=True, metavar="NAME|FILE",
                        help="The cluster: a name in conf/clusters, or a path.")  # fmt: skip
_OWN_CLUSTER = click.option("--cluster", type=ConfName("clusters"), required=True,
                            metavar="NAME|FILE",
                            help="The cluster: a name in conf/clusters, or a path.")  # fmt: skip
_OWN_SET = click.option("--set", "overrides", multiple=True, metavar="FILE.KEY=VALUE",
                        help="Override a key of the cluster's file, such as "
                             "cluster.link_mbit_per_s=10000. You can repeat the "
                             "option.")  # fmt: skip
_WORKLOAD = click.option("--workload", type=ConfName("workloads"), metavar="NAME|FILE",
                         help="The traffic pattern: a name in conf/workloads, or a path.  "
                              "[default on a testbed: demo]")  # fmt: skip
_SET = click.option("--set", "overrides", multiple=True, metavar="FILE.KEY=VALUE",
                    help="Override a key, such as workload.producer.acks=all. You can repeat "
                         "the option.")  # fmt: skip
out_option = click.option("--out", default="out", show_default=True, metavar="DIR",
                          type=click.Path(file_okay=False, path_type=Path),
                          help="The folder of all runs.")  # fmt: skip
tables_option = click.option("--tables", type=Tables(), metavar="PATH|SCHEMA",
                             help="The Delta tables: a path with a slash, or a schema of a "
                                  "catalog.  [default: OUT/tables]")  # fmt: skip
_SLOTS = click.option("--slots", type=Count(1, COUNT_MAX),
                      help="Number of Spark tasks that share the load.  [default: all tasks that "
                           "Spark can run at once]")  # fmt: skip
_DRY_RUN = click.option("--dry-run", is_flag=True,
                        help="Print the plan with the duration and the bytes, and offer no "
                             "load.")  # fmt: skip
_YES = click.option(
    "--yes", is_flag=True, help="Do not ask for consent to load a cluster that is not a testbed."
)


class TimeOfDay(Parsed):
    """A time in the future on the driver's clock: a time of day such as 06:00, or a date with a
    time.
    """

    name = "time"

    def read(self, value: Any) -> float:
        """The time [s since the epoch]. A text that is not a time, or a time in the past, is an
        error.
        """
        if isinstance(value, float):
            return value
        try:
            return next_time(str(value), time.time())
        except ValueError as error:
            raise ValueError(
                f"{value!r} is not a time ahead ({error}); expected a time of day such as 06:00, "
                "or a date with a time such as 2026-11-27T06:00."
            ) from None


class ListenAddress(Parsed):
    """A port of this machine, with or without an address in front: 9464 or 0.0.0.0:9464."""

    name = "port"

    def read(self, value: Any) -> tuple[str, int]:
        """The address and the port. A text without a valid port is a usage error."""
        host, _, port = str(value).rpartition(":")
        if not port.isdecimal() or int(port) > 65_535:
            raise ValueError(f"{value!r} is not a port; expected one such as 9464 or 0.0.0.0:9464.")
        return host or "127.0.0.1", int(port)


_METRICS_PORT = click.option("--metrics-port", "metrics_at", type=ListenAddress(),
                             metavar="[HOST:]PORT",
                             help="Serve live values for Prometheus on this port. Without HOST "
                                  "only this machine can connect.")  # fmt: skip
_NOTIFY = click.option("--notify", "notify_from", multiple=True, metavar="env:NAME|file:PATH",
                       help="Send messages at the start and the end of the run. The named "
                            "variable or file "
                            "has the addresses as apprise URLs. You can repeat the "
                            "option.")  # fmt: skip
_UNTIL = click.option("--until", "until_s", type=TimeOfDay(), metavar="TIME",
                      help="Begin no load that would end after this time, such as 06:00. The run "
                           "then stops with exit code 5, and you can continue it with "
                           "--resume.")  # fmt: skip
json_option = click.option("--json", "json_file", metavar="FILE", type=OutputFile(),
                           help="Also write the answer as JSON to this file.")  # fmt: skip
lock_option = click.option("--no-lock", "locks", flag_value=False, default=True,
                           help="Do not take the cluster's lock. Use this option only if the "
                                "brokers deny the lock and no other run is active.")  # fmt: skip


def cluster_options(command: Command) -> Command:
    """Add the required option `--cluster`, and `--set` for the keys of the cluster's file."""
    return _OWN_CLUSTER(_OWN_SET(command))


def pattern_options(command: Command) -> Command:
    """Add the options `--cluster` and `--workload`. Only a testbed has a default workload."""

    @functools.wraps(command)
    def gathered(*, workload: str | None, **own: Any) -> Any:
        is_resumed = own.get("resume") is not None  # a resumed run uses its recorded workload
        named = workload
        if named is None and not is_resumed:
            named = _default_workload(own["cluster"], own["overrides"])
        return command(workload=named, **own)

    return _CLUSTER(_WORKLOAD(gathered))  # type: ignore[return-value]


def _default_workload(cluster: str, overrides: tuple[str, ...]) -> str:
    """The default workload of a testbed.

    Raises:
        ConfigError: the cluster is not a testbed, so it has no default workload.
    """
    from jobs.config.loading import available, load_cluster

    try:
        is_exclusive = load_cluster(cluster, overrides).is_exclusive
    except ConfigError:  # the job loads the file again, and reports the error
        return TESTBED_WORKLOAD
    if not is_exclusive:
        known = ", ".join(available("workload"))
        raise ConfigError(
            f"cluster {cluster} is not a testbed, and --workload is missing; expected one of "
            f"{known}, or the path of a YAML file, because only testbeds have a default workload; "
            "add, for example, --workload quick"
        )
    return TESTBED_WORKLOAD


def place_options(command: Command) -> Command:
    """Add the options `--set`, `--out`, `--tables` and `--slots`."""
    return _SET(out_option(tables_option(_SLOTS(command))))


_RUN_OPTIONS = tuple(each.name for each in fields(RunOptions))


def run_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a job that loads a cluster. The command receives the values of `--set` as
    `overrides`, and the values of all further added options as `options`.
    """

    @functools.wraps(command)
    def gathered(**given: Any) -> Any:
        own = {name: value for name, value in given.items() if name not in _RUN_OPTIONS}
        return command(options=RunOptions(**{name: given[name] for name in _RUN_OPTIONS}), **own)

    return place_options(
        _DRY_RUN(_YES(_UNTIL(lock_option(json_option(_METRICS_PORT(_NOTIFY(gathered)))))))
    )

"""What every job does around its trials: a log of its own, and its rows in the table `runs`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from jobs.config import Configuration
from jobs.runs.results import Ending, caveat_of, ending_of, run_row
from jobs.trials.context import Bench
from metrics.tables.schema import RunRow


def plain_ending(error: BaseException | None) -> Ending:
    """The ending of a job that has no boundary points of its own."""
    return ending_of(error, ())


@contextmanager
def recorded(
    bench: Bench,
    config: Configuration,
    ending: Callable[[BaseException | None], Ending] = plain_ending,
) -> Iterator[None]:
    """Append that the run started, and at its end, whatever it is, how it ended.

    Args:
        ending: what an error, or None, says of the run.
    """

    def row(event: str, how: Ending | None = None) -> RunRow:
        found = run_row(
            bench.run_id, event, time.time(), config, bench.brokers, bench.environment, how
        )
        return replace(found, caveat=caveat_of(config, bench.caveats))

    bench.tables.append_run(row("started"))
    try:
        yield
    except BaseException as error:
        bench.tables.append_run(row("finished", ending(error)))
        raise
    bench.tables.append_run(row("finished", ending(None)))
    bench.tables.compact()

"""The measurement `drain`: the time in which consumer groups read a fixed volume."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from jobs.measurements.fill import Fill, move_volume, volume_result
from jobs.runs.measurement import Case, Loads
from metrics.common.errors import ConfigError
from metrics.comparing.figures import Result
from metrics.traffic.clients import ConsumerOptions
from metrics.units import format_volume


class Drain(Fill):
    """The time from the start of reading until every consumer group has read the volume.

    A first trial writes the volume of records, and a second trial reads the volume. With `cold`,
    the testbed's machine drops the volume from the page cache between the trials, so that brokers
    read the volume from disk.
    """

    name = "drain"
    takes = frozenset({"load", "cold"})

    def require(self, case: Case) -> None:
        """Require consumer groups and, if `cold` is set, a testbed."""
        if case.cold and not case.config.cluster.starts_brokers:
            raise ConfigError(
                f"cold is true on cluster {case.config.cluster.name}; expected a testbed, because "
                "only the page cache of a testbed can be dropped; remove cold"
            )
        if not case.config.workload.consumers.groups:
            raise ConfigError(
                "asks: drain is given with workload.consumers.groups 0; expected 1 or more groups "
                "to read the volume; set workload.consumers.groups"
            )

    def trials(self, case: Case) -> int:
        """The number of trials is two: one writes the volume, and one reads it."""
        return 2

    def writes(self, case: Case) -> int:
        """The number of trials that write is one: only the first trial writes the volume."""
        return 1

    def hold(self, loads: Loads) -> None:
        """Write the volume in one trial, and read the volume in a second trial."""
        config, workload = loads.config, loads.config.workload
        silent = replace(workload.trial, volume_bytes=0)
        readers = replace(workload.consumers, start="earliest", backlog_records=0)
        writing = config.with_workload(consumers=ConsumerOptions())
        move_volume(loads, "writing a volume", left=2, config=writing)
        if loads.case.cold:
            control = loads.run.context.cluster.broker_control
            assert control is not None, "see require"
            dropped = format_volume(control.forget_page_cache())
            loads.note(f"{dropped} of log segments are dropped from the page cache")
        reading = config.with_workload(trial=silent, consumers=readers)
        move_volume(loads, "reading the volume", config=reading)

    def result(self, trials: Sequence[Mapping[str, Any]]) -> Result:
        """The time of the trial that reads the volume."""
        return volume_result(trials[-1], is_writing=False)


MEASUREMENT = Drain

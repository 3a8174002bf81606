"""The measurement `fill`: the time in which the producers write a fixed volume."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from jobs.config import Configuration
from jobs.runs.measurement import Case, HeldMeasurement, Loads, why_invalid
from metrics.common.errors import NoConclusionError
from metrics.comparing import figures
from metrics.comparing.figures import Result
from metrics.trial.trial import Trial, moved_s
from metrics.units import format_mb_per_s


class Fill(HeldMeasurement):
    """The time from the start of the load to the last acknowledgement of the volume."""

    name = "fill"
    figure = figures.TIME
    unit = "s"
    moves_volume = True

    def configured(self, case: Case) -> Configuration:
        """The configuration without a warm-up, because the first record already belongs to the
        volume.
        """
        trial = case.config.workload.trial
        phases = replace(trial, warmup_s=0.0, ramp_up_s=0.0, early_end_error_rate=0.0)
        return case.config.with_workload(trial=phases)

    def hold(self, loads: Loads) -> None:
        """Write the volume."""
        move_volume(loads, "writing a volume")

    def result(self, trials: Sequence[Mapping[str, Any]]) -> Result:
        """The time of the trial that writes the volume."""
        return volume_result(trials[-1], is_writing=True)


def move_volume(
    loads: Loads, why: str, *, left: int = 1, config: Configuration | None = None
) -> None:
    """Make one trial that writes or reads the whole volume.

    Raises:
        NoConclusionError: the volume was not completely written or read.
    """
    volume_mb = (loads.case.config.workload.trial.volume_bytes or 0) / 1e6
    took_s = time_of_volume(loads.hold(why, left=left, config=config), why)
    rate = format_mb_per_s(volume_mb / took_s)
    loads.note(f"{why}: {volume_mb:,.0f} MB in {took_s:.2f} s, {rate} MB/s")


def time_of_volume(trial: Trial, why: str) -> float:
    """The time that a trial took to write or read its whole volume [s].

    Args:
        why: the purpose of the trial, such as "writing a volume".

    Raises:
        NoConclusionError: the trial was INVALID, or did not write or read the whole volume.
    """
    if not trial.is_valid:
        raise NoConclusionError(f"{why}: the trial was INVALID: {trial.reasons[0].text}")
    took_s = moved_s(trial.pattern, trial.evidence.client)
    if took_s is None:
        raise NoConclusionError(
            f"{why}: the volume was not complete after {trial.pattern.phases.measure_s:g} s and "
            "the drain; expected the whole volume; raise workload.trial.measure_s, or set a "
            "smaller volume"
        )
    return took_s


def volume_result(last: Mapping[str, Any], *, is_writing: bool) -> Result:
    """The `Result` with the time [s] that the last trial took to write or read the volume."""
    invalid = why_invalid(last)
    is_own = bool(last.get("volume_bytes")) == is_writing
    took_s = last.get("moved_s") if is_own and not invalid else None
    left = "a part of the volume was missing when the trial ended"
    return Result(
        {},
        1,
        int(last["bpm"]),
        took_s,
        limited_by=last["limited_by"],
        why=invalid or ("" if took_s else left),
    )


MEASUREMENT = Fill

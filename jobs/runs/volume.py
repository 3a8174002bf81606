"""A volume: the time to write a fixed payload, or to read it by consumer groups."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from jobs.config import Configuration
from jobs.console.events import Plan, note
from jobs.runs.fixed_load import FixedLoad, FixedLoadRun
from jobs.runs.lifecycle import RunState
from jobs.trials.holding import Holder
from metrics.common.errors import NoConclusionError
from metrics.traffic.consumers import ConsumerOptions
from metrics.trial.trial import Trial
from metrics.trial.volume import moved_s
from metrics.units import format_mb_per_s, format_volume


class VolumeRun(FixedLoadRun):
    """Writes the workload's `trial.volume_bytes`, and optionally reads them.

    Args:
        reads: whether a second trial, without producers, reads the volume; the answer is then the
            time of that trial.
        cold: whether the machine drops the volume from its page cache before the read, so that
            the disk serves it; only for brokers that this run starts.

    The workload has a volume, and consumer groups where it is read; see `load_sweep`.
    """

    def __init__(
        self, config: Configuration, load: FixedLoad, reads: bool, cold: bool = False
    ) -> None:
        self._cold = cold
        trial = config.workload.trial
        assert trial.volume_bytes is not None, "see load_sweep"
        self._volume_mb = trial.volume_bytes / 1e6
        # The volume counts from the first record on, so the window starts without a warm-up.
        phases = replace(trial, warmup_s=0.0, ramp_up_s=0.0, early_end_error_rate=0.0)
        super().__init__(_with(config, trial=phases), load)
        self._steps = [("writing a volume", self.config)]
        if reads:
            silent = replace(phases, volume_bytes=0)
            readers = replace(config.workload.consumers, start="earliest", backlog_records=0)
            self._steps = [
                ("writing a volume", _with(self.config, consumers=ConsumerOptions())),
                ("reading it", _with(config, trial=silent, consumers=readers)),
            ]

    def plan(self, out: Path) -> Plan:
        """The plan of the trials: one to write the volume, and one to read it."""
        whole, count = super().plan(out), len(self._steps)
        return replace(whole, trials_estimated=count, duration_s=whole.duration_s * count)

    def measure(self, run: RunState) -> None:
        """Write the volume, and read it if required.

        Raises:
            NoConclusionError: the volume was not completely written or read.
        """
        with Holder(run.context, self.config.cluster.warm_up_max_s) as holder:
            for index, (why, config) in enumerate(self._steps):
                left = len(self._steps) - index
                if self._cold and index:
                    self._forget(run)
                trial = holder.hold(self.load.message_bytes, self.load.load, why, left, config)
                self.trials.append(trial)
                took_s = time_of_volume(trial, why)
                volume = f"{self._volume_mb:,.0f} MB in {took_s:.2f} s"
                rate = format_mb_per_s(self._volume_mb / took_s)
                note(run.order.reporter, f"{why}: {volume}, {rate} MB/s")

    def _forget(self, run: RunState) -> None:
        control = run.context.cluster.broker_control
        assert control is not None, "see load_sweep"
        forgotten = control.forget_page_cache()
        note(
            run.order.reporter,
            f"{format_volume(forgotten)} of log segments are dropped from the page cache",
        )


def time_of_volume(trial: Trial, why: str) -> float:
    """The time that a trial took to move its whole volume [s].

    Args:
        why: the purpose of the trial, such as "writing a volume".

    Raises:
        NoConclusionError: the trial was INVALID, or did not move the whole volume.
    """
    if not trial.is_valid:
        raise NoConclusionError(f"{why}: the trial was INVALID: {trial.reasons[0].text}")
    took_s = moved_s(trial.pattern, trial.evidence.client)
    if took_s is None:
        raise NoConclusionError(
            f"{why}: {trial.pattern.phases.measure_s:g} s and the drain were too short for the "
            "volume; expected the whole volume, as its time is unknown otherwise; raise "
            "workload.trial.measure_s, or set a smaller volume"
        )
    return took_s


def _with(config: Configuration, **parts: object) -> Configuration:
    return replace(config, workload=config.workload.model_copy(update=parts))

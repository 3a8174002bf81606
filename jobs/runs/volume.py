"""How long a fixed volume takes: to be written, or to be read by consumer groups from the start."""

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
    """Writes the workload's `trial.volume_bytes`, and then has it read where that is asked.

    Args:
        reads: whether what was written is read in a trial of its own, in which nothing is offered;
            the time of that trial is then the answer.
        cold: whether the brokers' machine forgets the volume before it is read, so that it comes
            from the disk; only for brokers that this run starts.

    The workload has a volume, and consumer groups where it is read; see `load_sweep`.
    """

    def __init__(
        self, config: Configuration, load: FixedLoad, reads: bool, cold: bool = False
    ) -> None:
        self._cold = cold
        trial = config.workload.trial
        assert trial.volume_bytes is not None, "see load_sweep"
        self._volume_mb = trial.volume_bytes / 1e6
        # The volume counts from the first record on, so there is nothing before the window.
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
        """The trials of a volume: one to write it, one more to read it."""
        whole, count = super().plan(out), len(self._steps)
        return replace(whole, trials_estimated=count, duration_s=whole.duration_s * count)

    def measure(self, run: RunState) -> None:
        """Write, and read where that is asked.

        Raises:
            NoConclusionError: not all of it was written, or read.
        """
        with Holder(run.context, self.config.cluster.warm_up_max_s) as holder:
            for index, (why, config) in enumerate(self._steps):
                left = len(self._steps) - index
                if self._cold and index:
                    self._forget(run)
                trial = holder.hold(self.load.message_bytes, self.load.load, why, left, config)
                self.trials.append(trial)
                took_s = time_of_volume(trial, why)
                told = f"{self._volume_mb:,.0f} MB in {took_s:.2f} s"
                rate = format_mb_per_s(self._volume_mb / took_s)
                note(run.order.reporter, f"{why}: {told}, {rate} MB/s")

    def _forget(self, run: RunState) -> None:
        control = run.context.cluster.broker_control
        assert control is not None, "see load_sweep"
        forgotten = control.forget_page_cache()
        note(
            run.order.reporter, f"the page cache forgot {format_volume(forgotten)} of log segments"
        )


def time_of_volume(trial: Trial, why: str) -> float:
    """How long a trial took to move all of its volume [s].

    Args:
        why: what it was made for, as in "writing a volume".

    Raises:
        NoConclusionError: it was INVALID, or did not move all of it.
    """
    if not trial.is_valid:
        raise NoConclusionError(f"{why}: the trial was INVALID: {trial.reasons[0].text}")
    took_s = moved_s(trial.pattern, trial.evidence.client)
    if took_s is None:
        raise NoConclusionError(
            f"{why}: not all of it in {trial.pattern.phases.measure_s:g} s and the drain after "
            "them; expected all, or nobody knows how long it takes; raise "
            "workload.trial.measure_s, or move less"
        )
    return took_s


def _with(config: Configuration, **parts: object) -> Configuration:
    return replace(config, workload=config.workload.model_copy(update=parts))

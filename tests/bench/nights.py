"""`make bench-decisions`: how often and how soon `redline nightly` raises an alarm.

Simulated histories of a suite of five cases, judged night by night as the command judges them. An
alarm is a regression. A history without a change counts the nights to the first alarm from the
second night on; a change begins after 30 judged nights, in the first case.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median

import click
from scipy.special import stdtr

from metrics.comparing import effects
from metrics.comparing.effects import NIGHT_ALPHA, Conclusion, conclude
from metrics.features.nightly.judging import NightRule, Noise, compare_merits

CASES = 5
HISTORY = 30
"""Number of nights before a change."""
LONGEST = 100
"""Number of nights after which a history ends without an alarm."""
NOISES = (0.01, 0.02, 0.04, 0.06)

Loss = Callable[[int], float]
"""Number of nights since the change, from 1 → factor of the figure."""


def at_once(loss: float) -> Loss:
    """A loss that lasts from its first night on [share]."""
    return lambda _: 1.0 - loss


def a_night(loss: float) -> Loss:
    """The same loss again each night [share]."""
    return lambda nights: (1.0 - loss) ** nights


LOSSES: dict[str, Loss] = {
    "2 % at once": at_once(0.02),
    "5 % at once": at_once(0.05),
    "10 % at once": at_once(0.10),
    "0.2 % a night": a_night(0.002),
}


@dataclass(frozen=True)
class History:
    """The figures of each case so far, and whether each night was usual."""

    rule: NightRule
    noise: Noise
    merits: tuple[list[float], ...] = field(default_factory=lambda: tuple([] for _ in range(CASES)))
    usual: tuple[list[bool], ...] = field(default_factory=lambda: tuple([] for _ in range(CASES)))

    def copy(self) -> History:
        """The same history, to be continued in another way."""
        return replace(
            self,
            merits=tuple(list(each) for each in self.merits),
            usual=tuple(list(each) for each in self.usual),
        )

    def judge(self, tonight: list[float]) -> list[bool]:
        """Append a night; for each case, whether it is a regression."""
        for case, merit in zip(self.merits, tonight, strict=True):
            case.append(merit)
        found = [
            compare_merits(case, usual, self.noise, self.rule, CASES)
            for case, usual in zip(self.merits, self.usual, strict=True)
        ]
        drawn = conclude([effect for effect, _ in found], self.rule.min_effect, NIGHT_ALPHA)
        alarms = []
        for usual, conclusion, (_, slow) in zip(self.usual, drawn, found, strict=True):
            is_gain = conclusion is Conclusion.IMPROVEMENT
            is_loss = not is_gain and (conclusion is Conclusion.REGRESSION or slow is not None)
            usual.append(not is_gain and not is_loss)
            alarms.append(is_loss)
        return alarms


def simulate(noise: float, stated: float, seed: int) -> tuple[int, bool, dict[str, int]]:
    """One history.

    Args:
        noise, stated: standard deviation from night to night, and the suite's statement [ratio].

    Returns:
        The nights to the first false alarm, whether there was one, and for each loss the nights to
        its alarm; `LONGEST` without one.
    """
    rule = NightRule({}, min_effect=0.05, history_max=30)
    history, chance = History(rule, Noise(stated, 8.0)), random.Random(f"{noise} {seed}")

    def tonight(factor: float = 1.0) -> list[float]:
        made = [chance.lognormvariate(0.0, noise) for _ in range(CASES)]
        return [made[0] * factor, *made[1:]]

    alarm, until = 0, {}
    for night in range(LONGEST):
        if night == HISTORY:
            for name, loss in LOSSES.items():
                changed, since = history.copy(), 1
                while not changed.judge(tonight(loss(since)))[0] and since < LONGEST:
                    since += 1
                until[name] = since
        alarms = history.judge(tonight())
        alarm = alarm or (night if any(alarms) else 0)
        if alarm and night >= HISTORY:
            break
    return alarm or LONGEST, alarm > 0, until


def fast_tail(x: float, freedom: float) -> float:
    """`effects.student_tail` by SciPy, which is faster."""
    return float(stdtr(freedom, -x))


def _prepared() -> None:
    effects.student_tail = fast_tail


def row_of(noise: float, stated: float, count: int, processes: int = 2) -> list[float]:
    """Nights to a false alarm (mean), and to the detection of each loss (medians)."""
    with ProcessPoolExecutor(processes, initializer=_prepared) as pool:
        made = list(pool.map(partial(simulate, noise, stated), range(count), chunksize=10))
    alarms = sum(has_alarm for _, has_alarm, _ in made)
    mean = sum(nights for nights, _, _ in made) / alarms if alarms else math.inf
    return [mean, *(median(until[name] for _, _, until in made) for name in LOSSES)]


@click.command()
@click.option("--count", default=1_000, show_default=True, help="Histories for each row.")
def main(count: int) -> None:
    """Print the table of docs/nightly.md."""
    click.echo("| noise | nights to a false alarm | " + " | ".join(LOSSES) + " |")
    click.echo("| --- " * (2 + len(LOSSES)) + "|")
    for noise in NOISES:
        alarm, *found = row_of(noise, noise, count)
        cells = [f"over {LONGEST}" if each >= LONGEST else f"{each:g}" for each in found]
        nights = "over 10,000" if alarm > 10_000 else f"{alarm:.0f}"
        click.echo(f"| {noise:.0%} | {nights} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()

"""The readings of each trial over time, as small SVG drawings without scripts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from metrics.trial.client import ClientWindow
from metrics.trial.trial import RunSeries, Trial
from metrics.units import format_count
from metrics.windows.series import SeriesPoint

WIDTH, HEIGHT = 220, 56  # [px]
BROKERS_MAX = 12
"""Maximum number of lines in a panel; the brokers with the lowest ids are drawn."""
LATENCY = "Latency [ms]"


@dataclass(frozen=True)
class Panel:
    """One reading over the time of a trial, for each broker or for all producers.

    Attributes:
        title: name of the reading, with its unit.
        top: the highest value, as text; the lower edge is 0.
        window: start and width of the measured window [px].
        lines: (name, points) of each line; points are `x,y x,y`.
        size: width and height of the drawing [px].
    """

    title: str
    top: str
    window: tuple[float, float]
    lines: tuple[tuple[str, str], ...]
    size: tuple[int, int] = (WIDTH, HEIGHT)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the lines."""
        return tuple(name for name, _ in self.lines)


Panels = Mapping[int, tuple[Panel, ...]]
"""Number of the trial → its drawings."""

_Line = tuple[int, str]
"""Id of a broker, and the name of its line."""

Points = Sequence[tuple[float, float]]
"""(time since the start of the window [s], value) of each point."""


def panels_of_run(series: RunSeries, trials: Iterable[Trial]) -> Panels:
    """The drawings of these trials; empty if the run has too many readings for a page."""
    if not series.is_complete:
        return {}
    return panels_of(series.points, {each.number: each.evidence.client for each in trials})


def panels_of(
    points: Mapping[int, Iterable[SeriesPoint]], clients: Mapping[int, ClientWindow]
) -> Panels:
    """Draw the latency and the brokers' readings of each trial.

    Args:
        points: trial → the brokers' readings, in the order of the drawings.
        clients: trial → the window of its clients.
    """
    found = {}
    for trial, client in clients.items():
        titles: dict[str, dict[_Line, list[tuple[float, float]]]] = {}
        for point in points.get(trial, ()):
            lines = titles.setdefault(point.title, defaultdict(list))
            line = (point.broker_id, point.name)
            lines[line].append((point.elapsed_s, point.value))
        named = {
            title: {name: points for (_, name), points in sorted(lines.items())[:BROKERS_MAX]}
            for title, lines in titles.items()
        }
        found[trial] = _drawn({**_latency_lines(client), **named}, client)
    return {trial: panels for trial, panels in found.items() if panels}


def _latency_lines(client: ClientWindow) -> dict[str, dict[str, Points]]:
    """Latency over time, with each slice as a point in its middle."""
    slices = client.latency_over_time
    if not slices:
        return {}
    middles = [(each, each.start_s + each.length_s / 2) for each in slices]
    return {
        LATENCY: {
            "p99": [(at_s, each.p99_ms) for each, at_s in middles],
            "p50": [(at_s, each.p50_ms) for each, at_s in middles],
        }
    }


def _drawn(titles: Mapping[str, Mapping[str, Points]], client: ClientWindow) -> tuple[Panel, ...]:
    """A panel for each title, all with the same time axis."""
    times = [at_s for lines in titles.values() for line in lines.values() for at_s, _ in line]
    first_s, last_s = min([0.0, *times]), max([client.duration_s, *times])
    return tuple(
        _panel(title, lines, (first_s, last_s), client.duration_s)
        for title, lines in titles.items()
    )


def _panel(
    title: str, lines: Mapping[str, Points], span_s: tuple[float, float], window_s: float
) -> Panel:
    first_s, last_s = span_s
    top = max(value for line in lines.values() for _, value in line)
    across, up = WIDTH / (last_s - first_s), (HEIGHT - 4) / (top or 1.0)
    drawn = tuple(
        (
            name,
            " ".join(
                f"{(at_s - first_s) * across:.0f},{HEIGHT - 2 - value * up:.0f}"
                for at_s, value in line
            ),
        )
        for name, line in lines.items()
    )
    return Panel(title, _short(top), (-first_s * across, window_s * across), drawn)


def _short(value: float) -> str:
    return f"{value:.2f}" if value < 100 else format_count(value)

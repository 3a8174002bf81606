"""The style of charts: colors for all kinds of color vision, and a light and a dark theme."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from metrics.windows.use import Resource

if TYPE_CHECKING:
    from altair import TopLevelMixin

_FONT = "Helvetica, Arial, Liberation Sans, sans-serif"
NEUTRAL = "#7f8a99"  # readable on white and on black
PAGE = "page"
"""Style that fills a hollow mark with the color of the page, so that the mark hides the lines
behind it."""
# Okabe and Ito's palette for all kinds of color vision (jfly.uni-koeln.de/color), and further
# colors for resources. Each resource also has its own shape.
COLORS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f8a99"]
"""Colors of lines, in order of use."""
RESOURCE_LOOKS = {
    Resource.REQUEST_HANDLERS.value: ("#0072b2", "square"),
    Resource.NETWORK_THREADS.value: ("#e69f00", "diamond"),
    Resource.CPU.value: ("#d55e00", "triangle-up"),
    Resource.HEAP.value: ("#9a6bd0", "triangle-left"),
    Resource.MEMORY.value: ("#6b4f2a", "stroke"),
    Resource.DISK.value: ("#009e73", "circle"),
    Resource.NETWORK.value: ("#56b4e9", "triangle-down"),
    Resource.REPLICATION.value: ("#cc79a7", "cross"),
    Resource.QUOTA.value: ("#b59f00", "triangle-right"),
    Resource.CONNECTION.value: ("#882255", "arrow"),
    Resource.UNKNOWN.value: ("#8a8a8a", "wedge"),
}
"""Name of a resource → (color, shape) of its marks."""
RESOURCE_COLORS = {name: color for name, (color, _) in RESOURCE_LOOKS.items()}
RESOURCE_SHAPES = {name: shape for name, (_, shape) in RESOURCE_LOOKS.items()}


def specification(chart: TopLevelMixin) -> dict[str, Any]:
    """The Vega-Lite specification of a chart in the light theme.

    Altair's validation is off, because it would double the time that a chart takes. Tests validate
    the charts.
    """
    spec: dict[str, Any] = chart.to_dict(validate=False)
    return spec | {"config": chart_config(dark=False)}


def beside(panels: Sequence[TopLevelMixin], **options: Any) -> dict[str, Any]:
    """The Vega-Lite specification of several panels in a row.

    Each panel is converted separately, because `alt.hconcat` copies all marks and all rows several
    times, which would take half of the time that a chart needs.

    Args:
        panels: the charts, from left to right.
        options: further keys of the specification, as JSON.
    """
    datasets: dict[str, Any] = {}
    whole: dict[str, Any] = {"hconcat": [], "datasets": datasets}
    for panel in panels:
        spec = specification(panel)
        datasets |= spec.pop("datasets", {})
        whole |= {key: spec.pop(key) for key in ("$schema", "config")}
        whole["hconcat"].append(spec)
    return whole | options


def chart_config(*, dark: bool) -> dict[str, Any]:
    """The Vega-Lite configuration of the light or the dark theme."""
    ink, faint, grid = (
        ("#e8eaed", "#a6adb8", "#33383f") if dark else ("#1b1f24", "#57606a", "#e4e8ec")
    )
    return {
        "background": "transparent" if dark else "white",
        "font": _FONT,
        "view": {"stroke": None},
        "title": {
            "color": ink,
            "fontSize": 18,
            "fontWeight": 600,
            "subtitleColor": faint,
            "subtitleFontSize": 12,
            "subtitleLineHeight": 17,
            "subtitlePadding": 7,
        },
        "axis": {
            "labelColor": faint,
            "titleColor": ink,
            "titleFontWeight": 500,
            "titleFontSize": 12,
            "titlePadding": 10,
            "labelFontSize": 11,
            "gridColor": grid,
            "domainColor": faint,
            "tickColor": faint,
        },
        "legend": {"labelColor": ink, "titleColor": faint, "titleFontWeight": 500, "offset": 14},
        "text": {"color": ink},
        "style": {PAGE: {"color": "#14171a" if dark else "white"}},
    }

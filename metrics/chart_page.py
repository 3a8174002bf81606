"""A page around a chart: one HTML file that loads nothing, in light and in dark."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from html import escape
from typing import Any

import vl_convert

from metrics.summary import Boundary, RunSummary
from metrics.units import (
    UNKNOWN,
    format_count,
    format_load,
    format_mb_per_s,
    format_ratio,
    format_size,
)

_COLUMNS = (
    "Message size",
    "Load",
    "Messages/s",
    "MB/s",
    "MB/s per broker",
    "Bracket",
    "Width",
    "What bound it",
)
# What the bundle shows to the script after it.
_EXPORTS = "window.vegaEmbed = vegaEmbed;"
_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --faint: #57606a; --line: #e4e8ec; --page: #fff }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8eaed; --faint: #a6adb8; --line: #33383f; --page: #14171a }
}
body { margin: 0 auto; max-width: 1080px; padding: 1rem; background: var(--page);
  color: var(--ink); font: 14px/1.45 Helvetica, Arial, sans-serif }
#chart { overflow-x: auto }
table { border-collapse: collapse; margin: .5rem 20px 1.5rem; width: calc(100% - 40px) }
th { color: var(--faint); font-weight: 500; vertical-align: bottom }
th, td { border-bottom: 1px solid var(--line); padding: .4rem .6rem; text-align: right;
  vertical-align: top; font-variant-numeric: tabular-nums }
th:last-child, td:last-child { text-align: left }
small { color: var(--faint); display: block }
footer { color: var(--faint); margin: 0 20px }
"""
_SCRIPT = """
const dark = window.matchMedia("(prefers-color-scheme: dark)");
async function draw() {
  const spec = dark.matches ? { ...SPEC, config: DARK_CONFIG } : SPEC;
  const actions = { export: true, source: false, compiled: false, editor: false };
  await vegaEmbed("#chart", spec, {
    renderer: "svg", actions, theme: undefined, tooltip: { theme: dark.matches ? "dark" : "light" },
  });
}
dark.addEventListener("change", draw);
draw();
"""


def chart_page(summary: RunSummary, spec: Mapping[str, Any], dark_config: Mapping[str, Any]) -> str:
    """The page: the chart of `spec`, and its figures as a table under it.

    `dark_config` replaces the specification's own where the reader prefers dark.
    """
    title = escape(f"{summary.cluster}, {summary.workload}: throughput limit")
    head = "".join(f"<th>{name}</th>" for name in _COLUMNS)
    rows = "\n".join(_table_row(boundary) for boundary in summary.boundaries)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>{_STYLE}</style>
</head>
<body>
<div id="chart"></div>
<table>
<thead><tr>{head}</tr></thead>
<tbody>
{rows}
</tbody>
</table>
<footer>Run {escape(summary.run_id)}, {escape(summary.started_at)} to
{escape(summary.finished_at)}. MB is 10⁶ bytes of payload.</footer>
<script>{_libraries()}</script>
<script>
const SPEC = {_script_json(spec)};
const DARK_CONFIG = {_script_json(dark_config)};
{_SCRIPT}</script>
</body>
</html>
"""


@lru_cache(maxsize=1)
def _libraries() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script; `</script` would end it early."""
    bundle = vl_convert.javascript_bundle(_EXPORTS)
    return bundle.replace("</script", "<\\/script")


def _script_json(value: Mapping[str, Any]) -> str:
    """JSON that cannot end the script that holds it."""
    return json.dumps(value, allow_nan=False).replace("<", "\\u003c")


def _table_row(boundary: Boundary) -> str:
    low, high = boundary.loads
    over = UNKNOWN if high is None else f"{high}"
    width = boundary.relative_width
    cells = (
        format_size(boundary.bpm),
        format_load(low, boundary.axis),
        format_count(boundary.mps),
        format_mb_per_s(boundary.mb_per_s),
        format_mb_per_s(boundary.mb_per_s_per_broker),
        f"{low}–{over}",
        "open" if width is None else format_ratio(width),
    )
    bound = boundary.limited_by or ("not known" if boundary.np_overloaded else "no overload seen")
    evidence = boundary.gave_up or boundary.evidence or "; ".join(boundary.overload_reasons)
    last = f"<td>{escape(bound)}<small>{escape(evidence)}</small></td>"
    return "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + last + "</tr>"

"""Pictures and scripts of charts with vl-convert, a dependency of `kafka-redline[charts]`."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from typing import Any

from metrics.reporting.kept_script import kept

try:
    import vl_convert
except ModuleNotFoundError:  # pages show `MISSING` instead of charts
    vl_convert = None  # type: ignore[assignment]  # mypy sees the extra installed

MISSING = (
    "Charts are missing because vl-convert is not installed. Run pip install "
    "'kafka-redline[charts]', then create this page again. The page's tables show the charts' data."
)
# JavaScript that exports the bundle to other scripts of the page.
_EXPORTS = "window.vegaEmbed = vegaEmbed;"
_SMALLEST = {"data": {"values": [{}]}, "mark": "point"}
_making = threading.Lock()

log = logging.getLogger(__name__)


def can_draw() -> bool:
    """True if vl-convert is installed."""
    return vl_convert is not None


def png(spec: Mapping[str, Any]) -> bytes:
    """Draw a chart as PNG; requires `can_draw()`."""
    picture: bytes = vl_convert.vegalite_to_png(dict(spec), scale=2.0)
    return picture


def svg(spec: Mapping[str, Any]) -> str:
    """Draw a chart as SVG; requires `can_draw()`."""
    return str(vl_convert.vegalite_to_svg(dict(spec)))


def prepare() -> None:
    """Load vl-convert and Altair in a background thread, so that the first chart is faster.

    Call this function only while no trial runs, because Python's other threads are blocked most of
    the time while the libraries load.
    """
    if can_draw():
        threading.Thread(target=_make_ready, name="redline-drawing", daemon=True).start()


def _make_ready() -> None:
    try:
        vega()
        png(_SMALLEST)
        import_module("altair")
    except Exception as error:  # noqa: BLE001 - the first chart meets the same error and reports it
        log.debug("vl-convert cannot be loaded in advance: %s", error)


def vega() -> str:
    """One script with Vega, Vega-Lite and Vega-Embed that can be embedded in HTML."""
    with _making:
        return _vega()


@lru_cache(maxsize=1)
def _vega() -> str:
    bundle = vl_convert.javascript_bundle
    return kept(_EXPORTS, lambda: str(bundle(_EXPORTS)).replace("</script", "<\\/script"))

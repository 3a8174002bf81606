"""Pictures and scripts of charts, by vl-convert, which is an extra: `kafka-redline[charts]`."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

try:
    import vl_convert
except ModuleNotFoundError:  # then pages have tables in place of charts, and say so
    vl_convert = None  # type: ignore[assignment]  # mypy sees the extra installed

MISSING = (
    "Charts are not drawn, as vl-convert is not installed here: pip install "
    "'kafka-redline[charts]', then write this page again. The tables have the same figures."
)
_PNG_SCALE = 2.0
# What the bundle shows to the script after it.
_EXPORTS = "window.vegaEmbed = vegaEmbed;"
_SMALLEST = {"data": {"values": [{}]}, "mark": "point"}
_making = threading.Lock()

log = logging.getLogger(__name__)


def can_draw() -> bool:
    """Whether the extra is there."""
    return vl_convert is not None


def png(spec: Mapping[str, Any]) -> bytes:
    """A chart as a picture; only where `can_draw`."""
    picture: bytes = vl_convert.vegalite_to_png(dict(spec), scale=_PNG_SCALE)
    return picture


def svg(spec: Mapping[str, Any]) -> str:
    """A chart as a drawing; only where `can_draw`."""
    return str(vl_convert.vegalite_to_svg(dict(spec)))


def prepare() -> None:
    """Make ready what the first picture and page would wait 1.5 s for, in a thread of its own.

    Python's other threads stand still for most of it, so no trial may be running.
    """
    if can_draw():
        threading.Thread(target=_make_ready, name="redline-drawing", daemon=True).start()


def _make_ready() -> None:
    try:
        vega()
        png(_SMALLEST)
    except Exception as error:  # noqa: BLE001 - the page that needs it meets it again, and tells it
        log.debug("charts are not made ready: %s", error)


def vega() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script; `</script` would end it early."""
    with _making:
        return _vega()


@lru_cache(maxsize=1)
def _vega() -> str:
    bundle = vl_convert.javascript_bundle(_EXPORTS)
    return str(bundle).replace("</script", "<\\/script")

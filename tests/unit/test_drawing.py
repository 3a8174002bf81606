"""The script and the renderer of charts are made once; callers wait until they are ready."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping

import pytest

from metrics.reporting import drawing
from tests.support.processes import PATIENCE_S


class Drawn:
    """A replacement of vl-convert that makes the script when the test allows it."""

    def __init__(self) -> None:
        self.begun, self.may_go_on = threading.Event(), threading.Event()
        self.scripts = self.pictures = 0

    def javascript_bundle(self, exports: str) -> str:
        self.scripts += 1
        self.begun.set()
        assert self.may_go_on.wait(PATIENCE_S)
        return f"vega = 1; {exports} '</script>'"

    def vegalite_to_png(self, spec: Mapping[str, object], scale: float) -> bytes:
        self.pictures += 1
        return b"a picture"


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Iterator[Drawn]:
    """The replacement of vl-convert, before the script is made."""
    stands_in = Drawn()
    monkeypatch.setattr(drawing, "vl_convert", stands_in)
    drawing._vega.cache_clear()
    yield stands_in
    drawing._vega.cache_clear()


def wait_until_prepared() -> None:
    """Wait until the thread that `prepare` started has ended."""
    for thread in threading.enumerate():
        if thread.name == "redline-drawing":
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


def test_a_caller_waits_for_a_script_that_is_being_made(drawn: Drawn) -> None:
    drawing.prepare()
    assert drawn.begun.wait(PATIENCE_S)
    found: list[str] = []
    page = threading.Thread(target=lambda: found.append(drawing.vega()))
    page.start()
    page.join(0.1)
    assert page.is_alive()
    drawn.may_go_on.set()
    page.join(PATIENCE_S)
    wait_until_prepared()
    assert found == ["vega = 1; window.vegaEmbed = vegaEmbed; '<\\/script>'"]
    assert (drawn.scripts, drawn.pictures) == (1, 1)


def test_a_failure_is_logged_and_raised_again_by_the_page(
    drawn: Drawn, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def breaks(exports: str) -> str:
        raise ValueError("no script engine")

    monkeypatch.setattr(drawn, "javascript_bundle", breaks)
    with caplog.at_level(logging.DEBUG, logger=drawing.log.name):
        drawing.prepare()
        wait_until_prepared()
    assert caplog.messages == ["vl-convert cannot be loaded in advance: no script engine"]
    with pytest.raises(ValueError, match="no script engine"):
        drawing.vega()


def test_without_vl_convert_nothing_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "vl_convert", None)
    drawing.prepare()
    assert "redline-drawing" not in {thread.name for thread in threading.enumerate()}

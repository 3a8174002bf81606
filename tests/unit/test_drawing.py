"""The script and the renderer of charts are made once; callers wait until they are ready."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from metrics.reporting import drawing, kept_script
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
    monkeypatch.setattr(kept_script, "_folders", [])
    drawing._vega.cache_clear()
    yield stands_in
    drawing._vega.cache_clear()


def wait_until_prepared() -> None:
    """Wait until the thread that `prepare` started has ended."""
    for thread in threading.enumerate():
        if thread.name == "redline-drawing":
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


def test_a_caller_waits_for_a_script_that_is_being_made(
    drawn: Drawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []
    monkeypatch.setattr(drawing, "import_module", loaded.append)
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
    assert loaded == ["altair"]
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


def made_anew(drawn: Drawn) -> tuple[str, int]:
    """The script of a new process, and how many scripts were made until now."""
    drawn.may_go_on.set()
    drawing._vega.cache_clear()
    return drawing.vega(), drawn.scripts


def test_a_script_is_made_once_for_all_processes_of_a_release(
    drawn: Drawn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept_script.keep_in(tmp_path / "charts")
    kept_script.keep_in(tmp_path / "others")
    first = made_anew(drawn)
    assert first == ("vega = 1; window.vegaEmbed = vegaEmbed; '<\\/script>'", 1)
    assert made_anew(drawn) == first
    (file,) = (tmp_path / "charts").iterdir()
    assert not (tmp_path / "others").exists()
    for number, damaged in enumerate((file.read_bytes()[:-1], b"\xff"), 2):
        file.write_bytes(damaged)
        assert made_anew(drawn) == made_anew(drawn) == (first[0], number)
    for number, release in enumerate(("99.0", None), 4):
        monkeypatch.setattr(kept_script, "_release", lambda release=release: release)
        assert made_anew(drawn)[1] == number
    assert len(list((tmp_path / "charts").iterdir())) == 2


def test_a_folder_that_cannot_be_written_costs_only_time(
    drawn: Drawn, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    kept_script.keep_in(tmp_path / "file" / "charts")
    with caplog.at_level(logging.DEBUG, logger=kept_script.log.name):
        script, _ = made_anew(drawn)
    assert made_anew(drawn) == (script, 2)
    assert "is not kept in" in caplog.text

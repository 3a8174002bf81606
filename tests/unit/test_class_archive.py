"""A class archive is complete or missing, and its name depends on Java and the class path."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.setup.class_archive import archive_path, read_options
from jobs.spark import prepare


@pytest.fixture
def java(tmp_path: Path) -> Path:
    launcher = tmp_path / "java"
    launcher.write_text("")
    return launcher


def test_another_class_path_or_another_java_has_another_archive(tmp_path: Path, java: Path) -> None:
    of_two = archive_path(tmp_path, "spark", str(java), ["a.jar", "b.jar"])
    assert of_two == archive_path(tmp_path, "spark", str(java), ["a.jar", "b.jar"])
    assert of_two != archive_path(tmp_path, "spark", str(java), ["a.jar"])
    java.unlink()
    (tmp_path / "newer").write_text("")
    java.symlink_to(tmp_path / "newer")
    assert of_two != archive_path(tmp_path, "spark", str(java), ["a.jar", "b.jar"])


def test_a_jvm_starts_without_an_archive_that_is_not_there(tmp_path: Path) -> None:
    archive = tmp_path / "spark.jsa"
    assert read_options(archive) == []
    archive.touch()
    assert f"-XX:SharedArchiveFile={archive}" in read_options(archive)


class Session:
    """A replacement of a session whose JVM writes an archive or a part of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, archive: Path, exit_code: int) -> None:
        self.exit_code = exit_code
        self.started = 0
        monkeypatch.setattr(prepare, "session_archive", lambda: archive)
        monkeypatch.setattr(prepare, "local_session", self.start)
        monkeypatch.setattr(prepare, "close_session", self.close)
        monkeypatch.setattr(prepare, "_use", lambda session, table: None)

    def start(self, slots: int, app_name: str, *, java_options: list[str]) -> Session:
        self.started += 1
        (option,) = (o for o in java_options if o.startswith("-XX:ArchiveClassesAtExit="))
        self.draft = Path(option.partition("=")[2])
        return self

    def close(self, session: Session, timeout_s: float) -> int:
        self.draft.write_text("classes")
        return self.exit_code


def test_the_archive_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "classes" / "spark.jsa"
    session = Session(monkeypatch, archive, exit_code=0)
    for _ in range(2):
        assert prepare.make_archive() == archive
    assert archive.read_text() == "classes"
    assert session.started == 1
    assert list(archive.parent.iterdir()) == [archive]


def test_an_archive_of_a_jvm_that_was_ended_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "classes" / "spark.jsa"
    Session(monkeypatch, archive, exit_code=-9)
    prepare.make_archive()
    assert list(archive.parent.iterdir()) == []


def test_set_up_without_an_archive_reports_the_reason_and_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    Session(monkeypatch, tmp_path / "file" / "classes" / "spark.jsa", exit_code=0)
    assert prepare.main() == 1
    assert "Not a directory" in capsys.readouterr().err

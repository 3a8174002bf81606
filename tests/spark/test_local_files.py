"""Files of a local session are like Hadoop's own, without a process for each file."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import SparkConf

from jobs.setup.jars import delta_jars
from jobs.spark import session
from jobs.spark.session import NAME, SETTINGS
from metrics.common.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLASS_PATH = "spark.driver.extraClassPath"


class Files:
    """The local file systems of a session, and of Hadoop itself."""

    def __init__(self, spark: SparkSession) -> None:
        context: Any = spark.sparkContext
        self.java = context._jvm
        self.hadoop = self.java.org.apache.hadoop.fs
        self.conf = context._jsc.hadoopConfiguration()
        self.ours = self.path(Path("/")).getFileSystem(self.conf)
        self.theirs = self.hadoop.LocalFileSystem()
        self.theirs.initialize(self.java.java.net.URI("file:///"), self.conf)

    def path(self, path: Path) -> Any:
        return self.hadoop.Path(str(path))

    def mode(self, mode: int) -> Any:
        return self.hadoop.permission.FsPermission(f"{mode:o}")


@pytest.fixture
def files(spark: SparkSession) -> Files:
    return Files(spark)


def test_a_session_uses_them_through_both_interfaces(files: Files) -> None:
    assert files.ours.getClass().getName() == NAME
    context = files.hadoop.FileContext.getLocalFSFileContext(files.conf)
    assert context.getDefaultFileSystem().getClass().getName() == f"{NAME}$Checked"


@pytest.mark.parametrize("mode", [0o600, 0o444, 0o755, 0o1777])
def test_a_mode_is_set_like_by_hadoop(files: Files, tmp_path: Path, mode: int) -> None:
    found = []
    for name, system in (("ours", files.ours), ("theirs", files.theirs)):
        file, folder = tmp_path / f"{name}-file", tmp_path / f"{name}-folder"
        system.create(files.path(file)).close()
        system.setPermission(files.path(file), files.mode(mode))
        system.mkdirs(files.path(folder), files.mode(mode))
        found.append((file.stat().st_mode, folder.stat().st_mode))
    ours, theirs = found
    assert ours == theirs
    assert ours[0] & 0o7777 == mode


def test_a_new_file_has_the_mode_and_the_checksum_of_hadoop(files: Files, tmp_path: Path) -> None:
    for name, system in (("ours", files.ours), ("theirs", files.theirs)):
        stream = system.create(files.path(tmp_path / name))
        stream.writeBytes("what is written")
        stream.close()
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    assert ours.stat().st_mode == theirs.stat().st_mode
    sums = [path.with_name(f".{path.name}.crc") for path in (ours, theirs)]
    assert sums[0].stat().st_mode == sums[1].stat().st_mode
    assert sums[0].read_bytes() == sums[1].read_bytes()


def test_a_link_is_distinguished_from_its_target(files: Files, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("here")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    context = files.hadoop.FileContext.getLocalFSFileContext(files.conf)
    statuses = {}
    for name in ("file", "link", "dangling"):
        status = context.getFileLinkStatus(files.path(tmp_path / name))
        leads_to = status.getSymlink().getName() if status.isSymlink() else None
        statuses[name] = (status.getLen(), leads_to)
    assert statuses["file"] == (4, None)
    assert statuses["link"] == (4, "file")
    assert statuses["dangling"][1] == "nothing"


def test_a_rename_does_not_write_over_a_file(files: Files, tmp_path: Path) -> None:
    """Delta's log depends on this, as its commits are renames."""
    for name in ("first", "second"):
        (tmp_path / name).write_text(name)
    context = files.hadoop.FileContext.getLocalFSFileContext(files.conf)
    no_options = files.java.java.lang.reflect.Array.newInstance(
        files.java.java.lang.Class.forName("org.apache.hadoop.fs.Options$Rename"), 0
    )
    first, second, new = (files.path(tmp_path / name) for name in ("first", "second", "new"))
    with pytest.raises(Exception, match="FileAlreadyExists"):
        context.rename(first, second, no_options)
    assert (tmp_path / "second").read_text() == "second"
    context.rename(first, new, no_options)
    assert (tmp_path / "new").read_text() == "first"


def test_a_session_uses_hadoops_own_files_without_the_jar(monkeypatch: pytest.MonkeyPatch) -> None:
    def conf() -> dict[str, str]:
        return dict(session._local_conf(2, "tests", Path(), ()).getAll())

    def no_jar(*_: object) -> Path:
        raise ConfigError("the cache cannot be written")

    monkeypatch.setattr("pyspark.SparkConf", partial(SparkConf, loadDefaults=False))
    delta = os.pathsep.join(map(str, delta_jars()))
    usual = conf()
    assert usual.items() >= SETTINGS.items()
    assert usual[CLASS_PATH].startswith(delta) and usual[CLASS_PATH].endswith(f"/{NAME}.jar")
    monkeypatch.setattr(session, "java_jar", no_jar)
    without = conf()
    assert SETTINGS.keys().isdisjoint(without)
    assert without[CLASS_PATH] == delta

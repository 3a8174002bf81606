"""Functions for output files: they write files atomically, and check the paths before a command
begins its work.
"""

from __future__ import annotations

import errno
import io
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkstemp
from typing import BinaryIO

from metrics.common.errors import ConfigError

NOT_OFFERED = frozenset({errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL})
"""Errors of a file system that does not support an operation, such as appending or locking."""


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write `content` to a temporary file in the folder of `path`, then rename the file to `path`.

    If `path` is a device, a pipe or a link, such as /dev/stdout, write to it directly.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    if path.is_symlink() or (path.exists() and not path.is_file()):
        path.write_bytes(data)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def open_private(path: Path, *, appends: bool = False) -> BinaryIO:
    """Open a file for writing with access only for its owner."""
    mode = os.O_APPEND if appends else os.O_TRUNC
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | mode, 0o600)
    if not appends and os.name == "posix":
        os.fchmod(descriptor, 0o600)  # an existing file would keep its mode
    return os.fdopen(descriptor, "ab" if appends else "wb")


def write_private(path: Path, content: str | bytes) -> None:
    """Write a file with access only for its owner."""
    data = content.encode(errors="backslashreplace") if isinstance(content, str) else content
    with open_private(path) as file:
        file.write(data)


def open_to_append(path: Path) -> BinaryIO:
    """Open a log for appending; only its owner can read a new log.

    Some file systems accept only whole files, for example volumes of Databricks and other mounts of
    object stores. If the file system accepts only whole files, the function first writes the
    earlier content again.
    """
    if _can_append(path.parent):
        return open_private(path, appends=True)
    before = path.read_bytes() if path.exists() else b""
    file = open_private(path)
    file.write(before)
    file.flush()
    return file


def _can_append(folder: Path) -> bool:
    """True if a test shows that the file system of a folder supports appending to a file.

    Other errors of the test, such as a full disk, are ignored, because the caller's own write fails
    with the same error.
    """
    try:
        with _probe_in(folder) as probe, probe.open("ab") as file:
            file.write(b"x")
    except OSError as error:
        return error.errno not in NOT_OFFERED
    return True


@contextmanager
def _probe_in(folder: Path) -> Iterator[Path]:
    """A closed temporary file with one byte. The file is deleted at the end of the context.

    The file has a name, because mounts of object stores do not support files without a name.
    """
    descriptor, name = mkstemp(dir=folder, prefix=".probe-")
    probe = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(b"x")
        yield probe
    finally:
        probe.unlink(missing_ok=True)


def write_file(name: str, path: Path, content: str | bytes) -> None:
    """Write a file to a path that the user gave. The write is atomic.

    Args:
        name: text for the file in the error message: the kind of file, or the option that sets
            the file's path.

    Raises:
        ConfigError: the file cannot be written.
    """
    try:
        write_atomic(path, content)
    except (OSError, ValueError) as error:
        raise _unwritable(name, path, error) from None


def json_text(document: object) -> str:
    """The text of a JSON file for programs."""
    return json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False, default=str) + "\n"


def yaml_text(document: object, width: int | None = None) -> str:
    """The text of a YAML file with an indentation that is easy to read.

    Args:
        width: length from which the library folds lines [characters]; None for its default.
    """
    from ruamel.yaml import YAML  # imported here, because few commands write YAML

    writer = YAML()
    writer.width = width
    writer.indent(mapping=2, sequence=4, offset=2)
    text = io.StringIO()
    writer.dump(document, text)
    return text.getvalue()


def write_json_file(path: Path | None, document: object) -> None:
    """Write the answer as JSON to the file of the option `--json`.

    If the user did not give the option `--json` (`path` is None), no file is written.
    """
    if path is not None:
        write_file("--json", path, json_text(document))


def require_new(name: str, path: Path, *, is_forced: bool) -> None:
    """Check that a file can be written. An existing file is an error unless `--force` is given.

    Args:
        name: text for the file in the error message: the kind of file, or the option that sets
            the file's path.
        path: path of the file.
        is_forced: True with the option `--force`.

    Raises:
        ConfigError: the file exists, or cannot be written.
    """
    if path.exists() and not is_forced:
        other = "" if name == "FILE" else f" with {name}"
        raise ConfigError(
            f"{path} exists already; expected a new file; name another file{other}, or add --force"
        )
    require_place(name, path)


def require_place(name: str, path: Path) -> None:
    """Check that `write_file` can write to a path. The check does not change the file.

    Args:
        name: text for the file in the error message: the kind of file, or the option that sets
            the file's path.
        path: path of the file.

    Raises:
        ConfigError: the file exists and is not writable, or its nearest existing folder is not
            writable.
    """
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if path.exists() and (path.is_symlink() or not path.is_file()):  # see `write_atomic`
            if not os.access(path, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            return
        with suppress(FileNotFoundError):  # a too long name raises another error
            path.lstat()
        folder = next(each for each in path.absolute().parents if each.exists())
        with _probe_in(folder):
            pass
    except (OSError, ValueError) as error:
        raise _unwritable(name, path, error) from None


def _unwritable(name: str, path: Path, error: OSError | ValueError) -> ConfigError:
    why = getattr(error, "strerror", None) or error
    return ConfigError(
        f"{name} {path} cannot be written ({why}); expected a file in a writable folder; "
        "change the permissions, or name another file"
    )

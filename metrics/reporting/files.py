"""Files that the user names: written atomically, and checked before the work begins."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkstemp
from typing import BinaryIO

from metrics.common.errors import ConfigError

NOT_OFFERED = frozenset({errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL})
"""Errors of a file system that does not offer an operation, such as appending or locking."""


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write `content` to a temporary file beside `path`, then rename it to `path`.

    A device, a pipe or a link, such as /dev/stdout, is written to directly.
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
    """Open a file for writing that only its owner can ever read."""
    mode = os.O_APPEND if appends else os.O_TRUNC
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | mode, 0o600)
    if not appends and os.name == "posix":
        os.fchmod(descriptor, 0o600)  # of a file that existed
    return os.fdopen(descriptor, "ab" if appends else "wb")


def write_private(path: Path, content: str | bytes) -> None:
    """Write a file that only its owner can ever read."""
    data = content.encode(errors="backslashreplace") if isinstance(content, str) else content
    with open_private(path) as file:
        file.write(data)


def open_to_append(path: Path) -> BinaryIO:
    """Open a log for writing after its content; only its owner can read a new one.

    Some file systems take whole files only, such as the volumes of Databricks and other mounts of
    object stores. There the file is written again, beginning with its earlier content.
    """
    if _can_append(path.parent):
        return open_private(path, appends=True)
    before = path.read_bytes() if path.exists() else b""
    file = open_private(path)
    file.write(before)
    file.flush()
    return file


def _can_append(folder: Path) -> bool:
    """Whether the file system of a folder appends to files; some refuse it only at the write.

    Other errors, such as a full disk, are left to the caller's own write.
    """
    try:
        with _probe_in(folder) as probe, probe.open("ab") as file:
            file.write(b"x")
    except OSError as error:
        return error.errno not in NOT_OFFERED
    return True


@contextmanager
def _probe_in(folder: Path) -> Iterator[Path]:
    """A file with one byte, which is closed, and deleted afterwards.

    A file without a name needs no deletion, but mounts of object stores do not take its bytes.
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
    """Write a file that the user named, atomically.

    Args:
        name: the kind of file, or the option that names it, for the error message.

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


def write_json_file(path: Path | None, document: object) -> None:
    """Write the answer for programs to the file that `--json` names, if it names one."""
    if path is not None:
        write_file("--json", path, json_text(document))


def require_new(name: str, path: Path, *, is_forced: bool) -> None:
    """Check that a file that people edit can be written, and is not replaced without `--force`.

    Args:
        name: as in `write_file`.

    Raises:
        ConfigError: the file exists, or cannot be written.
    """
    if path.exists() and not is_forced:
        other = "" if name == "FILE" else f" with {name}"
        raise ConfigError(
            f"{path} exists already; expected a new file; name another{other}, or add --force"
        )
    require_place(name, path)


def require_place(name: str, path: Path) -> None:
    """Check that `write_file` will be able to write to a path; change nothing.

    Args:
        name: as in `write_file`.

    Raises:
        ConfigError: the nearest existing folder is not writable, or the existing file is not.
    """
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if path.exists() and (path.is_symlink() or not path.is_file()):  # written to directly
            if not os.access(path, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            return
        with suppress(FileNotFoundError):  # a name that is too long raises another error
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
        "change its permissions, or name another file"
    )

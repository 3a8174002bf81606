"""Files that people ask for: written whole or not at all, and refused before anything is done."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile

from metrics.common.errors import ConfigError


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write `content` to `path` by way of a temporary file beside it and a rename.

    A device, a pipe or a link, such as /dev/stdout, is written to and never replaced.
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


def write_file(name: str, path: Path, content: str | bytes) -> None:
    """Write what somebody asks for into a file, whole or not at all.

    Args:
        name: what the file is, or the option that names it, for whoever reads the error.

    Raises:
        ConfigError: it cannot be written there.
    """
    try:
        write_atomic(path, content)
    except (OSError, ValueError) as error:
        raise _unwritable(name, path, error) from None


def require_place(name: str, path: Path) -> None:
    """Check, before there is anything to write, that a file can be left there; leaves nothing.

    Args:
        name: as `write_file` takes it.

    Raises:
        ConfigError: its folder, or the nearest that exists, takes no file, or what is there
            already cannot be written.
    """
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if path.exists() and (path.is_symlink() or not path.is_file()):  # written to as it is
            if not os.access(path, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            return
        with suppress(FileNotFoundError):  # and no other, as of a name that is too long
            path.lstat()
        folder = next(each for each in path.absolute().parents if each.exists())
        with TemporaryFile(dir=folder) as probe:
            probe.write(b"x")
    except (OSError, ValueError) as error:
        raise _unwritable(name, path, error) from None


def _unwritable(name: str, path: Path, error: OSError | ValueError) -> ConfigError:
    why = getattr(error, "strerror", None) or error
    return ConfigError(
        f"{name} {path} cannot be written ({why}); expected a file in a folder that can be "
        "written to; make it so, or name another"
    )

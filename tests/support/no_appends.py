"""A layer that refuses to append to files of a folder and to lock them, for a whole process.

Audit hooks see each opening and each lock of Python, and cannot be removed, so only a process of
its own plants the layer. The openings that were refused are counted, so that a test can tell that
the layer was there. `tests.support.whole_file_volume` refuses the same to every process.
"""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import Any

refused: list[str] = []
"""What was refused so far: `append NAME` or `lock NAME`."""
_LOCKS = ("fcntl.flock", "fcntl.lockf")


def plant(folder: Path) -> None:
    """Refuse appends and locks below `folder` from now on, each with EOPNOTSUPP."""
    root = str(folder.resolve())

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], (str, bytes, os.PathLike)):
            path, flags = os.path.realpath(os.fsdecode(arguments[0])), arguments[2] or 0
            if flags & os.O_APPEND:
                _refuse("append", root, path)
        elif event in _LOCKS:
            _refuse("lock", root, os.path.realpath(f"/proc/self/fd/{_number(arguments[0])}"))

    sys.addaudithook(hook)


def _refuse(what: str, root: str, path: str) -> None:
    if path.startswith(f"{root}/"):
        refused.append(f"{what} {Path(path).name}")
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), path)


def _number(file: Any) -> int:
    return int(file if isinstance(file, int) else file.fileno())

"""The files that a run writes; each is written even where another one fails."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from metrics.common.errors import ConfigError


class ArtifactWriter:
    """Writes the files of a run, and collects the failures.

    Attributes:
        written: the written files in order, as (kind, path).
    """

    def __init__(self) -> None:
        self.written: list[tuple[str, str]] = []
        self._failures: list[str] = []

    def write(self, what: str, path: Path, write: Callable[[], object]) -> bool:
        """Write a file; False where the disk is full or denies it."""
        try:
            write()
        except OSError as error:
            self._failures.append(f"{path} ({error.strerror or error})")
            return False
        except ConfigError as error:  # the message names the path
            self._failures.append(str(error))
            return False
        self.written.append((what, str(path)))
        return True

    def write_answer_file(
        self, what: str, path: Path, copy: Path | None, write: Callable[[Path], object]
    ) -> None:
        """Write the answer for programs to its path, and to the file of --json."""
        for each in (path, *([copy] if copy is not None else [])):
            self.write(what, each, partial(write, each))

    def require_all(self, remedy: str) -> None:
        """Require that all files were written; to be called after everything else.

        Args:
            remedy: how the user gets the missing files.

        Raises:
            ConfigError: a file could not be written.
        """
        if self._failures:
            raise ConfigError(
                f"not written: {', '.join(self._failures)}; expected free space and permission "
                f"there; all results are in the tables; {remedy}"
            )


def regeneration_hint(run_id: str) -> str:
    """The remedy for missing files of a run, for `ArtifactWriter.require_all`."""
    return f"fix the disk, then write the summary and the report with redline report {run_id}"

"""The files that a run leaves: one that cannot be written keeps none of the others away."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from metrics.common.errors import ConfigError


class ArtifactWriter:
    """What a run leaves at its end, each file on its own.

    Attributes:
        written: what was left, as (what, where), in order.
    """

    def __init__(self) -> None:
        self.written: list[tuple[str, str]] = []
        self._lacking: list[str] = []

    def write(self, what: str, path: Path, write: Callable[[], object]) -> bool:
        """Write a file; False where a full or a forbidden disk does not take it."""
        try:
            write()
        except OSError as error:
            self._lacking.append(f"{path} ({error.strerror or error})")
            return False
        except ConfigError as error:  # which names the path
            self._lacking.append(str(error))
            return False
        self.written.append((what, str(path)))
        return True

    def write_answer_file(
        self, what: str, path: Path, copy: Path | None, write: Callable[[Path], object]
    ) -> None:
        """Write the answer for programs in its place, and where --json asks for it, too."""
        for each in (path, *([copy] if copy is not None else [])):
            self.write(what, each, partial(write, each))

    def require_all(self, remedy: str) -> None:
        """Tell what is missing, once all else is done.

        Args:
            remedy: how what is missing can still be had.

        Raises:
            ConfigError: a file could not be written.
        """
        if self._lacking:
            raise ConfigError(
                f"not written: {', '.join(self._lacking)}; expected room and permission there; "
                f"what was measured is kept in the tables; {remedy}"
            )


def regeneration_hint(run_id: str) -> str:
    """How what is missing of a run's own files can still be had."""
    return f"see to the disk, then redline report {run_id} writes the summary and the page anew"

"""A folder of jar sets, each fetched once, whole or not at all, and checked before use."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from filelock import FileLock, Timeout

from metrics.common.errors import ConfigError

MANIFEST = "manifest.json"
LOCK_TIMEOUT_S = 1200.0


class JarCache:
    """Jar sets by name; safe among threads, processes and after a crash at any moment.

    Args:
        folder: where the sets are kept; made when first written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def jars(
        self,
        name: str,
        recipe: str,
        fetch: Callable[[Path, Path], None],
        pinned: Mapping[str, str] | None = None,
    ) -> list[Path]:
        """The jars of a set, sorted by name; fetched if they are not there whole.

        Args:
            name: the set, and the name of its folder.
            recipe: what the set is made of; one that was made otherwise is made anew.
            fetch: puts the jars into its first argument; its second is a folder for its own
                use, which goes away afterwards.
            pinned: jar → its SHA-256, of a set whose jars are known; None of any other.

        Raises:
            ConfigError: the folder cannot be written, a jar is not the one that is known, or what
                `fetch` raises.
        """
        found = self._known(name, recipe, pinned)
        if found is not None:
            return found
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with FileLock(self._folder / f".{name}.lock", timeout=LOCK_TIMEOUT_S):
                # Another process may have fetched it while this one waited.
                found = self._known(name, recipe, pinned)
                return self._fetched(name, recipe, fetch, pinned) if found is None else found
        except Timeout as error:
            raise ConfigError(
                f"Another process has been fetching {name} into {self._folder} for more than "
                f"{LOCK_TIMEOUT_S / 60:.0f} minutes. Stop it, then run this again."
            ) from error
        except OSError as error:
            raise ConfigError(
                f"The jars of {name} cannot be kept in {self._folder} ({error}). "
                "Name another cache folder in the environment variable REDLINE_CACHE."
            ) from error

    def _known(self, name: str, recipe: str, pinned: Mapping[str, str] | None) -> list[Path] | None:
        """Those that are intact, and are the pinned ones where there are such."""
        found = self.intact(name, recipe)
        if found is None or pinned is None:
            return found
        manifest = json.loads((self._folder / name / MANIFEST).read_text())
        return found if manifest["jars"] == pinned else None

    def intact(self, name: str, recipe: str) -> list[Path] | None:
        """The jars of a set that is there whole and unchanged, else None."""
        folder = self._folder / name
        try:
            manifest = json.loads((folder / MANIFEST).read_text())
            if manifest["recipe"] != recipe or not manifest["jars"]:
                return None
            jars = {folder / jar: digest for jar, digest in sorted(manifest["jars"].items())}
            whole = all(_digest(path) == digest for path, digest in jars.items())
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None  # absent, cut off or not ours: the caller fetches it
        return list(jars) if whole else None

    def _fetched(
        self,
        name: str,
        recipe: str,
        fetch: Callable[[Path, Path], None],
        pinned: Mapping[str, str] | None,
    ) -> list[Path]:
        partial, work = self._folder / f".{name}.partial", self._folder / f".{name}.work"
        final = self._folder / name
        for leftover in (partial, work):  # of a process that was killed
            shutil.rmtree(leftover, ignore_errors=True)
        try:
            partial.mkdir()
            fetch(partial, work)
            jars = {jar.name: _digest(jar) for jar in sorted(partial.glob("*.jar"))}
            if pinned is not None:
                _require_pinned(name, jars, pinned)
            manifest = {"recipe": recipe, "jars": jars}
            (partial / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
            if final.exists():
                shutil.rmtree(final)
            partial.rename(final)
        finally:
            shutil.rmtree(work, ignore_errors=True)
            shutil.rmtree(partial, ignore_errors=True)
        return [final / jar for jar in jars]


def _require_pinned(name: str, jars: Mapping[str, str], pinned: Mapping[str, str]) -> None:
    other = sorted(jar for jar in {*jars, *pinned} if jars.get(jar) != pinned.get(jar))
    if other:
        raise ConfigError(
            f"of {name}, {other[0]}{f' and {len(other) - 1} more' if len(other) > 1 else ''} came "
            f"with the SHA-256 {jars.get(other[0], '(not at all)')}; expected "
            f"{pinned.get(other[0], 'no such jar')}, as conf/jars.sha256 has it; nothing of it is "
            "kept: ask whoever runs the repository what it hands out"
        )


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()

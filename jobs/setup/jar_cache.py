"""A cache of jar sets, each downloaded once, completely or not at all, and verified before use."""

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
    """Jar sets by name, safe for threads, for processes, and after a crash at any moment.

    Args:
        folder: folder of the sets; made at the first download.
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
        """The jars of a set, sorted by name; downloaded unless the set is complete.

        Args:
            name: name of the set and of its folder.
            recipe: content of the set; a set with another recipe is downloaded again.
            fetch: puts the jars into its first argument; its second argument is a folder for
                temporary files, which is deleted afterwards.
            pinned: jar → its known SHA-256; None for a set without known hashes.

        Raises:
            ConfigError: the folder cannot be written, a jar has another hash, or `fetch` fails.
        """
        found = self._find(name, recipe, pinned)
        if found is not None:
            return found
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with FileLock(self._folder / f".{name}.lock", timeout=LOCK_TIMEOUT_S):
                # Another process may have downloaded it while this one waited.
                found = self._find(name, recipe, pinned)
                return self._download(name, recipe, fetch, pinned) if found is None else found
        except Timeout as error:
            raise ConfigError(
                f"Another process has been downloading {name} into {self._folder} for more than "
                f"{LOCK_TIMEOUT_S / 60:.0f} minutes. Stop it, then run the command again."
            ) from error
        except OSError as error:
            raise ConfigError(
                f"The jars of {name} cannot be written to {self._folder} ({error}). "
                "Name another cache folder in the environment variable REDLINE_CACHE."
            ) from error

    def _find(self, name: str, recipe: str, pinned: Mapping[str, str] | None) -> list[Path] | None:
        """The jars of an intact set with the pinned hashes; None otherwise."""
        found = self.intact(name, recipe)
        if found is None or pinned is None:
            return found
        manifest = json.loads((self._folder / name / MANIFEST).read_text())
        return found if manifest["jars"] == pinned else None

    def intact(self, name: str, recipe: str) -> list[Path] | None:
        """The jars of a set that is complete and unchanged; None otherwise."""
        folder = self._folder / name
        try:
            manifest = json.loads((folder / MANIFEST).read_text())
            if manifest["recipe"] != recipe or not manifest["jars"]:
                return None
            jars = {folder / jar: digest for jar, digest in sorted(manifest["jars"].items())}
            whole = all(_digest(path) == digest for path, digest in jars.items())
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None  # missing, truncated or invalid: the caller downloads it
        return list(jars) if whole else None

    def _download(
        self,
        name: str,
        recipe: str,
        fetch: Callable[[Path, Path], None],
        pinned: Mapping[str, str] | None,
    ) -> list[Path]:
        partial, work = self._folder / f".{name}.partial", self._folder / f".{name}.work"
        final = self._folder / name
        for leftover in (partial, work):  # files of a killed process
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
            f"{other[0]}{f' and {len(other) - 1} more' if len(other) > 1 else ''} of {name} has "
            f"the SHA-256 {jars.get(other[0], '(missing)')}; expected "
            f"{pinned.get(other[0], 'no such jar')} from conf/jars.sha256; the download is "
            "deleted: ask the operator of the repository about this jar"
        )


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()

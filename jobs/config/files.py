"""Configuration files: those of conf/ by their names, and others by their paths."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from jobs.config.fields import nearest
from metrics.common.errors import ConfigError

SUFFIXES = (".yaml", ".yml")
PROPERTIES = ".properties"

BYTES_MAX = 1_000_000
"""Largest size of a configuration file [B]."""


@dataclass(frozen=True)
class ConfFile:
    """A file that was read.

    Attributes:
        label: name of the file in messages.
        stem: name of the file without folder and suffix.
        text: content of the file.
    """

    label: str
    stem: str
    text: str


def names_in(folder: str) -> tuple[str, ...]:
    """The names of the files in a folder of conf/, without .yaml."""
    place = files("conf") / folder
    names = (Path(entry.name) for entry in place.iterdir()) if place.is_dir() else ()
    return tuple(sorted(name.stem for name in names if name.suffix in SUFFIXES))


def read_conf(folder: str, name_or_path: str, asked_by: str) -> ConfFile:
    """Read a file of a folder of conf/ by its name without .yaml, or any file by its path.

    Args:
        asked_by: the option or key that names the file, for messages.

    Raises:
        ConfigError: the file does not exist, or cannot be read as text.
    """
    path = Path(name_or_path).expanduser()
    if path.suffix == PROPERTIES:
        raise ConfigError(
            f"{asked_by} {path} is a properties file of Kafka's own clients; expected a YAML file "
            f"with keys of kafka-redline; write one with redline init, and name {path.name} in it "
            "as client_properties"
        )
    if path.suffix in SUFFIXES or len(path.parts) > 1:
        return ConfFile(str(path), path.stem, _read(folder, path, asked_by))
    known = names_in(folder)
    if name_or_path in known:
        place = files("conf") / folder
        found = (place / f"{name_or_path}{suffix}" for suffix in SUFFIXES)
        own = next(each for each in found if each.is_file())
        label = f"conf/{folder}/{own.name}"
        return ConfFile(label, name_or_path, own.read_text(encoding="utf-8"))
    if path.is_file():
        raise ConfigError(
            f'{asked_by} "{name_or_path}" is a file, and its name does not end in '
            f"{' or '.join(SUFFIXES)}; expected a YAML file with keys of kafka-redline; correct "
            "the name, or write a cluster file with redline init"
        )
    close = nearest(name_or_path, known)
    meant = f"the nearest is {close}; " if close else ""
    raise ConfigError(
        f'{asked_by} "{name_or_path}" is not found in conf/{folder}; {meant}'
        f"expected one of {', '.join(known)}, or the path of a YAML file"
    )


def text_of(path: Path, bytes_max: int) -> str:
    """The text of a file of limited size, as a device may never end.

    Raises:
        OSError, ValueError: the file cannot be read, is not UTF-8, or is too large.
    """
    with path.open("rb") as file:
        data = file.read(bytes_max + 1)
    if len(data) > bytes_max:
        raise OSError(errno.EFBIG, f"it has more than {bytes_max:,} bytes")
    return data.decode("utf-8").replace("\r\n", "\n")


def _read(folder: str, path: Path, asked_by: str) -> str:
    try:
        return text_of(path, BYTES_MAX)
    except ValueError as error:
        if isinstance(error, UnicodeDecodeError):
            raise ConfigError(
                f"{asked_by} {path} is not UTF-8 text (byte {error.start}); expected YAML; save it "
                "as UTF-8"
            ) from None
        raise ConfigError(
            f"{asked_by} {str(path)!r} is not a path ({error}); expected the path of a YAML file; "
            "correct it"
        ) from None
    except FileNotFoundError:
        raise ConfigError(
            f"{asked_by} {path} does not exist; expected a YAML file, or one of "
            f"{', '.join(names_in(folder))}; correct the path"
        ) from None
    except OSError as error:
        raise ConfigError(
            f"{asked_by} {path} cannot be read ({error.strerror}); expected a readable YAML "
            "file; correct the path or its permissions"
        ) from None

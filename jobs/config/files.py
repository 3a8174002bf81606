"""Configuration files: files of conf/ by their names, and other files by their paths.

The module also reads profiles, from conf/profiles/ or from a path. A profile describes a load over
time.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import Field, ValidationError

from jobs.config.base import ConfigModel, Name, nearest
from jobs.config.problems import config_error
from jobs.config.yaml_file import ParsedFile, parse_map
from metrics.common.bounds import Number, Text
from metrics.common.errors import ConfigError
from metrics.traffic.profile import RateProfile

Conf = Annotated[str, Text(r"\S.*", "the name of a file of conf, or a path")]
SUFFIXES = (".yaml", ".yml")
PROPERTIES = ".properties"

BYTES_MAX = 1_000_000
"""Largest size of a configuration file [B]."""


@dataclass(frozen=True)
class ConfFile:
    """A configuration file and its text.

    Attributes:
        label: name of the file in messages.
        stem: name of the file, without folder and suffix.
        text: content of the file.
    """

    label: str
    stem: str
    text: str


def names_in(folder: str) -> tuple[str, ...]:
    """The names of the files in a folder of conf/, without the suffix."""
    place = files("conf") / folder
    names = (Path(entry.name) for entry in place.iterdir()) if place.is_dir() else ()
    return tuple(sorted(name.stem for name in names if name.suffix in SUFFIXES))


def read_conf(folder: str, name_or_path: str, asked_by: str) -> ConfFile:
    """Read a file of a folder of conf/ by its name without .yaml, or any file by its path.

    Args:
        asked_by: the option or the key that contains the file's name, for messages.

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
            "the suffix, or write a cluster file with redline init"
        )
    close = nearest(name_or_path, known)
    meant = f"the nearest is {close}; " if close else ""
    raise ConfigError(
        f'{asked_by} "{name_or_path}" is not found in conf/{folder}; {meant}'
        f"expected one of {', '.join(known)}, or the path of a YAML file"
    )


def bytes_of(path: str | Path, bytes_max: int = BYTES_MAX) -> bytes:
    """The content of a file; the size is limited, because a device file may have no end.

    Raises:
        OSError, ValueError: the file cannot be read, or is too large.
    """
    with Path(path).expanduser().open("rb") as file:
        data = file.read(bytes_max + 1)
    if len(data) > bytes_max:
        raise OSError(errno.EFBIG, f"it has more than {bytes_max:,} bytes")
    return data


def text_of(path: Path, bytes_max: int = BYTES_MAX) -> str:
    """The text of a file whose size is limited.

    Raises:
        OSError, ValueError: the file cannot be read, is not UTF-8, or is too large.
    """
    return bytes_of(path, bytes_max).decode("utf-8").replace("\r\n", "\n")


def _read(folder: str, path: Path, asked_by: str) -> str:
    try:
        return text_of(path)
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{asked_by} {path} is not UTF-8 text (byte {error.start}); expected YAML; save it "
            "as UTF-8"
        ) from None
    except ValueError as error:
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


ModelT = TypeVar("ModelT", bound=ConfigModel)


def load_model(
    folder: str, name_or_path: str, asked_by: str, model: type[ModelT], **replaced: Any
) -> tuple[ModelT, ParsedFile]:
    """Read and check a file of a folder of conf/, or any file by its path.

    Args:
        asked_by: as in `read_conf`.
        replaced: keys with values that replace the file's values.

    Raises:
        ConfigError: the file cannot be read or is wrong; the message states the place.
    """
    file = read_conf(folder, name_or_path, asked_by)
    source = parse_map(file.text, file.label)
    source.data.setdefault("name", file.stem)
    source.data.update(replaced)
    try:
        return model.model_validate(source.data), source
    except ValidationError as error:
        raise config_error(error, source, model) from None


POINTS_MAX = 10_000
LENGTH_MAX_S = 31_536_000.0
SHARE_MAX = 100.0


Point = Annotated[
    tuple[Annotated[float, Number(0, LENGTH_MAX_S)], Annotated[float, Number(0, SHARE_MAX)]],
    Field(strict=False),
]
Points = Annotated[tuple[Point, ...], Field(strict=False, min_length=2, max_length=POINTS_MAX)]


class Profile(ConfigModel):
    """How a load changes over time.

    Attributes:
        name: name of the profile; the file's name without .yaml if not given.
        description: a sentence for readers.
        points: pairs of a time and a share: the time since the start [s], and the share of the
            rate. The share is linear between two points; two points at the same time are a step.
            The profile repeats after its last point.
    """

    name: Name
    description: str = ""
    points: Points

    def require_consistent(self) -> None:
        """See `ConfigModel.require_consistent`."""
        times = [at_s for at_s, _ in self.points]
        if times[0] != 0 or sorted(times) != times or times[-1] <= 0:
            raise ValueError(
                f"points are at {', '.join(f'{each:g}' for each in times[:8])} s; expected the "
                "first point at 0, ascending times, and the last time above 0; correct the times"
            )
        if not self.rate.mean:
            raise ValueError(
                "all shares of points are 0; expected a mean share above 0, because the load would "
                "be 0; correct the shares"
            )

    @property
    def rate(self) -> RateProfile:
        """The profile in the form that the engine uses."""
        return RateProfile(self.name, self.points)


def load_rate_profile(name_or_path: str) -> RateProfile:
    """Read a profile of conf/profiles/ by its name without .yaml, or any profile by its path.

    Raises:
        ConfigError: the file cannot be read or is wrong; the message states the place.
    """
    return load_model("profiles", name_or_path, "--profile", Profile)[0].rate

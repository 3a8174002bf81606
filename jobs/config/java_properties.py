"""Java's properties files, configuration providers and JAAS entries, as Kafka reads them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

import javaproperties

from jobs.setup.child_environment import withhold

BYTES_MAX = 1_000_000
"""Largest size of a properties file, and of a file that a provider reads [B]."""


def read_properties(path: str) -> dict[str, str]:
    """Read a file as Java does: its bytes are ISO 8859-1, and the last value of a key counts.

    Raises:
        OSError, ValueError: the file cannot be read, or is no properties file.
    """
    data = read_bytes(path).removeprefix(b"\xef\xbb\xbf")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ValueError(
            "it is UTF-16, and Java reads one byte for each character; save it as UTF-8"
        )
    return dict(javaproperties.loads(data))


def read_bytes(path: str) -> bytes:
    """The content of a file of limited size, as a device may never end.

    Raises:
        OSError, ValueError: the file cannot be read, or is too large.
    """
    with Path(path).expanduser().open("rb") as file:
        data = file.read(BYTES_MAX + 1)
    if len(data) > BYTES_MAX:
        raise ValueError(f"it has more than {BYTES_MAX:,} bytes")
    return data


# --- configuration providers ----------------------------------------------------

_PLACE = re.compile(r"\$\{([^}:]*):(?:([^}]*):)?([^}:]*)\}")
_KINDS = {
    "EnvVarConfigProvider": "env",
    "FileConfigProvider": "file",
    "DirectoryConfigProvider": "dir",
}
"""Kafka's own providers, by the names of their classes."""
_USUAL = {"env": "env", "file": "file", "dir": "dir", "directory": "dir"}
"""Names of providers that work without `config.providers`, too."""


def resolved(text: str, given: Mapping[str, str]) -> str:
    """A value with its references to providers replaced by their values.

    Args:
        given: all properties of the file, which declare providers by `config.providers`.

    Raises:
        ValueError: a provider is unknown, or does not have the value.
    """
    return _PLACE.sub(lambda found: _looked_up(found, given), text)


def _looked_up(found: re.Match[str], given: Mapping[str, str]) -> str:
    name, path, key = found[1], found[2] or "", found[3]
    kind = _kind_of(name, given)
    if kind is None:  # Kafka leaves such a text as it is
        return found[0]
    if kind == "env":
        withhold(key)
        value = os.environ.get(key)
        if value is None or not _matches(name, key, given):
            raise ValueError(
                f"{found[0]}, and the environment variable {key} is not set (or not in "
                f"allowlist.pattern); set {key} before the run"
            )
        return value
    if not path:
        raise ValueError(f"{found[0]}, which has no path; expected ${{{name}:/PATH:KEY}}")
    if not _is_allowed(name, path, given):
        raise ValueError(
            f"{found[0]}, whose path is not below config.providers.{name}.param.allowed.paths; "
            "correct one of them"
        )
    return _from_files(found[0], kind, path, key)


def files_in(text: str, given: Mapping[str, str]) -> list[str]:
    """The files that the providers of a value read; see `resolved`."""
    found = [(_kind_of(each[1], given), each[2], each[3]) for each in _PLACE.finditer(text)]
    return [
        path if kind == "file" else str(Path(path) / key)
        for kind, path, key in found
        if kind in ("file", "dir") and path
    ]


def _from_files(place: str, kind: str, path: str, key: str) -> str:
    try:
        if kind == "dir":
            return read_bytes(str(Path(path) / key)).decode("utf-8")
        value = read_properties(path).get(key)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ValueError(f"{place}, which cannot be read ({why}); correct the path") from None
    if value is None:
        raise ValueError(f"{place}, and {path} has no {key}; add it there, or correct the key")
    return value


def _kind_of(name: str, given: Mapping[str, str]) -> str | None:
    """The kind of a provider; None for a text that no provider replaces.

    Raises:
        ValueError: the provider's class is not one of Kafka's own.
    """
    declared = [each.strip() for each in given.get("config.providers", "").split(",")]
    if name not in declared:
        return _USUAL.get(name)
    made_by = given.get(f"config.providers.{name}.class", "").strip()
    kind = _KINDS.get(made_by.rpartition(".")[2]) or ("" if made_by else _USUAL.get(name))
    if not kind:
        raise ValueError(
            f"the configuration provider {name} of class {made_by or '(none)'}; expected one of "
            f"Kafka's own {', '.join(_KINDS)}; put the value into a file or an environment variable"
        )
    return kind


def _matches(name: str, key: str, given: Mapping[str, str]) -> bool:
    pattern = given.get(f"config.providers.{name}.param.allowlist.pattern", "").strip()
    try:
        return not pattern or re.fullmatch(pattern, key) is not None
    except re.error:
        return True  # Java's patterns have forms that Python's do not


def _is_allowed(name: str, path: str, given: Mapping[str, str]) -> bool:
    allowed = given.get(f"config.providers.{name}.param.allowed.paths", "").strip()
    places = [Path(os.path.normpath(each.strip())) for each in allowed.split(",") if each.strip()]
    wanted = Path(os.path.normpath(path))
    return not places or any(wanted.is_relative_to(each) for each in places)


# --- JAAS -----------------------------------------------------------------------

_OPTION = re.compile(r"""([\w.$-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;]+))""")
_COMMENT = re.compile(r"""("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|//[^\n]*|/\*.*?\*/""", re.DOTALL)
_ESCAPE = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def jaas_options(entry: str) -> dict[str, str]:
    """The options of a JAAS entry, with the escapes in their values resolved."""
    found = {}
    for match in _OPTION.finditer(_COMMENT.sub(lambda each: each[1] or " ", entry)):
        quoted = match[2] if match[2] is not None else match[3]
        found[match[1]] = match[4] if quoted is None else _ESCAPE.sub(_unescaped, quoted)
    return found


def _unescaped(found: re.Match[str]) -> str:
    text = found[1]
    return chr(int(text, 8)) if text[0] in "01234567" else _ESCAPED.get(text, text)


def jaas_module(entry: str) -> str:
    """The class of a JAAS entry's login module without its package, such as `PlainLoginModule`."""
    words = _COMMENT.sub(lambda each: each[1] or " ", entry).split()
    return words[0].rpartition(".")[2] if words else ""

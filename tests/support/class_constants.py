"""The string constants of a Java class, read from its jar without a JVM."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path

_SIZES = {3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2, 17: 4, 18: 4,
          19: 2, 20: 2}  # fmt: skip
_UTF8, _STRING, _LONG, _DOUBLE = 1, 8, 5, 6


def text_constants(jar: Path, name: str) -> dict[str, str]:
    """Name of each static string of a class → its value (Java Virtual Machine Specification, 4).

    Args:
        name: name of the class with slashes: `org/apache/kafka/clients/CommonClientConfigs`.
    """
    with zipfile.ZipFile(jar) as archive:
        data = archive.read(f"{name}.class")
    at = 8

    def number(form: str) -> int:
        nonlocal at
        (found,) = struct.unpack_from(f">{form}", data, at)
        at += struct.calcsize(form)
        return int(found)

    texts: dict[int, str] = {}
    strings: dict[int, int] = {}
    index, count = 1, number("H")
    while index < count:
        tag = number("B")
        if tag == _UTF8:
            length = number("H")
            texts[index] = data[at : at + length].decode("utf-8", "replace")
            at += length
        else:
            if tag == _STRING:
                strings[index] = struct.unpack_from(">H", data, at)[0]
            at += _SIZES[tag]
        index += 2 if tag in (_LONG, _DOUBLE) else 1
    at += 6
    interfaces = number("H")
    at += 2 * interfaces
    found = {}
    for _ in range(number("H")):
        at += 2
        field = texts[number("H")]
        at += 2
        for _ in range(number("H")):
            attribute, length = texts[number("H")], number("I")
            value = struct.unpack_from(">H", data, at)[0] if length == 2 else 0
            if attribute == "ConstantValue" and value in strings:
                found[field] = texts[strings[value]]
            at += length
    return found

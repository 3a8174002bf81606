"""Key stores made with OpenJDK's keytool, with the password `changeit`.

    keytool -genkeypair -alias app -keyalg EC -groupname secp256r1 -dname CN=app -validity 36500 \
        -storetype JKS -keystore client.jks -storepass changeit -keypass keypass

`client.p12` has the same key and certificate. `trust.jks`, `trust.p12` and `trust.jceks` have only
the certificate, like `cacerts.p12`, which has no password, like the cacerts of a JDK.
"""

from __future__ import annotations

import shutil
from pathlib import Path

STORES = Path(__file__).parents[1] / "data" / "key-stores"
NAMES = tuple(sorted(path.name for path in STORES.iterdir()))


def store(folder: Path, name: str) -> str:
    """Write a store to a folder, and return its path."""
    return str(shutil.copy(STORES / name, folder))

"""A key distribution centre on this machine, with Debian's krb5-kdc and PyPI's k5test."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from jobs.testbed.places import free_ports

PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit", "krb5-config")
PACKAGES = ("gssapi", "k5test")
SERVICE = "kafka/127.0.0.1"


def missing_programs() -> str:
    """A sentence that names the missing programs and packages; empty if there are none."""
    path = os.pathsep.join((os.environ["PATH"], "/usr/sbin", "/usr/local/sbin"))
    missing = [each for each in PACKAGES if importlib.util.find_spec(each) is None]
    missing += [each for each in PROGRAMS if shutil.which(each, path=path) is None]
    if not missing:
        return ""
    return (
        f"{', '.join(missing)} missing: apt-get install gcc libkrb5-dev krb5-kdc "
        "krb5-admin-server krb5-user, and pip install --no-deps -r conf/hashes-kerberos.txt"
    )


@contextmanager
def kdc() -> Iterator[Any]:
    """A realm with a user, and a service for brokers on 127.0.0.1; its keytab is at `keytab`."""
    from k5test import K5Realm

    names = {"libdefaults": {"dns_canonicalize_hostname": "false", "rdns": "false"}}
    realm = K5Realm(portbase=free_ports(1)[0], krb5_conf=names, create_host=False, get_creds=False)
    try:
        realm.addprinc(f"{SERVICE}@{realm.realm}")
        realm.extract_keytab(f"{SERVICE}@{realm.realm}", realm.keytab)
        realm.extract_keytab(realm.user_princ, realm.client_keytab)
        yield realm
    finally:
        realm.stop()

"""A server of S3 on loopback, for tests: moto's, with the jars by which Spark reaches it.

Neither is a dependency of this project, as Hadoop's access to S3 alone takes 640 MB. The tests are
skipped until both are in a folder that REDLINE_S3_TOOLS names; this makes them:

    python -m tests.support.s3_server FOLDER
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.request
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from jobs.setup.ivy import Coordinate, retrieve, spark_jar
from jobs.testbed.places import free_ports

VARIABLE: Final = "REDLINE_S3_TOOLS"
BUCKET: Final = "bucket"
_READY_S = 60.0
_NOT_NEEDED = ("org.slf4j", "org.wildfly.openssl", "software.amazon.encryption.s3")
"""Organizations whose jars Spark has, or that only encryption and another TLS library use."""


@dataclass(frozen=True)
class S3Server:
    """A running server with one empty bucket.

    Attributes:
        jars: Hadoop's access to S3, for the class path of a driver.
    """

    url: str
    jars: tuple[Path, ...]

    @property
    def settings(self) -> dict[str, str]:
        """The settings of Spark for this server; its jars are added as --jars adds them."""
        keys = {
            "endpoint": self.url,
            "endpoint.region": "us-east-1",
            "path.style.access": "true",
            "connection.ssl.enabled": "false",
            "access.key": "key",
            "secret.key": "secret",
            "aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
        }
        hadoop = {f"spark.hadoop.fs.s3a.{key}": value for key, value in keys.items()}
        return {"spark.jars": ",".join(map(str, self.jars)), **hadoop}

    @property
    def storage_options(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
        }


@contextmanager
def s3_server(log: Path) -> Iterator[S3Server]:
    """Run a server; skips the test where its tools are missing."""
    place = os.environ.get(VARIABLE, "")
    command, jars = Path(place, "moto/bin/moto_server"), tuple(Path(place, "jars").glob("*.jar"))
    if not place or not command.is_file() or not jars:
        pytest.skip(
            f"{VARIABLE} is {place!r}, without moto's server or Hadoop's jars for S3; python -m "
            f"tests.support.s3_server FOLDER makes them, then set {VARIABLE}=FOLDER"
        )
    (port,) = free_ports(1)
    with log.open("wb") as output:
        server = subprocess.Popen(
            [str(command), "-H", "127.0.0.1", "-p", str(port)],
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        running = S3Server(f"http://127.0.0.1:{port}", jars)
        _make_bucket(running.url, server, log)
        yield running
    finally:
        server.terminate()
        server.wait()


def _make_bucket(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline_s = time.monotonic() + _READY_S
    while True:
        request = urllib.request.Request(f"{url}/{BUCKET}", method="PUT")
        try:
            urllib.request.urlopen(request, timeout=_READY_S).close()
            return
        except OSError:
            if server.poll() is not None or time.monotonic() > deadline_s:
                raise AssertionError(f"moto does not serve:\n{log.read_text()}") from None
            time.sleep(0.1)


def main(place: str) -> int:
    """Make an environment with moto, and download the jars."""
    folder = Path(place)
    venv.create(folder / "moto", with_pip=True, symlinks=True)
    pip = [str(folder / "moto/bin/python"), "-m", "pip", "install", "-q"]
    subprocess.run([*pip, "moto[s3,server]"], check=True)
    hadoop = spark_jar("hadoop-client-api").stem.rpartition("-")[2]
    wanted = [Coordinate("org.apache.hadoop", "hadoop-aws", hadoop)]
    retrieve(wanted, folder / "jars", folder / "ivy", _NOT_NEEDED)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

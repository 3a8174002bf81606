"""The ready crontab, read and run as cron reads and runs it, at places of a test."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from jobs.setup.preflight import java_command
from tests.bench.ready_files import READY

CRONTAB = READY / "redline.cron"
COMMAND_MAX = 998
"""The longest command that cron takes [characters]."""
BARE_PATH = "/usr/bin:/bin"
"""The PATH with which cron starts a command, where the crontab sets none."""
_COMMANDS = ("redline", "spark-submit", "find-spark-home", "find_spark_home.py")
_SUBMITTED = re.compile(r"; (spark-submit .*?) >>\$log")


@dataclass(frozen=True)
class Cron:
    """The entry of a file in /etc/cron.d.

    Attributes:
        command: the command that the shell gets, after cron's own treatment of percent signs.
    """

    environment: dict[str, str]
    user: str
    command: str
    written: str

    @property
    def submitted(self) -> list[str]:
        """The words of the spark-submit within the command."""
        found = _SUBMITTED.search(self.command)
        assert found is not None, self.command
        return shlex.split(found[1])


def crontab(text: str) -> Cron:
    """Read a crontab with one entry."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    environment = dict(line.split("=", 1) for line in lines[:-1])
    *when, user, written = lines[-1].split(maxsplit=6)
    assert len(when) == 5
    assert re.search(r"(?<!\\)%", written) is None, "cron would end the line there"
    return Cron(environment, user, written.replace(r"\%", "%"), written)


class CronInstallation:
    """The places of the ready crontab in a folder of a test, with this project's environment.

    Attributes:
        home: stands for /opt/redline; its bin has the commands of this virtual environment.
        state: stands for /var/lib/redline, the place of results and logs.
    """

    def __init__(self, folder: Path) -> None:
        self.home, self.state = folder / "opt", folder / "var"
        for each in (self.home / "bin", self.state):
            each.mkdir(parents=True)
        for name in _COMMANDS:
            (self.home / "bin" / name).symlink_to(Path(sys.executable).with_name(name))
        text = CRONTAB.read_text(encoding="utf-8")
        java_home = str(Path(java_command()).resolve().parents[1])
        for before, after in (
            ("/opt/redline", str(self.home)),
            ("/var/lib/redline", str(self.state)),
            (crontab(text).environment["JAVA_HOME"], java_home),
        ):
            text = text.replace(before, after)
        self.cron = crontab(text)

    def run(
        self, words: list[str], timeout_s: float, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run the entry with other words in place of its spark-submit; its output is cron's mail.

        Args:
            words: the words; `$night` in one of them is the shell's variable.
            environment: variables in place of those of the crontab.
        """
        line = " ".join(word if word == "$night" else shlex.quote(word) for word in words)
        command = _SUBMITTED.sub(lambda _: f"; {line} >>$log", self.cron.command)
        variables = {**self.cron.environment, **environment}
        bare = ["env", "-i", f"PATH={BARE_PATH}", f"HOME={self.state}", "LOGNAME=redline"]
        return subprocess.run(
            [*bare, *(f"{name}={value}" for name, value in variables.items()),
             variables["SHELL"], "-c", command],
            cwd=self.state,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
            check=False,
        )  # fmt: skip

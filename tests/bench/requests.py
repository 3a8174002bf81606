"""The C program that sends requests as producers at a rate do, and shows what the kernel takes."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.bench.meter import BenchError
from tests.bench.task import Task

SOURCE = Path(__file__).with_name("requests.c")
COMPILER = "cc"


def is_possible() -> bool:
    """True where the program can be compiled, and the kernel has its calls."""
    return shutil.which(COMPILER) is not None and os.uname().sysname == "Linux"


def records_per_request(task: Task) -> int:
    """Records of a request while the brokers keep up: those of a linger, up to a full batch."""
    lingered = int(task.records_per_s * task.linger_ms / 1000.0) + 1
    return max(1, min(lingered, task.batch_bytes // task.message_bytes))


def kernel(task: Task) -> None:
    """Compile the program, and replace this process with it.

    Raises:
        BenchError: the compiler refuses it.
    """
    program = SOURCE.parents[2] / ".cache" / "requests"
    program.parent.mkdir(exist_ok=True)
    own = program.with_suffix(f".{os.getpid()}")  # another benchmark may run the program now
    command = [COMPILER, "-O2", "-o", str(own), str(SOURCE)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise BenchError(f"{COMPILER} cannot compile {SOURCE.name}: {done.stderr.strip()[-300:]}")
    own.replace(program)
    records = records_per_request(task)
    requests_per_s = task.producers * task.records_per_s / records
    figures = (task.producers, records * task.message_bytes, requests_per_s, task.seconds_max)
    os.execv(program, [str(program), *map(str, figures)])

"""Log segments that are dropped from the page cache come from the disk again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jobs.testbed.handle import forget
from metrics.common.errors import ConfigError
from tests.support.processes import becomes


def is_cached(file: Path) -> bool:
    """Whether the first page of a file is in memory, by a read that must not wait for the disk."""
    descriptor = os.open(file, os.O_RDONLY)
    try:
        return os.preadv(descriptor, [bytearray(4_096)], 0, os.RWF_NOWAIT) > 0
    except BlockingIOError:
        return False
    except OSError as error:  # file systems in memory, such as tmpfs, do not support it
        pytest.skip(f"this file system does not support RWF_NOWAIT: {error}")
    finally:
        os.close(descriptor)


def written(file: Path) -> Path:
    """A file on the disk whose pages are in memory."""
    file.write_bytes(os.urandom(1_000_000))
    with file.open("rb") as synced:
        os.fsync(synced.fileno())
    file.read_bytes()
    return file


def takes_advice(folder: Path) -> bool:
    """Whether this file system has a page cache and drops pages on request; ZFS does not."""
    probe = written(folder / "probe")
    if not is_cached(probe):
        return False
    with probe.open("rb") as advised:
        os.posix_fadvise(advised.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return not is_cached(probe)


@pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="Linux only")
def test_log_segments_are_forgotten_and_other_files_stay(tmp_path: Path) -> None:
    folder = tmp_path / "topic-0"
    folder.mkdir()
    if not takes_advice(tmp_path):
        pytest.skip("this file system does not drop pages on request")
    segment, index = written(folder / "00000000.log"), written(folder / "00000000.index")
    assert is_cached(segment)
    # A page that another process's flush holds just then stays for one more call.
    assert becomes(lambda: forget([tmp_path]) == 1_000_000 and not is_cached(segment), 10.0)
    assert is_cached(index)
    assert segment.stat().st_size == 1_000_000


def test_a_system_without_fadvise_is_an_error_for_cold_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "posix_fadvise", raising=False)
    with pytest.raises(ConfigError, match=r"cold is true, and .*; expected Linux"):
        forget([tmp_path])

"""What the kernel forgets of a file has to come from the disk again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jobs.testbed.page_cache import forget


def is_cached(file: Path) -> bool:
    """Whether its first page is in memory, by a read that must not wait for the disk."""
    descriptor = os.open(file, os.O_RDONLY)
    try:
        return os.preadv(descriptor, [bytearray(4_096)], 0, os.RWF_NOWAIT) > 0
    except BlockingIOError:
        return False
    except OSError as error:  # memory itself, such as tmpfs, knows no such read
        pytest.skip(f"this file system does not tell: {error}")
    finally:
        os.close(descriptor)


@pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="Linux only")
def test_log_segments_are_forgotten_and_other_files_stay(tmp_path: Path) -> None:
    folder = tmp_path / "topic-0"
    folder.mkdir()
    segment, index = folder / "00000000.log", folder / "00000000.index"
    for file in (segment, index):
        file.write_bytes(os.urandom(1_000_000))
        with file.open("rb") as written:
            os.fsync(written.fileno())
        file.read_bytes()
    if not is_cached(segment):
        pytest.skip("this file system caches nothing")
    assert forget([tmp_path]) == 1_000_000
    assert not is_cached(segment)
    assert is_cached(index)
    assert segment.stat().st_size == 1_000_000

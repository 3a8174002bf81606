"""A file system that takes whole files only, as mounts of object stores do.

It shows another folder, by the kernel's FUSE protocol. As the volumes of Databricks, it refuses to
append, to write anywhere but at the end of what the same handle wrote, and to lock a file, each
with EOPNOTSUPP; a write to a deleted file fails. The server is a process of its own, as a process
cannot serve its own file accesses. The structures are those of the kernel's
`include/uapi/linux/fuse.h`.

    python -m tests.support.whole_file_volume MOUNT SOURCE
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
DEVICE: Final = "/dev/fuse"
_READY = "ready"
_PATIENCE_S = 60.0
_BUFFER = 1 << 18
_MAX_WRITE = 1 << 17
_ROOT_NODE = 1
_DETACH = 2
_POSIX_LOCKS, _BIG_WRITES, _FLOCK_LOCKS = 1 << 1, 1 << 5, 1 << 10
_SET_MODE, _SET_SIZE, _SET_TIMES = 1 << 0, 1 << 3, 0b11_0011_0000


@contextmanager
def whole_file_volume(mount: Path, source: Path) -> Iterator[Path]:
    """Show `source` at `mount`; skips the test where no file system may be mounted."""
    for folder in (mount, source):
        folder.mkdir(parents=True)
    if not os.access(DEVICE, os.R_OK | os.W_OK):
        pytest.skip(f"{DEVICE} cannot be opened here")
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.support.whole_file_volume", str(mount), str(source)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    try:
        said = server.stdout.readline().strip()
        if said != _READY:
            pytest.skip(f"no file system may be mounted here: {said}")
        yield mount
    finally:
        unmount(mount)
        try:
            server.communicate(timeout=_PATIENCE_S)
        except subprocess.TimeoutExpired:  # a process still uses the file system
            server.kill()
            server.communicate()
            raise


def unmount(mount: Path) -> None:
    """Detach the file system; its server ends once nothing uses it any more."""
    ctypes.CDLL(None).umount2(str(mount).encode(), _DETACH)


class RefusedError(OSError):
    """An operation that such a file system does not offer."""

    def __init__(self) -> None:
        super().__init__(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))


class Server:
    """Answers the kernel's requests; each method returns the body of one answer."""

    def __init__(self, source: Path) -> None:
        self._paths = {_ROOT_NODE: source}
        self._nodes = {source: _ROOT_NODE}
        self._ends: dict[int, int] = {}  # handle → offset after its last write
        self._operations: dict[int, Callable[[int, bytes], bytes]] = {
            1: self._lookup, 3: self._getattr, 4: self._setattr, 9: self._mkdir,
            10: self._unlink, 11: self._rmdir, 12: self._rename, 14: self._open,
            15: self._read, 16: self._write, 17: self._statfs, 18: self._release,
            20: self._sync, 25: self._done, 26: self._init, 27: self._opendir, 28: self._readdir,
            29: self._done, 30: self._done, 31: self._lock, 32: self._lock, 33: self._lock,
            35: self._create, 45: self._rename2,
        }  # fmt: skip

    def serve(self, device: int) -> None:
        """Answer until the file system is unmounted."""
        while True:
            try:
                request = os.read(device, _BUFFER)
            except OSError as error:
                if error.errno == errno.ENODEV:  # unmounted
                    return
                if error.errno in (errno.EINTR, errno.ENOENT, errno.EAGAIN):
                    continue
                raise
            _, opcode, unique, node = struct.unpack_from("<IIQQ", request)
            if opcode in (2, 36, 42):  # FORGET, INTERRUPT and BATCH_FORGET have no answer
                continue
            code, body = self._answer(opcode, node, request[40:])
            answer = struct.pack("<IiQ", 16 + len(body), -code, unique) + body
            try:
                os.write(device, answer)
            except FileNotFoundError:  # the request was interrupted
                continue

    def _answer(self, opcode: int, node: int, body: bytes) -> tuple[int, bytes]:
        operation = self._operations.get(opcode)
        if operation is None:
            return errno.ENOSYS, b""
        try:
            return 0, operation(node, body)
        except OSError as error:
            return error.errno or errno.EIO, b""

    def _child(self, node: int, name: bytes) -> Path:
        return self._paths[node] / os.fsdecode(name.partition(bytes(1))[0])

    def _entry(self, path: Path) -> bytes:
        found = path.lstat()
        node = self._nodes.setdefault(path, max(self._paths) + 1)
        self._paths[node] = path
        return struct.pack("<QQQQII", node, 0, 0, 0, 0, 0) + _attributes(node, found)

    def _moved(self, before: Path, after: Path) -> None:
        self._forget(after)
        for path in [each for each in self._nodes if each.is_relative_to(before)]:
            node = self._nodes.pop(path)
            self._paths[node] = after / path.relative_to(before)
            self._nodes[self._paths[node]] = node

    def _forget(self, path: Path) -> None:
        self._nodes.pop(path, None)  # open handles go on; the number is not used again

    def _init(self, _node: int, _body: bytes) -> bytes:
        flags = _POSIX_LOCKS | _BIG_WRITES | _FLOCK_LOCKS
        limits = (16, 12, _MAX_WRITE, 1, 0, 0, 0)
        return struct.pack("<IIIIHHIIHHI28x", 7, 31, 65_536, flags, *limits)

    def _lookup(self, node: int, body: bytes) -> bytes:
        return self._entry(self._child(node, body))

    def _getattr(self, node: int, _body: bytes) -> bytes:
        return bytes(16) + _attributes(node, self._paths[node].lstat())

    def _setattr(self, node: int, body: bytes) -> bytes:
        valid, _, _, size = struct.unpack_from("<IIQQ", body)
        path = self._paths[node]
        if valid & _SET_SIZE:
            if size:
                raise RefusedError
            os.truncate(path, 0)
        if valid & _SET_MODE:
            path.chmod(stat.S_IMODE(struct.unpack_from("<I", body, 68)[0]))
        if valid & _SET_TIMES:
            os.utime(path)
        return self._getattr(node, b"")

    def _mkdir(self, node: int, body: bytes) -> bytes:
        path = self._child(node, body[8:])
        path.mkdir(struct.unpack_from("<I", body)[0] & 0o7777)
        return self._entry(path)

    def _unlink(self, node: int, body: bytes) -> bytes:
        path = self._child(node, body)
        path.unlink()
        self._forget(path)
        return b""

    def _rmdir(self, node: int, body: bytes) -> bytes:
        path = self._child(node, body)
        path.rmdir()
        self._forget(path)
        return b""

    def _rename(self, node: int, body: bytes) -> bytes:
        return self._renamed(node, struct.unpack_from("<Q", body)[0], body[8:])

    def _rename2(self, node: int, body: bytes) -> bytes:
        target, flags = struct.unpack_from("<QI", body)
        if flags:
            raise OSError(errno.EINVAL, "flags of a rename")
        return self._renamed(node, target, body[16:])

    def _renamed(self, node: int, target: int, names: bytes) -> bytes:
        old, _, new = names.partition(bytes(1))
        before, after = self._child(node, old), self._child(target, new)
        before.rename(after)
        self._moved(before, after)
        return b""

    def _opened(self, path: Path, flags: int, mode: int = 0) -> bytes:
        if flags & os.O_APPEND:
            raise RefusedError
        handle = os.open(path, flags & ~os.O_NOFOLLOW, mode)
        self._ends[handle] = 0
        return struct.pack("<QII", handle, 0, 0)

    def _open(self, node: int, body: bytes) -> bytes:
        return self._opened(self._paths[node], struct.unpack_from("<I", body)[0])

    def _create(self, node: int, body: bytes) -> bytes:
        flags, mode = struct.unpack_from("<II", body)
        path = self._child(node, body[16:])
        opened = self._opened(path, flags | os.O_CREAT, mode & 0o7777)
        return self._entry(path) + opened

    def _read(self, _node: int, body: bytes) -> bytes:
        handle, offset, size = struct.unpack_from("<QQI", body)
        return os.pread(handle, size, offset)

    def _write(self, _node: int, body: bytes) -> bytes:
        handle, offset, size = struct.unpack_from("<QQI", body)
        if offset != self._ends[handle]:
            raise RefusedError
        if not os.fstat(handle).st_nlink:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        written = os.pwrite(handle, body[40 : 40 + size], offset)
        self._ends[handle] += written
        return struct.pack("<II", written, 0)

    def _release(self, _node: int, body: bytes) -> bytes:
        (handle,) = struct.unpack_from("<Q", body)
        os.close(handle)
        del self._ends[handle]
        return b""

    def _sync(self, _node: int, body: bytes) -> bytes:
        os.fsync(struct.unpack_from("<Q", body)[0])
        return b""

    def _statfs(self, node: int, _body: bytes) -> bytes:
        found = os.statvfs(self._paths[node])
        counts = (found.f_blocks, found.f_bfree, found.f_bavail, found.f_files, found.f_ffree)
        return struct.pack("<QQQQQIIII24x", *counts, found.f_bsize, 255, found.f_frsize, 0)

    def _readdir(self, node: int, body: bytes) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", body)
        found = b""
        for at, path in enumerate(sorted(self._paths[node].iterdir())[offset:], offset + 1):
            text = os.fsencode(path.name)
            entry = struct.pack("<QQII", at, at, len(text), 0) + text
            entry += bytes(-len(entry) % 8)
            if len(found) + len(entry) > size:
                break
            found += entry
        return found

    def _lock(self, _node: int, _body: bytes) -> bytes:
        raise RefusedError

    def _opendir(self, _node: int, _body: bytes) -> bytes:
        return bytes(16)  # a handle, which is not used

    def _done(self, _node: int, _body: bytes) -> bytes:
        return b""


def _attributes(node: int, found: os.stat_result) -> bytes:
    times = (found.st_atime_ns, found.st_mtime_ns, found.st_ctime_ns)
    seconds, rests = zip(*(divmod(each, 10**9) for each in times), strict=True)
    numbers = (node, found.st_size, found.st_blocks, *seconds)
    rest = (found.st_mode, found.st_nlink, found.st_uid, found.st_gid, 0, 4_096, 0)
    return struct.pack("<QQQQQQIIIIIIIIII", *numbers, *rests, *rest)


def main(mount: str, source: str) -> int:
    """Mount the file system, say so on standard output, and serve it until it is unmounted."""
    device = os.open(DEVICE, os.O_RDWR)
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
    if libc.mount(b"redline-tests", mount.encode(), b"fuse", 0, options.encode()) != 0:
        return _say(os.strerror(ctypes.get_errno()), 1)
    _say(_READY, 0)
    Server(Path(source)).serve(device)
    return 0


def _say(text: str, code: int) -> int:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

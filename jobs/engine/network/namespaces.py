"""Network namespaces of Linux. A new socket belongs to the namespace of the thread that opens it.

A thread with the capability CAP_SYS_ADMIN can enter another namespace and open connections there.
Earlier connections of the thread stay in the earlier namespace. A new thread begins in the
namespace of the thread that starts it. See namespaces(7) and setns(2).
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any, TypeVar

from metrics.common.errors import ConfigError

Answer = TypeVar("Answer")

OWN = "/proc/thread-self/ns/net"
"""The file of the calling thread's current network namespace."""

_CLONE_NEWNET = 0x40000000


class Namespaces:
    """The network namespace that a thread has entered, and the namespace that it has left.

    Args:
        there: descriptor of the entered namespace; None if the thread has entered none.
        home: descriptor of the namespace that the thread has left.
    """

    def __init__(self, there: int | None, home: int | None) -> None:
        self._there = there
        self._home = home

    def at_home(self, call: Callable[..., Answer]) -> Callable[..., Answer]:
        """A function that runs `call` in the namespace `home`. Any thread may call the function."""

        def called(*arguments: Any) -> Answer:
            if self._home is None or self._there is None:
                return call(*arguments)
            enter(self._home)
            try:
                return call(*arguments)
            finally:
                enter(self._there)

        return called


@contextmanager
def inside(path: str) -> Iterator[Namespaces]:
    """Run the block in a network namespace, and then return to the earlier namespace.

    Args:
        path: file of the namespace, such as /run/netns/NAME; an empty path changes nothing.

    Raises:
        ConfigError: the namespace does not exist, or this process is not allowed to enter it.
    """
    if not path:
        yield Namespaces(None, None)
        return
    with ExitStack() as closing:
        try:
            there = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            closing.callback(os.close, there)
            home = os.open(OWN, os.O_RDONLY | os.O_CLOEXEC)
            closing.callback(os.close, home)
            enter(there)
        except OSError as error:
            raise ConfigError(
                f"{os.uname().nodename} cannot enter the network namespace {path} "
                f"({error.strerror}); expected a namespace of this host, and a process with root "
                "rights; run Spark's executors on the host of the brokers, as root"
            ) from error
        closing.callback(enter, home)
        yield Namespaces(there, home)


def enter(descriptor: int) -> None:
    """Move the calling thread into the network namespace with this descriptor.

    Raises:
        OSError: the descriptor is not a namespace, or this process is not allowed to enter it.
    """
    if _libc().setns(descriptor, _CLONE_NEWNET) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def new_namespace() -> int:
    """The descriptor of a new namespace, which exists while a thread or a descriptor uses it.

    Raises:
        OSError: this system has no network namespaces, or this process is not allowed to make one.
    """
    if sys.platform != "linux":
        raise OSError("this system has no network namespaces")
    home = os.open(OWN, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _libc().unshare(_CLONE_NEWNET) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        try:
            return os.open(OWN, os.O_RDONLY | os.O_CLOEXEC)
        finally:
            enter(home)
    finally:
        os.close(home)


@cache
def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)

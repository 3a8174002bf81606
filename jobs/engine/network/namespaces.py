"""Network namespaces of Linux: a new socket belongs to the namespace that its thread is in.

So a thread that may enter a namespace (CAP_SYS_ADMIN) opens connections from there, while its
earlier ones stay where they are. Threads that it starts begin in the same namespace. See
namespaces(7), setns(2).
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
"""File of the calling thread's own network namespace."""

_CLONE_NEWNET = 0x40000000


class Namespaces:
    """The network namespace that a thread came from, and the one that it has entered.

    Args:
        there: a descriptor of the entered namespace; None when the thread stays in its own.
        home: a descriptor of the thread's own namespace.
    """

    def __init__(self, there: int | None, home: int | None) -> None:
        self._there = there
        self._home = home

    def at_home(self, call: Callable[..., Answer]) -> Callable[..., Answer]:
        """The same function, called in the thread's own namespace; any thread may call it."""

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
    """Enter the namespace of this file, such as /run/netns/NAME; an empty path changes nothing.

    Raises:
        ConfigError: the namespace does not exist, or may not be entered.
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
                f"({error.strerror}); expected one of this machine, and the rights of root; run "
                "Spark's executors on the machine of the brokers, as root"
            ) from error
        closing.callback(enter, home)
        yield Namespaces(there, home)


def enter(descriptor: int) -> None:
    """Put the calling thread into the network namespace of this descriptor.

    Raises:
        OSError: it is not a namespace, or this process may not enter it.
    """
    if _libc().setns(descriptor, _CLONE_NEWNET) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def new_namespace() -> int:
    """A descriptor of a new namespace, which lasts until no thread and no descriptor uses it.

    Raises:
        OSError: this system has no namespaces, or this process may not make one.
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

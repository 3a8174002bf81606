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
from functools import partial
from typing import Any

from metrics.common.errors import ConfigError

OWN = "/proc/thread-self/ns/net"
"""The file of the calling thread's current network namespace."""

_CLONE_NEWNET = 0x40000000


def at_home(there: int, home: int, call: Callable[..., Any]) -> Callable[..., Any]:
    """A function that runs `call` in the namespace `home`, and then returns to the namespace
    `there`. Any thread may call the function.
    """

    def called(*arguments: Any) -> Any:
        enter(home)
        try:
            return call(*arguments)
        finally:
            enter(there)

    return called


@contextmanager
def inside(path: str) -> Iterator[Callable[[Callable[..., Any]], Callable[..., Any]]]:
    """Run the block in a network namespace, and then return to the earlier namespace.

    The block gets a wrapper for functions that must run in the earlier namespace.

    Args:
        path: file of the namespace, such as /run/netns/NAME; an empty path changes nothing.

    Raises:
        ConfigError: the namespace does not exist, or this process is not allowed to enter it.
    """
    if not path:
        yield lambda call: call
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
        yield partial(at_home, there, home)


def enter(descriptor: int) -> None:
    """Move the calling thread into the network namespace with this descriptor.

    Raises:
        OSError: the descriptor is not a namespace, or this process is not allowed to enter it.
    """
    _call("setns", descriptor, _CLONE_NEWNET)


def new_namespace() -> int:
    """The descriptor of a new namespace. The namespace exists while a thread or a descriptor uses
    it.

    Raises:
        OSError: this system has no network namespaces, or this process is not allowed to make one.
    """
    if sys.platform != "linux":
        raise OSError("this system has no network namespaces")
    home = os.open(OWN, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _call("unshare", _CLONE_NEWNET)
        try:
            return os.open(OWN, os.O_RDONLY | os.O_CLOEXEC)
        finally:
            enter(home)
    finally:
        os.close(home)


def _call(name: str, *arguments: int) -> None:
    """Call a function of the C library that returns 0 after a success."""
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))

"""Looking on while a load runs: a thread that ends with the block, and hides no failure."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def watching(
    name: str, look: Callable[[], float | None], first_after_s: float = 0.0
) -> Iterator[None]:
    """Look again and again on a thread until the block is left.

    Args:
        name: of the thread.
        look: says after how long to look again [s], or None to look no more.
        first_after_s: before the first look [s].

    Raises:
        BaseException: what a look raised, once the block has ended without an error.
    """
    left = threading.Event()
    failures: list[BaseException] = []

    def run() -> None:
        wait_s: float | None = first_after_s
        try:
            while wait_s is not None and not left.wait(wait_s):
                wait_s = look()
        except BaseException as error:  # noqa: BLE001 - raised again, in the caller's thread
            failures.append(error)

    thread = threading.Thread(target=run, name=f"redline-{name}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        left.set()
        thread.join()
    if failures:
        raise failures[0]

"""A polling thread that ends with a `with` block; an error of the thread is raised at the end of
the block.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def watching(
    name: str,
    look: Callable[[], float | None],
    first_after_s: float = 0.0,
    fail: Callable[[Exception], None] = lambda _: None,
) -> Iterator[None]:
    """Call `look` repeatedly on a thread until the block ends.

    Args:
        name: name of the thread.
        look: the repeated call; returns the time until its next call [s], or None for no further
            call.
        first_after_s: time before the first call [s].
        fail: ends the block early after a failed call; for a load, `TaskChannel.fail`.

    Raises:
        Exception: the error of a failed call, if the block itself ended without an error.
    """
    left = threading.Event()
    failures: list[Exception] = []

    def run() -> None:
        wait_s: float | None = first_after_s
        try:
            while wait_s is not None and not left.wait(wait_s):
                wait_s = look()
        except Exception as error:  # noqa: BLE001 - raised again, in the caller's thread
            failures.append(error)
            fail(error)

    thread = threading.Thread(target=run, name=f"redline-{name}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        left.set()
        thread.join()
    if failures:
        raise failures[0]

"""What a loop says to the driver while it runs, and how it heeds what the driver says."""

from __future__ import annotations

from jobs.engine.driver_line import DriverLine
from jobs.engine.statistics import Account
from search.errors import RedlineError


class EndMissedError(RedlineError):
    """The driver ended the window at a moment that had passed here."""


def converse(line: DriverLine, account: Account, now: float) -> None:
    """Hear whether the window ends early, and say how far it is.

    Moves `account.window_end_s` when the driver ends the window.

    Raises:
        OrphanedError: the driver is gone.
        EndMissedError: the driver's end of the window came too late.
    """
    line.listen()
    if now >= account.window_end_s:
        return
    if line.end_after_s is not None:
        end_s = account.window_start_s + line.end_after_s
        if end_s < now:
            raise EndMissedError(
                f"the driver ended the window {now - end_s:.2f} s before this task heard of it"
            )
        account.window_end_s = min(account.window_end_s, end_s)
    if now >= account.window_start_s:
        line.say(at_s=now - account.window_start_s, acked=account.counts.acked_records)

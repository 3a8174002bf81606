"""The records that all tasks of a load have acknowledged over time, from the reports of each."""

from __future__ import annotations

from collections import deque


class AckedProgress:
    """Sums of the tasks' reports, one for each moment that every task has reported.

    Reports are added up as soon as all tasks have made them, so that neither memory nor the time of
    a look grows with the number of tasks. Tasks count from the start of each window.

    Args:
        tasks: number of tasks with producers, numbered from 0; those of other tasks do not count.
    """

    def __init__(self, tasks: int) -> None:
        self._window_of = [0] * tasks
        self._windows = {0: _Window(tasks)}

    def add(self, task: int, at_s: float, records: int) -> None:
        """Add a report of a task on its current window.

        Args:
            at_s: time since the start of the window [s].
            records: records acknowledged in it so far.
        """
        if task < len(self._window_of):
            self._of(self._window_of[task]).add(task, at_s, records)

    def end_window(self, task: int) -> None:
        """Note that a task has ended its window: its further reports are on the next one."""
        if task >= len(self._window_of):
            return
        self._window_of[task] += 1
        ended = min(self._window_of)
        self._windows = {n: each for n, each in self._windows.items() if n >= ended}

    def of_current_window(self) -> list[tuple[float, int]]:
        """(seconds into the window, records acknowledged in it so far), oldest first.

        The window is the latest one on which all tasks have reported. Any thread may call this.
        """
        known = {number: each for number, each in list(self._windows.items()) if each.sums}
        return list(known[max(known)].sums) if known else []

    def _of(self, number: int) -> _Window:
        if number not in self._windows:
            self._windows = {**self._windows, number: _Window(len(self._window_of))}
        return self._windows[number]


class _Window:
    """The reports on one window.

    Attributes:
        sums: (seconds into the window, records) of the moments that all tasks have reported.
    """

    def __init__(self, tasks: int) -> None:
        self.sums: list[tuple[float, int]] = []
        self._pending: list[deque[tuple[float, int]]] = [deque() for _ in range(tasks)]
        self._missing = tasks

    def add(self, task: int, at_s: float, records: int) -> None:
        """Add a report, and sum up the oldest ones where every task has made one."""
        own = self._pending[task]
        self._missing -= not own
        own.append((at_s, records))
        if self._missing:
            return
        reports = [each.popleft() for each in self._pending]
        self._missing = sum(not each for each in self._pending)
        self.sums.append((min(at for at, _ in reports), sum(count for _, count in reports)))

"""The progress of a load of many tasks: sums of what all of them have reported."""

from __future__ import annotations

from jobs.trials.control_server import AckedProgress
from tests.support.interpreter_steps import steps_of


def test_a_moment_counts_when_every_task_has_reported_it() -> None:
    progress = AckedProgress(3)
    progress.add(0, 0.25, 10)
    progress.add(0, 0.5, 20)
    progress.add(1, 0.26, 1)
    assert progress.of_current_window() == []
    progress.add(2, 0.24, 100)
    assert progress.of_current_window() == [(0.24, 111)]
    for number in range(2, 9):
        progress.add(2, number / 4, 100 * number)
    for number in range(2, 9):
        progress.add(1, number / 4, number)
        progress.add(0, number / 4 + 0.25, 10 * number + 10)
    assert progress.of_current_window() == [
        (0.24, 111), *((number / 4, 111 * number) for number in range(2, 9))
    ], "a slow task delays the others' reports"  # fmt: skip


def test_reports_of_two_windows_are_never_added_up() -> None:
    progress = AckedProgress(2)
    for task in (0, 1):
        progress.add(task, 1.0, 50)
    progress.end_window(0)
    progress.add(0, 0.25, 7)  # task 0 is in the second window, and task 1 in the first
    progress.add(1, 1.25, 60)
    assert progress.of_current_window() == [(1.0, 100)]
    progress.end_window(1)
    assert progress.of_current_window() == []
    progress.add(1, 0.25, 8)
    assert progress.of_current_window() == [(0.25, 15)]
    # Tasks with consumers do not count.
    progress = AckedProgress(1)
    progress.end_window(1)
    progress.add(1, 0.5, 9)
    progress.add(0, 0.5, 10)
    assert progress.of_current_window() == [(0.5, 10)]


def test_the_work_for_a_report_and_for_a_look_does_not_grow_with_the_tasks() -> None:
    def reported(tasks: int) -> AckedProgress:
        progress = AckedProgress(tasks)
        for moment in range(10):
            for task in range(tasks):
                progress.add(task, float(moment), moment)
        return progress

    few, many = 20, 80
    assert steps_of(lambda: reported(many)) < 4.2 * steps_of(lambda: reported(few))
    looks = [steps_of(reported(tasks).of_current_window) for tasks in (few, many)]
    assert looks[0] == looks[1]

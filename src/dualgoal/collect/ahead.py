"""Data of the next task, found while the runs of this one train: a GPU that trains leaves most cores idle."""

import contextlib
import os
from collections.abc import Callable

from dualgoal.collect.find import find_data
from dualgoal.errors import UserError
from dualgoal.workers import Pool

PRIORITY = 10  # of processes, from 0 to 19: evaluations of the run that trains go first
LONGEST = 7 * 24 * 3600.0  # seconds; images of a large task on a few cores take hours


def prepare(task: str) -> None:
    """Find the data of a task, with low priority. Whatever goes wrong is said by the run that needs them."""
    if hasattr(os, "setpriority"):
        os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)  # also of the processes that it starts
    with contextlib.suppress(UserError):
        find_data(task, lambda text: None)


class Preparation(contextlib.AbstractContextManager["Preparation"]):
    """One process in the background that finds the data of tasks in the order in which they are named. A run that needs
    data before they are complete waits for it, as processes that make the same dataset do. What is unfinished when the
    context is left is continued by whoever needs it next."""

    def __init__(self, prepare: Callable[[str], None] = prepare):
        self._pool: Pool[str, None] = Pool(prepare, 1, job_seconds=LONGEST)
        self._named: set[str] = set()

    def __call__(self, task: str) -> None:
        """Prepare a task, unless that was asked for before."""
        if task not in self._named:
            self._named.add(task)
            self._pool.submit(task)

    def __exit__(self, *_: object) -> None:
        self._pool.close()

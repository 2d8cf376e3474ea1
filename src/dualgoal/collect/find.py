"""The data of a task when the user named none: cached, else downloaded, else generated."""

from collections.abc import Callable
from pathlib import Path

from dualgoal.collect import experts
from dualgoal.data import dataset, download
from dualgoal.data.dataset import Dataset
from dualgoal.data.paths import DatasetFiles
from dualgoal.envs import tasks
from dualgoal.errors import number_of
from dualgoal.files import cache_folder

Say = Callable[[str], None]


def load_data(task: str, path: str | Path | None, say: Say) -> tuple[Dataset, Dataset | None]:
    """The training rows of a task, and its validation rows where there are any; says where they come from."""
    training, validation = dataset.load_splits(path if path is not None else find_data(task, say), task)
    say(f"{training.provenance['file']}: {number_of(training.rows, 'row')}, {number_of(training.episodes, 'episode')}")
    return training, validation


def find_data(task: str, say: Say) -> Path:
    """The folder that holds a task's data, after downloading or generating them if need be.

    Data are generated only where no server can be reached: whoever has a full disk wants to hear of it.
    """
    task = tasks.plain(task)
    downloads, generated = _folders()
    if (folder := cached(task)) is not None:
        say(f"data for {task}: cached in {folder}")
        return folder
    known = tasks.get(task)
    say(f"data for {task}: downloading (or give --data)")
    try:
        return download.fetch_dataset(task, downloads).parent
    except download.Unavailable as problem:
        if known.needs_expert and not experts.all_shipped(known.family):
            raise
        say(f"{problem}; generating {number_of(known.episodes, 'episode')} instead")
    from dualgoal.collect import generate  # here, because it needs the simulator

    return generate.generate_dataset(task, known.episodes, generated).parent


def cached(task: str) -> Path | None:
    """The folder of the cache that holds a task's data."""
    name = tasks.plain(task)
    return next((folder for folder in _folders() if DatasetFiles(folder, name).train.is_file()), None)


def _folders() -> tuple[Path, Path]:
    return cache_folder() / "datasets", cache_folder() / "generated"

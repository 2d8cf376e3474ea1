"""`dualgoal data ...`: make, download, look at and convert datasets."""

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, UseAppendAction, arg

from dualgoal.cli.parsing import unset
from dualgoal.cli.verb import Verb, show
from dualgoal.envs.versions import QUICK, Quality

KEY_HELP = (
    "Names of arrays that are not found by themselves, for instance observations=joints actions=speeds terminals=end; "
    "episodes=NAME is the number of each row's episode; terminals= takes none."
)
STANDARDIZE_HELP = (
    "Let networks read each coordinate of observations and goals minus its mean, divided by its standard deviation: "
    "for numbers far from 1. Files, environments and policies keep your units."
)


@dataclass(frozen=True)
class Generate(Verb):
    """Writes TASK.npz and TASK-val.npz. An interrupted command resumes when it is given again."""

    task: Annotated[Positional[str], arg(metavar="TASK")]
    """Task (see: dualgoal list tasks)."""
    episodes: int
    """Number of training episodes. A tenth as many are made for validation."""
    out: Path
    """Folder for the files, which 'dualgoal train TASK --data FOLDER' reads."""
    seed: int = 0
    """Random seed. The same seed gives the same bytes, for any number of workers."""
    workers: Annotated[int | None, unset("all cores", "INT")] = None
    """Number of processes."""
    rows: Annotated[int | None, unset("as in the official dataset", "INT")] = None
    """Rows per episode."""
    expert: Annotated[tuple[Path, ...], unset("those that come with the package")] = ()
    """Walking policies (files or folders of 'dualgoal expert train') for antmaze, humanoidmaze and antsoccer."""
    maze: Annotated[Path | None, unset("the task's", "PATH")] = None
    """A text file with a maze of your own; then TASK is its name, for instance antmaze-mine-navigate-v0."""
    shadow_size: int = QUICK.shadow_size
    """Size of the shadow map of rendered images. Official datasets have 4096, which is slower."""
    mesh_cell: float = QUICK.mesh_cell
    """Draw corners of a mesh in a cube of so many millimetres as one. Official datasets have 0, which is slower."""
    with_visual: bool = False
    """Also write the images of the same simulation, as visual-TASK: row k of one is row k of the other."""
    quiet: bool = False
    """Show no progress."""

    def run(self) -> None:
        from dualgoal.collect import generate

        quality = Quality(self.shadow_size, self.mesh_cell)
        print(generate.generate_dataset(quality=quality, **self.options("shadow_size", "mesh_cell")))


@dataclass(frozen=True)
class Fetch(Verb):
    """An interrupted download resumes when the same command is given again; the result is checked."""

    task: Annotated[Positional[str], arg(metavar="TASK")]
    """Task (see: dualgoal list tasks)."""
    out: Annotated[Path | None, unset("the cache", "PATH")] = None
    """Folder for the files."""
    mirror: Annotated[tuple[str, ...], unset("none")] = ()
    """Addresses to try before the official one."""
    quiet: bool = False
    """Show no progress."""

    def run(self) -> None:
        from dualgoal.data import download

        print(download.fetch_dataset(self.task, self.out, mirrors=self.mirror or None, quiet=self.quiet))


@dataclass(frozen=True)
class Info(Verb):
    """Everything is read from the file itself and from the JSON file next to it."""

    path: Annotated[Positional[Path], arg(metavar="PATH")]
    """An npz file, or a folder with one."""
    json: bool = False
    """Print JSON."""
    plot: Annotated[Path | None, unset("no picture", "PATH")] = None
    """Draw where in the maze the data are into this PNG file."""
    task: Annotated[str | None, unset("the only one", "TASK")] = None
    """Which dataset of a folder."""

    def run(self) -> None:
        from dualgoal.data import info

        show(info.summarize(self.path, task=self.task, plot=self.plot), self.json, info.text)


@dataclass(frozen=True)
class Import(Verb):
    """Reads an npz file, an HDF5 file (D4RL's layout, or a group per episode as in robomimic), a folder of npz or HDF5
    files with one episode or several each, a LeRobot v3 folder, or a Minari dataset."""

    source: Annotated[Positional[str], arg(metavar="SOURCE")]
    """A file, a folder, or minari:ID."""
    out: Path
    """Folder for the result."""
    task: Annotated[str | None, unset("from the source", "TASK")] = None
    """Name of the dataset."""
    key: Annotated[UseAppendAction[tuple[tuple[str, ...], ...]], unset("none", "OURS=NAME ...", KEY_HELP)] = ()
    observation_keys: Annotated[tuple[str, ...], unset("one array, found by its name", "NAME ...")] = ()
    """Entries of dictionary observations, or arrays, to join in this order."""
    scale_actions: bool = False
    """Map the range of each action coordinate to [-1, 1]. The range is recorded, and policies answer in it."""
    goal_dims: Annotated[tuple[int, ...], unset("all: a goal is an observation")] = ()
    """Coordinates of an observation that make a goal, counted from 0."""
    goal_keys: Annotated[tuple[str, ...], unset("none", "NAME ...")] = ()
    """Entries of dictionary observations, or arrays, that make a goal, joined in this order."""
    goal_function: Annotated[str | None, unset("none", "MODULE:NAME")] = None
    """A function from rows of observations to rows of goals."""
    standardize: Annotated[bool, arg(help=STANDARDIZE_HELP)] = False
    image_size: Annotated[tuple[int, ...], unset("as recorded", "H W")] = ()
    """Height and width to which frames of a LeRobot folder are scaled."""
    skip_episodes: Annotated[tuple[int, ...], unset("none")] = ()
    """Episodes to leave out, counted from 0 in the order of the source, for instance 3 17 40-45."""
    quiet: bool = False
    """Show no progress."""

    def run(self) -> None:
        from dualgoal.data import importing

        keys = tuple(itertools.chain(*self.key))
        print(importing.import_dataset(self.source, keys=keys, **self.options("source", "key")))

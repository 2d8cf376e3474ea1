"""Pages of the documentation as programs: their code blocks, and their commands at a size that takes seconds."""

import itertools
import re
import shlex
from pathlib import Path

import numpy as np

from dualgoal.cli import main
from dualgoal.envs import tasks
from tiny import make_data

ROOT = Path(__file__).parents[1]
SMALL = {
    "train": "--steps 10 --batch-size 16 --rep.hidden 8 8 --algo.hidden 8 8 --rep.dim 8 --seeds 0 --eval-every 10 "
    "--log-every 10 --save-every 10 --workers 1",
    "train cube-single-play-v0": "--episodes 1",  # own data has no environment, and no evaluation
    "train pointmaze-medium-navigate-v0": "--episodes 0",  # the next command of the tutorial evaluates
    "eval": "--episodes 1 --seeds 0 --workers 1",
    "reproduce": "--steps 10",
    "data generate": "--episodes 2 --workers 1",
}


def blocks(page: str) -> list[tuple[str, str]]:
    """(language, content) of the executable code blocks of a page, in order."""
    return re.findall(r"```(sh|python)\n(.*?)```", page, re.S)


def commands(block: str) -> list[list[str]]:
    """The words of each `dualgoal` command of a shell block, at the size of SMALL."""
    lines = re.sub(r"\\\n\s*", " ", block).strip().splitlines()
    return [smaller(shlex.split(line, comments=True)[1:]) for line in lines if line.startswith("dualgoal ")]


def table(page: str, start: str) -> list[list[str]]:
    """The rows of the first table of a page after these words."""
    lines = page[page.index(start) :].splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("| ---"))
    return [cells(line) for line in itertools.takewhile(lambda line: line.startswith("|"), lines[first + 1 :])]


def cells(line: str) -> list[str]:
    """What a row of a table holds."""
    return [cell.strip() for cell in line.strip("|\n ").split("|")]


def smaller(words: list[str]) -> list[str]:
    """The same command with the flags of SMALL in place of its own."""
    wanted = SMALL.get(words[0], "") + " " + SMALL.get(" ".join(words[:2]), "")
    for flag, *values in (group.split() for group in wanted.split("--") if group.strip()):
        if flag.startswith("rep.") and "orig" in words:  # raw goals have no networks
            continue
        if f"--{flag}" in words:
            start = words.index(f"--{flag}")
            end = next((i for i in range(start + 1, len(words)) if words[i].startswith("--")), len(words))
            words = words[:start] + words[end:]
        words = [*words, f"--{flag}", *values]
    return words


def run(block: str, capsys) -> list[str]:
    """Run the commands of a shell block and return their verbs."""
    ran = []
    for words in commands(block):
        status = main.main(words)
        assert status == 0, f"dualgoal {shlex.join(words)}: {capsys.readouterr().err}"
        ran.append(words[0])
    return ran


def run_all(page: str, capsys) -> tuple[list[str], dict]:
    """Run all blocks of a page; the verbs of its commands, and the names that its Python blocks define."""
    ran: list[str] = []
    names: dict = {}
    for kind, block in blocks(page):
        if kind == "python":
            exec(block, names)
        else:
            ran += run(block, capsys)
    return ran, names


def workplace(folder: Path, monkeypatch) -> Path:
    """A folder with what the pages take for granted: recordings, and a cached dataset so that nothing is fetched."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("DUALGOAL_CACHE", str(folder / "cache"))
    cached = folder / "cache" / "datasets"
    cached.mkdir(parents=True)
    rng, line = np.random.default_rng(0), tasks.get("cube-single-play-v0")
    ends = np.arange(1, 61) % 20 == 0
    rows = {"actions": rng.uniform(-1, 1, (60, line.action_dim)).astype(np.float32), "terminals": ends}
    for name in (line.name, f"{line.name}-val"):
        np.savez(cached / f"{name}.npz", observations=rng.normal(size=(60, 28)).astype(np.float32), **rows)
    source = make_data(folder / "source")
    (source / "pointmaze-medium-navigate-v0.npz").rename(folder / "recordings.npz")
    return folder

"""The README is executed, command by command, at a size that takes seconds."""

import contextlib
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from dualgoal.cli import main
from dualgoal.envs import tasks
from tiny import make_data

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
SMALL = {
    "train": "--steps 10 --batch-size 16 --rep.hidden 8 8 --algo.hidden 8 8 --rep.dim 8 --seeds 0 --eval-every 10 "
    "--log-every 10 --save-every 10",
    "train cube-single-play-v0": "--episodes 1",  # own data has no environment, and no evaluation
    "eval": "--episodes 1 --seeds 0",
    "reproduce": "--steps 10",
}
BLOCKS = re.findall(r"```(sh|python)\n(.*?)```", README, re.S)


def smaller(words: list[str]) -> list[str]:
    """The same command with the flags of SMALL in place of its own."""
    wanted = SMALL.get(words[0], "") + SMALL.get(" ".join(words[:2]), "")
    given = [group.split() for group in wanted.split("--") if group.strip()]
    for flag, *values in given:
        if f"--{flag}" in words:
            start = words.index(f"--{flag}")
            end = next((i for i in range(start + 1, len(words)) if words[i].startswith("--")), len(words))
            words = words[:start] + words[end:]
        words = [*words, f"--{flag}", *values]
    return words


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    """A folder with what the README takes for granted: recordings, and a cached dataset so that nothing is fetched."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DUALGOAL_CACHE", str(tmp_path / "cache"))
    cached = tmp_path / "cache" / "datasets"
    cached.mkdir(parents=True)
    rng, line = np.random.default_rng(0), tasks.get("cube-single-play-v0")
    ends = np.arange(1, 61) % 20 == 0
    rows = {"actions": rng.uniform(-1, 1, (60, line.action_dim)).astype(np.float32), "terminals": ends}
    for name in (line.name, f"{line.name}-val"):
        np.savez(cached / f"{name}.npz", observations=rng.normal(size=(60, 28)).astype(np.float32), **rows)
    source = make_data(tmp_path / "source")
    (source / "pointmaze-medium-navigate-v0.npz").rename(tmp_path / "recordings.npz")
    return tmp_path


def test_every_command_of_the_readme_runs(workplace, capsys, monkeypatch, quick_compile):
    from dualgoal.paper import reproduce

    done = []
    monkeypatch.setattr(
        reproduce, "_do", lambda job, *rest: done.append(job.planned.name)
    )  # trained below and elsewhere
    ran = []
    for kind, block in BLOCKS:
        if kind == "python":
            exec(block, names := {})
            assert names["action"].shape == (5,) and np.isfinite(names["steps_to_go"]) and names["z"].shape == (8,)
            continue
        for line in block.strip().splitlines():
            words = smaller(shlex.split(line.split("#")[0])[1:])
            status = main.main(words)
            assert status == 0, f"{line}: {capsys.readouterr().err}"
            ran.append(words[0])
    assert {"train", "eval", "report", "export", "data", "list", "reproduce"} <= set(ran)
    assert len(done) == 2 and (workplace / "cube.html").exists() and (workplace / "cube.safetensors").exists()


def test_every_page_the_readme_points_to_exists():
    links = re.findall(r"\]\(([^)]+)\)", README)
    assert len(links) >= 6 and not [link for link in links if not (ROOT / link).exists()]


def test_commands_outside_blocks_exist():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    assert set(re.findall(r"`?make ([a-z]+)`?", README)) <= targets
    for verb in re.findall(r"`dualgoal ([a-z]+)", README):
        assert verb in main.VERBS or any(v.startswith(verb) for v in main.VERBS)
    with contextlib.suppress(StopIteration):
        assert (ROOT / next(iter(re.findall(r"tools/\w+", README)))).exists()

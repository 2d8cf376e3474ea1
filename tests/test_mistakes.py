"""What people get wrong: each mistake is answered by one line that says what, where and what to do, and by status 2.

Every command is refused before it trains, downloads or writes anything, so the whole table takes seconds.
"""

import dataclasses
import json
import shlex

import numpy as np
import pytest

from dualgoal.cli.main import main
from dualgoal.runs import config
from dualgoal.runs.facts import Sizes
from run_files import rows, write_run
from tiny import TASK, make_data, tiny_run

ENVIRONMENTS = """
import gymnasium, numpy as np
from gymnasium.spaces import Box, Discrete

class Good(gymnasium.Env):
    observation_space, action_space, max_steps = Box(-9, 9, (2,)), Box(-1, 1, (2,)), 5
    size, told = 2, {"success": False}
    def reset(self, *, seed=None, options=None):
        return np.zeros(self.size), {"goal": np.zeros(2)}
    def step(self, action):
        return np.zeros(self.size), 0.0, False, False, self.told

class Wide(Good): size = 3
class Buttons(Good): action_space = Discrete(4)
class Endless(Good): max_steps = None
class Silent(Good): told = {}
class Aimless(Good):
    def reset(self, *, seed=None, options=None):
        return np.zeros(2), {}

class Broken(Good):
    def __init__(self, port): pass
class Fails(Good):
    def step(self, action): return 1 / 0
class Older(Good):
    def step(self, action): return super().step(action)[:4]

number = 3
def nothing(): return None
def reached(observation, goal): return observation["gripper"]
def achieved(rows): return rows["gripper"]
"""
RUN = f"train {TASK} --data data --steps 10 --out new "
OWN = "train own --data own.npz --steps 10 --out new "

MISTAKES = {
    # Commands
    "trian": "unknown command 'trian'; did you mean 'train'?",
    "data make": "unknown command 'data make'",
    "data": "data needs one of: generate, fetch, info, import",
    "list rep": "WHAT is 'rep'; did you mean 'reps'?",
    "completion fish": "SHELL is 'fish'",
    # Options of train
    "train": "the task comes first",
    f"train --steps 10 {TASK}": "the task comes first",
    "train cube-singel-play-v0": "unknown task 'cube-singel-play-v0'; did you mean 'cube-single-play-v0'?",
    "train my-robot": "to train on data of your own give --data FOLDER",
    "train own.npz": "'own.npz' is a file or folder; name the task, and give the data as --data own.npz",
    "train --config elsewhere": "elsewhere: its data are not where they were; give them as --data",
    "train a/b --data data": "'a/b' cannot be the name of a task",
    RUN + "--rep dula": "unknown representation 'dula'; did you mean 'dual'?",
    RUN + "--algo gcvil": "unknown algorithm 'gcvil'; did you mean 'gcivl'?",
    RUN + "--rep nowhere:Mine": "representation 'nowhere:Mine': No module named 'nowhere'",
    RUN + "--rep.dmi 3": "dual has no option dmi; did you mean 'dim'? (it has: dim, expectile, ",
    RUN + "--rep.fusion=late": "dual has no option fusion (it has: ",
    RUN + "--rep orig --rep.hidden 8": "orig has no option hidden (it has: fusion)",
    RUN + "--algo crl --algo.direct": "crl has no option direct",
    RUN + "--algo none --algo.direct": "none has no option direct (it has none)",
    RUN + "--rep.aggregation inter": "--rep.aggregation is 'inter'; did you mean 'inner'?",
    RUN + "--rep.expectile 2": "expectile",
    RUN + "--steps many": "--steps is 'many'; expected a whole number",
    RUN + "--steps 1.5": "--steps is '1.5'; expected a whole number",
    RUN + "--steps 0": "steps is 0; expected at least 1",
    RUN + "--steps 1e12": "steps is 1000000000000; expected at most",
    f"train {TASK} --steps": "--steps needs a value",
    RUN + "--lr fast": "--lr is 'fast'; expected a number",
    RUN + "--lr -1": "lr is -1.0; expected a number above 0",
    RUN + "--discount 1": "discount is 1.0; expected a number above 0 and at most 1 - 1e-7",
    RUN + "--batch-size 0": "batch_size is 0; expected at least 1",
    RUN + "--seeds 0,0": "seeds is (0, 0); expected one or more different integers",
    RUN + "--seeds 3-1": "--seeds: the range 3-1 is empty",
    RUN + "--seeds": "seeds is ()",
    RUN + "--precision bf61": "--precision is 'bf61'; did you mean 'bf16'?",
    RUN + "--workers 0": "workers is 0; expected at least 1",
    RUN + "--track tensorbord": "'tensorbord'; did you mean 'tensorboard'?",
    RUN + "--frozen-rep nowhere": "nowhere: not a run directory",
    RUN + "--rep dual_pair --algo crl": "CRL",
    RUN + "--rep orig --algo none": "Orig has no loss of its own and NoAlgorithm adds no loss; choose another",
    RUN + "--rep vib --algo none": "VIB has no loss of its own",
    RUN + "--rep dual --frozen-rep run": "--rep dual: the representation of run is orig; leave --rep out",
    RUN + "--algo none --frozen-rep run": "Orig is frozen and NoAlgorithm adds no loss",
    RUN + "--max-steps x": "--max-steps is 'x'; expected a whole number",
    "train cube-single-play-v0 --data data --out new": "cube-single-play-v0.npz: no such dataset (there are: ",
    f"train {TASK} --data nowhere --out new": "nowhere",
    f"train {TASK} --data data --out .": "holds runs; give the run a folder of its own, such as --out NAME",
    f"train {TASK} --data data --out new --steps 1e6 --log-every 1": "metrics.jsonl would have 2,000,000 rows",
    "train antmaze-medium-navigate-v0 --data own.npz --out new": "'observations' have shape (2,) but those of antmaze",
    "train own --data other --out new --episodes 0": "the validation data have observations 2, goals 2, actions of 1",
    RUN + "--env envs.py:Good --eval-goals validation:2": "the environment does not follow reset(options",
    RUN + "--eval-goals env:9": "the environment has 5 tasks, fewer than the 9 to evaluate",
    # Two stages
    RUN + "--frozen-rep stage": "stage: no checkpoint yet; train first",
    RUN + "--frozen-rep stage --seeds 7": "stage: has seeds [0, 3], this run needs [7]; train those first",
    RUN + "--frozen-rep stage --discount 0.9": "stage: its value has the discount 0.99, this run 0.9; give --discount",
    "train own --data wide.npz --episodes 0 --out new --frozen-rep stage": "stage: was trained on observations 2, ",
    f"train {TASK} --data data --out run --lr 0.1 --steps 40": "run: holds a run with another configuration",
    # Files with options
    "train --config nowhere.toml": "nowhere.toml: no such file; give a TOML file with the options of a run",
    "train --config bad.toml": "bad.toml: not TOML",
    f"train {TASK} --config key.toml": "key.toml: unknown key 'stesp'; did you mean 'steps'?",
    f"train {TASK} --config type.toml": 'type.toml: lr is "fast"; expected a number',
    f"train {TASK} --config data": "data: not a run directory",
    "train --config run other": "the task comes first",
    # Environments and goals of one's own
    OWN + "--episodes 1": "no environment for task 'own'; give yours with --env",
    OWN + "--env nowhere:Make": "environment 'nowhere:Make': No module named 'nowhere'",
    OWN + "--env nowhere.py:Make": "nowhere.py:Make': No such file or directory; expected a Python file",
    OWN + "--env envs.py:Gone": "has nothing called Gone",
    OWN + "--env envs.py:number": "it is an int, which cannot be called",
    OWN + "--env envs.py:nothing": "is a NoneType; expected a gymnasium.Env",
    OWN + "--env Nowhere-v0": "environment 'Nowhere-v0'",
    OWN + "--env envs.py:Wide": "the environment's observations are (3,), the data's (2,)",
    OWN + "--env envs.py:Buttons": "actions of the data are 2 numbers, but the environment takes Discrete(4)",
    OWN + "--env envs.py:Endless": "does not say how long an episode lasts; give --max-steps",
    OWN + "--env envs.py:Silent": "info has no 'success'; give --success",
    OWN + "--env envs.py:Aimless": "the environment names no goal",
    OWN + "--env envs.py:Broken": "envs.py:Broken' raised TypeError: Broken.__init__() missing 1 required",
    OWN + "--env envs.py:Fails": "step raised ZeroDivisionError: division by zero (envs.py, line ",
    OWN + "--env envs.py:Older": "step gives 4 values; Gymnasium's gives (observation, reward,",
    OWN + "--env envs.py": "environment 'envs.py': say what in the file makes it: envs.py:NAME",
    OWN + "--env typo.py:Env": "typo.py:Env' raised AttributeError: module 'gymnasium' has no attribute 'Enw'",
    OWN + "--env envs.py:Good --success envs.py:reached": "envs.py:reached' raised IndexError",
    OWN + "--env envs.py:Good --success often": "success 'often': expected info, terminated, a distance",
    OWN + "--env envs.py:Good --success envs.py:gone": "has nothing called gone",
    OWN + "--env envs.py:Good --max-steps 0": "max_steps is 0; expected at least 1",
    OWN + "--env envs.py:Good --eval-goals env:0": "eval-goals 'env:0': expected env:N",
    OWN + "--env envs.py:Good --eval-goals nowhere.txt": "eval-goals 'nowhere.txt': no such file",
    OWN + "--env envs.py:Good --eval-goals ~nobody-here/x.txt": "eval-goals '~nobody-here/x.txt': no such file",
    OWN + f"--env envs.py:Good --eval-goals {'a' * 300}": ": no such file",
    f"train {'a' * 300} --steps 10 --out new": "unknown task 'aaa",
    OWN
    + "--env envs.py:Good --eval-goals goals.txt": "goals.txt: goals of shape (1, 3); expected one or more rows of 2",
    OWN + "--env envs.py:Good --eval-goals envs.py": "envs.py: no list of goals",
    OWN + "--env envs.py:Good --eval-goals validation:3": "the dataset has no validation episodes",
    RUN + "--eval-goals goals.txt": "goals.txt: goals of shape (1, 3)",
    "train pointmaze-mine-navigate-v0 --data own.npz --out new": "no environment for task 'pointmaze-mine-navigate-v0'",
    # Data
    "data info nowhere.npz": "nowhere.npz",
    "data info envs.py": "envs.py: not a readable npz (zip) file",
    "data info empty": "empty: holds no npz dataset; name a task or the file itself",
    "data import nowhere.npz --out made": "nowhere.npz",
    "data import own.npz --out made --goal-dims 7": "7",
    "data import own.npz --out made --goal-dims 0 --goal-keys observations": "goal",
    "data import own.npz --out made --goal-function nowhere:f": "nowhere",
    "data import own.npz --out made --goal-function envs.py:achieved": "envs.py:achieved' raised IndexError",
    "data import own.npz --out made --key observations=state": "state",
    "data import own.npz": "missing: --out",
    "data import own.npz made": "unexpected 'made'; missing: --out",
    "data generate cube-singel-play-v0 --episodes 1 --out made": "unknown task 'cube-singel-play-v0'",
    f"data generate {TASK}": "missing: --episodes, --out",
    f"data generate {TASK} --episode 20 --out made": "unknown option --episode; did you mean --episodes?",
    f"data generate {TASK} --episodes 0 --out made": "episodes",
    "data fetch cube": "unknown task 'cube'",
    f"train {TASK} --data nan.npz --out new": "nan.npz",
    f"train {TASK} --data large.npz --out new": "outside [-1, 1]",
    f"train {TASK} --data part.npz --out new": "part.npz",
    # Runs
    "eval": "missing: RUN (see dualgoal eval --help)",
    "eval run another": "unexpected 'another'",
    "eval nowhere": "nowhere: not a run directory (no config.json)",
    "eval own.npz": "own.npz: a file, not a run directory; give the folder that --out named",
    "eval run": "run: no checkpoint yet; train first",
    "eval run --step 7": "run: no checkpoint of step 7",
    "eval run --episodes 0": "episodes is 0; expected at least 1",
    "eval run --goal-noise -1": "goal_noise is -1.0; expected at least 0",
    "eval run --epsiodes 3": "unknown option --epsiodes; did you mean --episodes?",
    "export nowhere --out a.safetensors": "nowhere: not a run directory",
    "export run --seed 9 --out a.safetensors": "run: has no seed 9 (seeds: 0, 3)",
    "export run": "missing: --out",
    "report nowhere --out a.html": "nowhere: not a run directory",
    "report run": "missing: --out",
    "report run --out empty": "empty: not written (is a directory); choose another path or check its permissions",
    "compare run": "compare needs two run directories or more",
    "compare run nowhere": "nowhere: not a run directory",
    "compare run scene": "scene: trained on 'scene-play-v0'",
    "compare run bare": "bare: has no complete evaluation to compare",
    "compare run run --rows eval": "run: has no evaluation by dualgoal eval",
    "label nowhere --data data --out a.npz": "nowhere: not a run directory",
    "label run --data data": "missing: --out",
    "runs nowhere": "nowhere: no such folder",
    "runs --sort colour .": "unknown column 'colour'",
    # Plans
    "sweep nowhere.toml": "nowhere.toml: no such file",
    "sweep empty": "empty: not a plain file; give the path of one",
    "sweep key.toml": "key.toml: unknown key 'stesp'",
    "sweep bad.toml": "bad.toml: not TOML",
    "sweep option.toml": "option.toml: unknown option 'rep.dmi'",
    "reproduce state_gcvil": "unknown table 'state_gcvil'; did you mean 'state_gcivl'?",
    "reproduce state_gcivl --tasks cube": "unknown task 'cube'",
    "reproduce state_gcivl --reps dula": "'dula'; did you mean 'dual'?",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with data, an environment, three runs and the files that the mistakes name."""
    folder = tmp_path_factory.mktemp("place")
    made = make_data(folder / "data")
    with np.load(made / f"{TASK}.npz") as file:
        good = dict(file)
    np.savez(folder / "own.npz", **good)
    np.savez(folder / "nan.npz", **good | {"observations": np.full_like(good["observations"], np.nan)})
    np.savez(folder / "large.npz", **good | {"actions": 3 * good["actions"]})
    np.savez(folder / "wide.npz", **good | {"observations": np.tile(good["observations"], 2)})
    (folder / "other").mkdir()
    np.savez(folder / "other" / "own.npz", **good)
    np.savez(folder / "other" / "own-val.npz", **good | {"actions": good["actions"][:, :1]})
    np.savez(folder / "part.npz", actions=good["actions"], terminals=good["terminals"])
    (folder / "empty").mkdir()
    texts = {"envs.py": ENVIRONMENTS, "bad.toml": "steps =", "key.toml": "stesp = 3", "type.toml": "lr = 'fast'"}
    texts |= {"typo.py": "import gymnasium\nclass Env(gymnasium.Enw): pass"}
    texts |= {"goals.txt": "1 2 3", "option.toml": f'tasks = ["{TASK}"]\n[options]\n"rep.dmi" = 3'}
    for name, text in texts.items():
        (folder / name).write_text(text)
    run = tiny_run(episodes=10)
    write_run(folder / "run", run, rows(run, 4))
    write_run(folder / "bare", run, [])
    write_run(folder / "elsewhere", dataclasses.replace(run, task="arm"), [])
    write_run(folder / "stage", tiny_run("dual", "none"), [], sizes=dataclasses.asdict(Sizes((2,), 2, discrete=False)))
    write_run(folder / "scene", config.Run("scene-play-v0", run.rep, run.algo), [])
    return folder


def state(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if "__pycache__" not in path.parts}


def test_there_are_more_than_sixty():
    assert len(MISTAKES) > 60
    verbs = {words.split()[0] for words in MISTAKES}
    assert {"train", "eval", "data", "export", "report", "compare", "label", "sweep", "reproduce", "runs"} <= verbs


@pytest.mark.parametrize("words", MISTAKES)
def test_a_mistake_is_one_line_and_status_2(words, place, capsys, monkeypatch):
    refuse(words, MISTAKES[words], place, capsys, monkeypatch)


@pytest.mark.parametrize("words", [words for words in MISTAKES if words.startswith("train") and "nan.npz" not in words])
def test_a_dry_run_refuses_what_training_refuses(words, place, capsys, monkeypatch):
    """Apart from wrong numbers in observations, which it does not read."""
    refuse(f"{words} --dry-run", MISTAKES[words], place, capsys, monkeypatch)


def refuse(words, message, place, capsys, monkeypatch):
    monkeypatch.chdir(place)
    monkeypatch.setenv("DUALGOAL_CACHE", str(place / "cache"))
    before = state(place)
    status = main(shlex.split(words))
    said = capsys.readouterr()
    assert status == 2 and said.err.startswith("dualgoal: ") and said.err.count("\n") == 1, said.err
    assert message in said.err and "Traceback" not in said.err
    assert state(place) == before, "a refused command leaves nothing behind"
    assert len(json.dumps(said.out)) < 400

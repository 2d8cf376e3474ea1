"""The everyday command line: options in files, dry runs, numbers as people write them, completion."""

import json
import shutil
import subprocess
import sys
import tomllib

import pytest

from calls import configured, parsed, said
from dualgoal.algos import ALGOS
from dualgoal.cli import completion, run_file
from dualgoal.cli.main import VERBS
from dualgoal.cli.train import Train
from dualgoal.errors import UserError
from dualgoal.paper import settings
from dualgoal.reps import REPS
from dualgoal.runs import directory
from tiny import TASK, make_data, tiny_run, untrained


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DUALGOAL_CACHE", str(tmp_path / "cache"))
    make_data(tmp_path / "data")
    return tmp_path


def everything(folder):
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.mark.parametrize(
    "text, number", [("1e6", 10**6), ("2.5e5", 250_000), ("1_000", 1000), ("7", 7), ("1E3", 1000), ("30e-1", 3)]
)
def test_whole_numbers_as_people_write_them(text, number):
    assert configured(TASK, "--steps", text).steps == number


@pytest.mark.parametrize("text", ["1.5", "1e-3", "many", "1e", "1e999999999", "0x10", "", "1,5"])
def test_what_is_no_whole_number(text):
    with pytest.raises(UserError, match=rf"--steps is '{text}'; expected a whole number"):
        configured(TASK, "--steps", text)


@pytest.mark.parametrize(
    "words, seeds",
    [(["0,1"], (0, 1)), (["0-3"], (0, 1, 2, 3)), (["0", "2"], (0, 2)), (["0-1,5", "7"], (0, 1, 5, 7)), (["4"], (4,))],
)
def test_lists_of_seeds(words, seeds):
    assert configured(TASK, "--seeds", *words).seeds == seeds


def test_layers_are_lists_of_numbers_too():
    assert configured(TASK, "--rep.hidden", "16,32", "--max-steps", "1e3").rep.hidden == (16, 32)


# Files with options ---------------------------------------------------------------------------------------------------


def printed(capsys, *words):
    status, out, err = said(capsys, "train", *words, "--print-config")
    assert status == 0 and not err, err
    return out


@pytest.mark.parametrize("rep, algo", [*((rep, "gcivl") for rep in REPS), *(("dual", algo) for algo in ALGOS)])
def test_a_file_gives_the_same_run(rep, algo, place):
    run = settings.preset(TASK, rep, algo, steps=1000, seeds=(0, 1), lr=1e-5, env="/a.py:b")
    (place / "run.toml").write_text(run_file.text(run, {}))
    again = Train.defaults(["--config", "run.toml"]).configuration
    assert again == run and again.id in (place / "run.toml").read_text()


def test_what_is_printed_gives_the_same_run(place, capsys):
    words = [TASK, "--steps", "1e3", "--seeds", "0,1", "--lr", "1e-5", "--env", "a.py:b", "--out", "there", "--video"]
    file = place / "run.toml"
    file.write_text(printed(capsys, *words))
    run, again = parsed(*words), parsed("--config", str(file))
    assert (again.rep, again.algo, again.seeds, again.lr) == (run.rep, run.algo, (0, 1), 1e-5)
    assert (again.env, str(again.out), again.video) == (f"{place}/a.py:b", "there", True)
    assert f"run {again.configuration.id}" in file.read_text() and not (place / "there").exists()
    assert printed(capsys, "--config", str(file)) == file.read_text()


def test_options_of_the_command_line_override_the_file(place, capsys):
    file = place / "run.toml"
    file.write_text(f'task = "{TASK}"\nsteps = 1e3\nalgo = "crl"\n[rep]\nname = "vib"\nbeta = 0.5\n')
    run = configured("--config", str(file))
    assert (run.task, run.steps, run.eval_every, run.rep.beta, type(run.algo).__name__) == (TASK, 1000, 100, 0.5, "CRL")
    run = configured("--config", str(file), "--steps", "2e3", "--rep.beta", "0.1")
    assert (run.steps, run.eval_every, run.rep.beta) == (2000, 200, 0.1)
    assert type(configured("--config", str(file), "--rep", "dual").rep).__name__ == "Dual", "options of vib are not its"
    assert configured("cube-single-play-v0", "--config", str(file)).task == "cube-single-play-v0"
    with pytest.raises(UserError, match="the task comes first"):
        configured("--config", str(file), "cube-single-play-v0")


def test_a_run_directory_is_a_file_with_options(place):
    """Among them where its data are, so that an own run is extended by `train --config RUN --steps N`."""
    run = untrained(place / "run", place / "data", eval_every=5)
    more = parsed("--config", "run", "--steps", "80")
    assert (more.configuration.id, more.steps, more.eval_every) == (run.id, 80, 5)
    assert more.data == place / "data" / f"{TASK}.npz" and more.left_open == ()


@pytest.mark.parametrize(
    "content, problem",
    [
        ("stesp = 3", "unknown key 'stesp'; did you mean 'steps'?"),
        ("steps = 'many'", "steps is 'many'; expected a whole number"),
        ("steps = 1.5", "steps is 1.5; expected a whole number"),
        ("lr = 'fast'", 'lr is "fast"; expected a number'),
        ("task = 3", "task is 3; expected a text in quotes"),
        ("workers = 'two'", 'workers is "two"; expected a whole number'),
        ("track = 'wandb'", 'track is "wandb"; expected a list'),
        ("[rep]\ndmi = 3", "rep.dmi is not an option of Dual"),
        ("[rep]\nname = 'dula'", "unknown representation 'dula'; did you mean 'dual'?"),
        ("[algo]\nname = 3", "algo.name is 3; expected a text in quotes"),
        ("track = [3]", "unknown tracker '3'"),
        ("track = ['tensorbord']", "unknown tracker 'tensorbord'; did you mean 'tensorboard'?"),
        ("discount = 2.0", "discount is 2.0; expected a number above 0 and at most 1 - 1e-7"),
        ("steps =", "not TOML"),
        ("seeds = [0, 0]", "seeds is (0, 0)"),
    ],
)
def test_a_file_that_cannot_be_used(content, problem, place):
    (place / "run.toml").write_text(content)
    with pytest.raises(UserError) as caught:
        configured(TASK, "--config", "run.toml")
    assert problem in str(caught.value)


def test_texts_are_written_as_toml_reads_them():
    run = tiny_run(env='a "b"\\é\n.py:c', success="0.1")
    assert tomllib.loads(run_file.text(run, {}))["env"] == run.env


# Dry runs -------------------------------------------------------------------------------------------------------------


def test_a_dry_run_says_everything_and_writes_nothing(place, capsys):
    words = [
        "train",
        TASK,
        "--data",
        "data",
        "--steps",
        "1e3",
        "--rep.hidden",
        "8",
        "--algo.hidden",
        "8",
        "--seeds",
        "0-1",
    ]
    before = everything(place)
    status, out, err = said(capsys, *words, "--dry-run")
    run = parsed(*words[1:]).configuration
    assert status == 0 and not err and everything(place) == before
    assert f"id          {run.id}\n" in out and str(directory.default_folder(run)) in out and "(new)" in out
    assert "steps 0 to 1,000" in out and "492 rows, 12 episodes" in out and "observations 2, goals 2" in out
    parameters = sum(leaf.size for leaf in parameters_of(run))
    assert f"{parameters:,} parameters per seed" in out and "memory      about " in out
    assert "time        about a minute or less on this machine, without evaluation" in out
    status, out, _ = said(capsys, "train", "cube-single-play-v0", "--dry-run")
    assert status == 0 and "data        not here" in out and everything(place) == before


def parameters_of(run):
    import jax

    from dualgoal.runs import facts, policy

    agent = policy.agent_for(run, facts.Sizes((2,), 2, discrete=False))
    return jax.tree.leaves(jax.eval_shape(agent.init, jax.random.key(0)).params)


def test_a_dry_run_sees_what_is_there(place, capsys):
    run = untrained(place / "run", place / "data")
    words = ["train", "--config", "run", "--dry-run"]
    complete = said(capsys, *words)[1]
    assert "complete (40 steps)" in complete and "time  " not in complete
    status, out, _ = said(capsys, *words, "--steps", "100")
    assert status == 0 and "steps 40 to 100" in out and f"id          {run.id}\n" in out and "run (exists)" in out
    status, _, err = said(capsys, *words, "--lr", "0.1", "--out", "run")
    assert status == 2 and "another configuration (lr: 0.0003 -> 0.1)" in err
    make_data(place / "data", seed=1)
    for more in ([], ["--dry-run"]):
        status, _, err = said(capsys, *words[:-1], "--steps", "100", *more)
        assert status == 2 and "run: trained on other data (SHA-256" in err


def test_a_dry_run_knows_the_goals_of_an_evaluation(place, capsys):
    words = ["train", TASK, "--data", "data", "--rep", "orig", "--algo", "gcbc", "--algo.hidden", "8", "--dry-run"]
    assert "10 times, 5 goals x 50 episodes per seed" in said(capsys, *words)[1]


def test_a_dry_run_asks_for_what_a_tracker_needs(place, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    for more in ([], ["--dry-run"]):
        status, _, err = said(capsys, "train", TASK, "--data", "data", "--track", "wandb", "--episodes", "0", *more)
        assert status == 2 and "--track wandb needs wandb, which is not installed" in err
    assert not (place / "runs").exists()


def test_time_grows_with_steps_seeds_and_what_a_step_computes(place, monkeypatch):
    from dualgoal.data import dataset
    from dualgoal.runs import duration, facts, policy
    from dualgoal.sampler import shapes

    monkeypatch.setattr(duration, "product_speed", lambda precision: 1e9)
    data = dataset.load(place / "data", TASK)
    rows = shapes(data.observations, data.actions, None, data.episodes)
    agent = policy.agent_for(tiny_run(), facts.Sizes((2,), 2, discrete=False))
    one = duration.operations(agent, rows)
    wide = type(agent)(agent.rep, agent.algo, with_batch(agent.spec, 10 * agent.spec.batch_size))
    assert duration.operations(wide, rows) == pytest.approx(10 * one)
    beyond = lambda *given: duration.estimate(*given) - given[2] * duration.OVERHEAD["cpu"]
    assert beyond(agent, 1, 100, rows) == pytest.approx(100 * one / (duration.SHARE["cpu"] * 1e9))
    assert beyond(agent, 3, 100, rows) == pytest.approx(3 * beyond(agent, 1, 100, rows))


def test_operations_of_a_layer_are_two_for_each_of_its_weights_and_rows():
    import jax
    import jax.numpy as jnp

    from dualgoal.runs import duration

    layer = jax.make_jaxpr(lambda x, w: jax.jit(jnp.matmul)(x, w))(jnp.ones((7, 5)), jnp.ones((5, 3)))
    assert duration.operations_in(layer.jaxpr) == 2 * 7 * 5 * 3


def test_rough_times_are_read_at_a_glance():
    from dualgoal.runs.duration import text

    found = [text(seconds) for seconds in (5, 100, 5_500, 10_000, 170_000, 1_400_000)]
    several = ["2 minutes", "90 minutes", "3 hours", "50 hours", "20 days"]
    assert found == ["about a minute or less", *(f"roughly {time}" for time in several)]


def test_memory_is_that_of_the_arrays(place):
    from dualgoal.data import dataset
    from dualgoal.runs import facts, memory, policy

    data = dataset.load(place / "data", TASK)
    agent = policy.agent_for(tiny_run(), facts.Sizes((2,), 2, discrete=False))
    arrays = {"observations": data.observations, "actions": data.actions}
    one, two = (memory.estimate(agent, seeds, arrays, data.episodes) for seeds in (1, 2))
    assert one.data == data.observations.nbytes + data.actions.nbytes + 2 * 4 * data.episodes
    assert two.state == 2 * one.state / two.devices and one.state >= 3 * 4 * one.parameters
    wide = memory.estimate(type(agent)(agent.rep, agent.algo, with_batch(agent.spec, 1600)), 1, arrays, data.episodes)
    assert wide.step > 20 * (one.step - one.state), "a step grows with its batch"


def with_batch(spec, rows):
    import dataclasses

    return dataclasses.replace(spec, batch_size=rows)


# Words ----------------------------------------------------------------------------------------------------------------


def test_a_group_of_commands_has_help(capsys):
    status, out, _ = said(capsys, "data", "--help")
    assert status == 0 and "usage: dualgoal data COMMAND" in out
    assert all(f"  {verb} " in out for verb in VERBS if verb.startswith("data ")) and "train" not in out


@pytest.mark.skipif(shutil.which("bash") is None, reason="completion is for bash")
def test_the_shell_completes():
    def offered(*words):
        line = " ".join(f"'{word}'" for word in words)
        ask = f"COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _dualgoal; echo ${{COMPREPLY[@]}}"
        done = subprocess.run(["bash", "-c", f"{script}\n{ask}"], capture_output=True, text=True, check=True)
        assert not done.stderr
        return done.stdout.split()

    script = completion.script()
    assert set(offered("dualgoal", "")) == {verb.split()[0] for verb in VERBS}
    assert offered("dualgoal", "tr") == ["train"] and offered("dualgoal", "data", "g") == ["generate"]
    assert "--rep.aggregation" in offered("dualgoal", "train", "x", "--rep.a")
    assert "hiql" in offered("dualgoal", "train", "x", "--algo", "") and TASK in offered("dualgoal", "train", "point")
    assert "hiql" not in offered("dualgoal", "lightsout", "--rep", ""), "each command has words of its own"
    assert offered("dualgoal", "lightsout", "--rep", "id") == ["ideal", "ideal_goals"]
    assert offered("dualgoal", "train", "x", "--rep.learner", "") == ["iql", "ivl"]
    assert offered("dualgoal", "joins", "--joins", "ear") == ["early"]
    assert offered("dualgoal", "data", "import", "x", "--goal-d") == ["--goal-dims"]
    assert offered("dualgoal", "data", "fetch", "pointmaze-m") == [TASK] and offered("dualgoal", "eval", "run") == []


def test_without_a_gpu_asking_for_one_is_one_line(place, capsys, monkeypatch):
    import jax

    from dualgoal.cli import doctor

    def refuse():
        raise AssertionError  # as JAX does without NVIDIA's plugin

    monkeypatch.setattr(jax, "local_devices", refuse)
    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    status, _, err = said(capsys, "train", TASK, "--data", "data", "--episodes", "0", "--out", "run", "--quiet")
    assert status == 2 and err.count("\n") == 1 and "JAX_PLATFORMS=cuda: JAX finds no such device here; unset it" in err
    monkeypatch.setattr(doctor, "_rendering", lambda: {"chosen": "egl", "backends": {"egl": "works"}})
    status, out, _ = said(capsys, "doctor", "--json")
    assert status == 0 and json.loads(out)["advice"][0] in err and json.loads(out)["devices"] == []
    assert "devices    none\n" in doctor.text(json.loads(out))

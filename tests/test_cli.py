"""The command line: help at once, names checked, one line and exit status 2 for what a user can fix."""

import dataclasses
import json
import subprocess
import sys

import pytest

from dualgoal.cli import main as cli
from dualgoal.cli import train_flags
from dualgoal.cli.main import main
from dualgoal.envs import tasks
from dualgoal.errors import UserError
from dualgoal.paper import settings
from dualgoal.runs import config
from tiny import TASK, flags, make_data, tiny_run, untrained


def said(capsys, *words):
    status = main(list(words))
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def parsed(*words):
    return train_flags.parse_train(list(words), lambda cls, args: cli.parse(cls, args, "train"))


def test_usage_names_every_verb_and_imports_nothing_heavy():
    code = "import sys; from dualgoal.cli import main; main(['--help']); "
    code += "print([m for m in ('jax', 'mujoco', 'matplotlib', 'imageio', 'tyro', 'rich') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *usage, heavy = done.stdout.strip().splitlines()
    assert heavy == "[]" and all(any(f"  {verb} " in line for line in usage) for verb in cli.VERBS)


@pytest.mark.parametrize("verb", [v for v in cli.VERBS if v != "train"])
def test_every_verb_has_help_for_every_option(capsys, verb):
    status, out, _ = said(capsys, *verb.split(), "--help")
    assert status == 0 and f"usage: dualgoal {verb}" in out


def test_help_of_train_shows_every_option_with_its_default(capsys):
    status, out, _ = said(capsys, "train", "antmaze-giant-navigate-v0", "--rep", "vib", "--algo", "crl", "--help")
    assert status == 0
    for name in ("batch-size", "eval-every", "rep.beta", "algo.alpha", "track", "video", "direct", "data"):
        assert f"--{name}" in out
    assert "(default: 0.995)" in out, "the preset's discount for this task"
    for field in dataclasses.fields(config.Run):
        assert field.name in ("task", "rep", "algo") or train_flags.field_docs(config.Run)[field.name]


@pytest.mark.parametrize(
    "words, problem",
    [
        (["trian"], "unknown command 'trian'; did you mean 'train'?"),
        (["data", "make"], "unknown command 'data make'"),
        (["data"], "data needs one of: generate, fetch, info, import"),
        (["list", "rep"], "invalid choice 'rep'"),
        (["train", "cube-singel-play-v0"], "unknown task 'cube-singel-play-v0'; did you mean 'cube-single-play-v0'?"),
        (["train", TASK, "--rep", "dula"], "unknown representation 'dula'; did you mean 'dual'?"),
        (["train", TASK, "--algo", "gcvil"], "unknown algorithm 'gcvil'; did you mean 'gcivl'?"),
        (["train", TASK, "--rep.dmi", "3"], "Unrecognized options: --rep.dmi, 3; did you mean --rep.dim?"),
        (["train", TASK, "--steps", "many"], "--steps"),
        (["train", TASK, "--steps", "0"], "steps is 0; expected at least 1"),
        (["train", TASK, "--rep.aggregation", "inter"], "unknown aggregation 'inter'; did you mean 'inner'?"),
        (["train", TASK, "--algo", "crl", "--direct"], "--direct is for --algo gcivl"),
        (["train", TASK, "--fusion", "late"], "--fusion is for --rep orig"),
        (["train", TASK, "--data", "/nowhere", "--episodes", "0", "--out", "/tmp/x"], "/nowhere"),
        (["eval", "/nowhere"], "/nowhere: not a run directory"),
        (["reproduce", "state_gcvil", "--dry-run"], "unknown table 'state_gcvil'"),
        (["export", "/nowhere", "--out", "a.safetensors"], "/nowhere: not a run directory"),
    ],
)
def test_problems_are_one_line_and_status_2(capsys, words, problem):
    status, out, err = said(capsys, *words)
    assert status == 2 and not out
    assert problem in err and err.startswith("dualgoal: ") and err.count("\n") == 1


@pytest.mark.parametrize("what", ["reps", "algos", "tasks", "tables"])
def test_list(capsys, what):
    status, out, _ = said(capsys, "list", what, "--json")
    names = [entry["name"] for entry in json.loads(out)]
    expected = {"reps": {"orig", "dual"}, "algos": {"gcivl", "gcbc"}, "tasks": {TASK}, "tables": {"fusion", "noise"}}
    assert status == 0 and expected[what] <= set(names)
    assert len(names) == 20 if what == "tasks" else len(names) >= 5
    status, out, _ = said(capsys, "list", what)
    assert all(name in out for name in names)


@pytest.mark.parametrize("rep, algo", [("dual", "gcivl"), ("vib", "crl"), ("tra", "gcfbc"), ("orig", "gcivl")])
@pytest.mark.parametrize("task", [TASK, "antmaze-giant-navigate-v0", "visual-scene-play-v0"])
def test_without_flags_the_run_is_the_preset(task, rep, algo):
    assert parsed(task, "--rep", rep, "--algo", algo)[0] == settings.preset(task, rep, algo)


def test_flags_override_the_preset():
    run, extra = parsed(
        TASK, "--rep=dual", "--algo", "gcivl", "--rep.dim", "128", "--algo.alpha", "3", "--seeds", "1", "2",
        "--no-ema-before-update", "--steps", "1000", "--rep.hidden", "16", "16", "--track", "tensorboard",
        "--video", "--out", "somewhere",
    )  # fmt: skip
    assert (run.rep.dim, run.algo.alpha, run.seeds, run.ema_before_update) == (128, 3.0, (1, 2), False)
    assert run.rep.hidden == (16, 16) and run.eval_every == 100, "evaluations keep their number"
    assert extra.track == ("tensorboard",) and extra.video and str(extra.out) == "somewhere"


def test_columns_of_tables_are_one_flag():
    direct, _ = parsed("scene-play-v0", "--direct")
    assert direct.algo.direct and direct.rep.learner == "ivl"
    late, _ = parsed("visual-puzzle-3x3-play-v0", "--rep", "orig", "--fusion", "late")
    assert late.rep.fusion == "late"
    code, _ = parsed("antmaze-giant-navigate-v0", "--rep", "orig", "--source", "code")
    assert code.discount == 0.99
    assert parsed("cube-single-play-v0", "--rep", "orig", "--rep.hidden", "8", "8")[0].rep == direct_orig()


def direct_orig():
    return settings.preset("cube-single-play-v0", "orig", "gcivl").rep


def test_own_data_needs_no_known_task(tmp_path):
    run, _ = parsed("my-robot", "--data", str(tmp_path), "--steps", "100")
    assert run.task == "my-robot" and run.episodes == 0 and run.log_every == 10
    with pytest.raises(UserError, match="unknown task 'my-robot'"):
        parsed("my-robot")
    without_preset, _ = parsed("antmaze-medium-stitch-v0", "--data", str(tmp_path))
    assert without_preset.episodes == 50, "there is an environment to evaluate in"


def test_the_frozen_representation_brings_its_options(tmp_path):
    phi = untrained(tmp_path / "phi", make_data(tmp_path / "data"), "dual", "none")
    run, _ = parsed(TASK, "--frozen-rep", str(tmp_path / "phi"), "--algo", "gcbc")
    assert run.rep == phi.rep and run.frozen_rep


def test_train_eval_and_resume_from_the_command_line(tmp_path, capsys, monkeypatch, quick_compile):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DUALGOAL_CACHE", str(tmp_path / "cache"))
    make_data(tmp_path / "data")
    words = [*flags(tiny_run()), "--data", "data", "--out", "run"]
    status, out, err = said(capsys, *words)
    assert status == 0 and "a new run" in out and not err, err
    status, out, _ = said(capsys, *words)
    assert status == 0 and "complete (40 steps)" in out
    status, _, err = said(capsys, *words, "--lr", "0.01")
    assert status == 2 and "lr: 0.0003 -> 0.01" in err
    status, out, _ = said(capsys, "eval", "run", "--episodes", "1", "--seeds", "3", "--workers", "1", "--json")
    rows = json.loads(out)
    assert status == 0 and [(r["seed"], r["goal"]) for r in rows] == [(3, t) for t in range(1, 6)]


def test_doctor_reports(capsys):
    status, out, _ = said(capsys, "doctor", "--json")
    found = json.loads(out)
    assert status == 0 and found["versions"]["jax"] and found["devices"] and set(found["rendering"]["backends"])
    from dualgoal.cli import doctor

    text = doctor.text(found)
    assert "rendering" in text and all(line in text for line in found["advice"])
    broken = {**found, "rendering": {"chosen": "disable", "backends": {"egl": "missing x", "osmesa": "missing y"}}}
    broken["versions"] = {**found["versions"], "mujoco": "3.5.1"}
    advice = " ".join(doctor._advice(broken))
    assert "apt-get install libegl1" in advice and "mujoco<3.5" in advice


def test_python_m_is_the_same_program():
    done = subprocess.run([sys.executable, "-m", "dualgoal", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == __import__("dualgoal").__version__
    assert tasks.get(TASK)


def test_whatever_a_message_quotes_it_is_one_line():
    from dualgoal.errors import UserError

    assert str(UserError("'a\nb\x1b[31m' is damaged")) == "'a\\nb\\x1b[31m' is damaged"

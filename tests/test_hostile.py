"""Files from somebody else: links, pipes, devices, foreign checkpoints and JSON that is not what it seems."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import tiny
from dualgoal import files, jsons
from dualgoal.errors import UserError
from dualgoal.paper import jobs, reproduce, settings
from dualgoal.report import page
from dualgoal.runs import directory, export, overview, policy
from run_files import rows, write_run

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    tiny.untrained(folder / "run", tiny.make_data(folder / "data"))
    return folder / "run"


@pytest.fixture
def copy(run, tmp_path):
    return Path(shutil.copytree(run, tmp_path / "run"))


def reopen(path: Path) -> None:
    recorded = directory.read(path)
    with directory.Store(path, recorded.run, recorded.facts) as record:
        record.newest(None)


@pytest.fixture
def alarm():
    """Waiting for a pipe fails the test instead of stopping it."""

    def rang(*_):
        raise TimeoutError("it waits")

    before = signal.signal(signal.SIGALRM, rang)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


# Links, pipes and devices in a run directory --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["lock", "eval.jsonl", "metrics.jsonl", "timing.jsonl", "config.json", "checkpoints"])
def test_a_link_in_a_run_directory_is_refused_and_its_target_untouched(copy, tmp_path, name):
    precious = tmp_path / "precious"
    if name == "checkpoints":
        shutil.move(copy / name, precious)
    else:
        precious.write_text('{"torn')
        (copy / name).unlink(missing_ok=True)
    (copy / name).symlink_to(precious)
    with pytest.raises(UserError, match=f"{name}: is a link, which is not followed here"):
        reopen(copy)
    assert len(list(precious.iterdir())) == 2 if name == "checkpoints" else precious.read_text() == '{"torn'


@pytest.mark.parametrize("name", ["lock", "eval.jsonl", "timing.jsonl", "config.json"])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_pipe_or_a_device_neither_blocks_nor_fills_the_memory(copy, name, kind, alarm):
    (copy / name).unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(copy / name)
    else:
        (copy / name).symlink_to("/dev/zero")
    with pytest.raises(UserError, match=f"{name}: (is a link|not a plain file|cannot be written|in use)"):
        reopen(copy)
    found = directory.inspect(copy)
    assert name not in ("eval.jsonl", "config.json") or any(name in problem for problem in found.problems)


def test_a_checkpoint_behind_a_link_is_damaged(copy, tmp_path, capsys):
    (step,) = directory.steps(copy)
    arrays = directory.checkpoint_path(copy, step)
    shutil.move(arrays, tmp_path / "elsewhere")
    arrays.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="cannot be read"):
        policy.load(copy)
    with pytest.raises(UserError, match="is a link"):
        policy.load(copy, step=step, verify=False)


def test_a_linked_film_is_not_shown(tmp_path):
    made = settings.preset(tiny.TASK, "orig", "gcbc", steps=20, eval_every=10)
    path = write_run(tmp_path / "run", made, rows(made, 5))
    (path / "videos").mkdir()
    (tmp_path / "secret").write_bytes(b"very secret")
    (path / "videos" / "step-000000020-seed-0-goal-1.mp4").symlink_to(tmp_path / "secret")
    os.mkfifo(path / "videos" / "step-000000020-seed-0-goal-2.mp4")
    (path / "videos" / "step-000000020-seed-0-goal-3.mp4").write_bytes(b"a film")
    text = page.build([path], title="t")
    assert text.count("data:video/mp4") == 1
    assert "goal-1.mp4: is a link" in text and "goal-2.mp4: not a plain file" in text


# Who is who -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", ["step", "run"])
def test_a_checkpoint_of_another_run_or_step_is_refused(copy, tmp_path, change):
    (step,) = directory.steps(copy)
    if change == "step":
        for old in (copy / "checkpoints").iterdir():
            old.rename(old.with_name(old.name.replace(f"{step:09d}", f"{step + 5:09d}")))
    else:
        tiny.untrained(tmp_path / "other", tiny.make_data(tmp_path / "data"), lr=1e-2)
        shutil.rmtree(copy / "checkpoints")
        shutil.copytree(tmp_path / "other" / "checkpoints", copy / "checkpoints")
    for use in (reopen, policy.load):
        with pytest.raises(UserError, match=r"belongs to run \w+ at step 40, not to this run"):
            use(copy)


def test_an_edited_configuration_is_refused(copy):
    content = json.loads((copy / "config.json").read_text())
    content["run"]["discount"] = 0.5
    (copy / "config.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match="config.json: edited after the run began"):
        policy.load(copy)
    assert any("edited after" in problem for problem in directory.inspect(copy).problems)


def test_a_run_of_an_unknown_number_of_goals_is_not_finished(tmp_path):
    part = {"tasks": ["cube-single-play-v0"], "reps": ["orig"], "seeds": [0], "steps": 10}
    job = reproduce.plan("state_gcivl", out=tmp_path, **part)[0]
    made = job.planned.run
    write_run(job.out, made, rows(made, 5))
    assert jobs.is_finished(job.out, job.planned)
    content = json.loads((job.out / "config.json").read_text())
    (job.out / "config.json").write_text(json.dumps({**content, "goals": None}))
    assert not jobs.is_finished(job.out, job.planned)


@pytest.mark.parametrize("name", ["config", "checkpoints/step-000000040", "notes"])
def test_an_export_replaces_nothing_but_an_export(copy, tmp_path, name):
    (copy / "notes.json").write_text("[]")
    before = tiny.record(copy) | {"config": (copy / "config.json").read_bytes()}
    with pytest.raises(UserError, match="would be replaced, and it is not an export"):
        export.export_policy(copy, copy / f"{name}.safetensors")
    assert tiny.record(copy) | {"config": (copy / "config.json").read_bytes()} == before
    (tmp_path / "model.safetensors").write_bytes(b"of somebody else")
    with pytest.raises(UserError, match="model.safetensors: would be replaced, and it is not an export"):
        export.export_policy(copy, tmp_path / "model.safetensors")
    again = [export.export_policy(copy, copy / "policy.safetensors").read_bytes() for _ in range(2)]
    assert again[0] == again[1]


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("facts", [], "facts is \\[\\]; expected an object"),
        ("facts", False, "facts is false; expected an object"),
        ("seed", None, "seed is null; expected a whole number"),
        ("step", "x", "step is "),
        ("facts.sizes.observation_shape", [2**63], "no sizes of a problem"),
        ("facts.sizes.observation_shape", [-1], "no sizes of a problem"),
        ("run.algo.hidden", [], r"hidden is \(\)"),
    ],
)
def test_an_export_with_other_facts_is_one_line(run, tmp_path, field, value, problem):
    file = export.export_policy(run, tmp_path / "p.safetensors")
    content = json.loads(file.with_suffix(".json").read_text())
    *path, last = field.split(".")
    inner = content
    for name in path:
        inner = inner[name]
    inner[last] = value
    file.with_suffix(".json").write_text(json.dumps(content))
    with pytest.raises(UserError, match=problem):
        policy.load(file)


@pytest.mark.parametrize("change", [{"goals": [5]}, {"goals": "x"}, {"run": {"seeds": 3}}])
def test_runs_shows_a_run_with_an_odd_configuration(copy, change):
    content = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(content | change))
    assert overview.look(copy).state in overview.STATES


# Options out of range -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("--rep.expectile -1", "expectile is -1.0"),
        ("--rep.expectile 2", "expectile is 2.0"),
        ("--algo.expectile nan", "expectile is nan"),
        ("--algo.alpha -1", "alpha is -1.0"),
        ("--algo.alpha nan", "alpha is nan"),
        ("--rep.hidden 0", "hidden is (0,)"),
        ("--rep.hidden -1", "hidden is (-1,)"),
        ("--rep.dim 0", "dim is 0"),
        ("--rep.dim 99999999999", "dim is 99999999999"),
        ("--goal-noise nan", "goal_noise is nan"),
        ("--action-noise inf", "action_noise is inf"),
        ("--lr nan", "lr is nan"),
        ("--tau nan", "tau is nan"),
        ("--discount nan", "discount is nan"),
        ("--augment nan", "augment is nan"),
        ("--steps 99999999999999999999", "steps is '99999999999999999999'"),
        ("--steps 2000000000 --log-every 1", "make them rarer"),
        ("--batch-size 0", "batch_size is 0"),
        ("--episodes -1", "episodes is -1"),
        ("--workers 0", "workers is 0"),
        ("--workers -3", "workers is -3"),
        ("--seeds -1", "seeds is (-1,)"),
    ],
)
def test_numbers_of_train_out_of_range(capsys, tmp_path, words, problem):
    from dualgoal.cli import main

    assert main.main(["train", tiny.TASK, "--out", str(tmp_path / "run"), *words.split()]) == 2
    assert problem in capsys.readouterr().err and not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("eval RUN --goal-noise nan", "goal_noise is nan"),
        ("eval RUN --action-noise -1", "action_noise is -1"),
        ("eval RUN --eval-seed -1", "eval_seed is -1"),
        ("eval RUN --episodes 0", "episodes is 0"),
        ("eval RUN --workers -1", "workers is -1"),
        ("theory --seed -1", "seed is -1"),
        ("bench --widths 0", "widths is (0,)"),
        ("bench --seeds 0", "seeds is (0,)"),
        ("bench --batches -1", "batches is (-1,)"),
        ("bench --seconds nan", "seconds is nan"),
        ("lightsout --out OUT --trajectories 0", "trajectories is 0"),
        ("lightsout --out OUT --length 0", "length is 0"),
        ("lightsout --out OUT --data-seed -1", "data_seed is -1"),
        ("lightsout --out OUT --anchor-seed -1", "anchor_seed is -1"),
        ("data generate pointmaze-medium-navigate-v0 --out OUT --episodes 0", "episodes is 0"),
        ("data generate pointmaze-medium-navigate-v0 --out OUT --episodes 1 --rows 1", "rows is 1"),
        ("data generate pointmaze-medium-navigate-v0 --out OUT --episodes 1 --seed -1", "seed is -1"),
        ("data generate pointmaze-medium-navigate-v0 --out OUT --episodes 1 --workers 0", "workers is 0"),
        ("train ../../x --data DATA", "cannot be the name of a task"),
    ],
)
def test_numbers_of_other_commands_out_of_range(capsys, run, tmp_path, words, problem):
    from dualgoal.cli import main

    given = {"RUN": str(run), "OUT": str(tmp_path / "out"), "DATA": str(run.parent / "data")}
    assert main.main([given.get(word, word) for word in words.split()]) == 2
    assert problem in capsys.readouterr().err and not (tmp_path / "out").exists()


# Code in the current folder -------------------------------------------------------------------------------------------

CHILD = """
import sys
from dualgoal.workers import Pool
with Pool(len, 1) as pool:
    print(pool.submit("abc").result())
"""


def test_workers_do_not_import_from_the_current_folder(tmp_path):
    """`eval` and `data generate` use the same pool. The script stands for the installed command: it lies elsewhere."""
    script, here = tmp_path / "bin" / "command.py", tmp_path / "here"
    script.parent.mkdir()
    here.mkdir()
    script.write_text(CHILD)
    for name in ("jax", "json", "numpy", "multiprocessing", "dualgoal", "struct", "tempfile"):
        (here / f"{name}.py").write_text("open('ran', 'w').close()")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, str(script)], cwd=here, env=environment, capture_output=True, text=True)
    assert done.stdout == "3\n", done.stderr
    assert not (here / "ran").exists()


PROCESSES = r"subprocess\.(?:run|Popen|c\w+)\(|os\.(?:system|popen|exec\w*|spawn\w*)\("


def test_every_process_that_is_started_is_known():
    """Python with -P, git on the package's own folder, and ffmpeg; whoever starts another one has to think of it."""
    found = {}
    for file in (ROOT / "src").rglob("*.py"):
        starts = re.findall(PROCESSES, file.read_text())
        if starts:
            found[file.name] = len(starts)
    assert found == {"workers.py": 1, "doctor.py": 1, "machine.py": 1, "episodes.py": 1, "lerobot.py": 1}
    for name in ("workers.py", "cli/doctor.py"):
        assert '[sys.executable, "-P", "-c"' in (ROOT / "src" / "dualgoal" / name).read_text()


# JSON -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"[" * 100_000, "is nested too deeply"),
        (b"[" * 100 + b"]" * 100, "is nested too deeply"),
        (b'{"a":' * 70 + b"1" + b"}" * 70, "is nested too deeply"),
        (b'{"a": NaN}', "holds NaN, which is not JSON"),
        (b'{"a": -Infinity}', "holds -Infinity, which is not JSON"),
        (b'{"a": 1e999}', "holds the number 1e999, which is too large"),
        (b'{"a": ' + b"9" * 30 + b"}", "holds a whole number of 30 digits"),
        (b'{"a": ' + b"9" * 10_000 + b"}", "holds a whole number of 10000 digits"),
        (b'{"a": "\x00"}', "holds a NUL character"),
        (b'{"a": "\\u0000"}', "holds a NUL character"),
        (b'{"a": 1, "a": 2}', "has the key 'a' twice"),
        (b'{"a": "\\ud800"}', "holds half of a surrogate pair"),
        (b'{"\\uD800": 1}', "holds half of a surrogate pair"),
        (b'{"a": "\xff"}', r"is not UTF-8 text \(byte 7\)"),
        (b'{"a": 1', "is not JSON .* column 8"),
        (b'{\n"a": }', "is not JSON .*line 2, column 6"),
        (b"", "is not JSON"),
    ],
)
def test_what_is_not_quite_json_is_one_line(tmp_path, content, problem):
    with pytest.raises(UserError, match=f"here: {problem}"):
        jsons.decode(content, "here:")
    file = tmp_path / "rows.jsonl"
    file.write_bytes(b'{"good": 1}\n' + content.replace(b"\n", b" ") + b"\n")
    found, said = jsons.usable_rows(file, jsons.json_object)
    assert found == [{"good": 1}] and said is not None and said.startswith(f"{file}: line 2 ") and "\n" not in said


def test_json_that_is_json_is_read_as_before():
    value = {"a": [1, -2.5, 1e-300, None, True, "\u20ac \U0001f600 \\u0041"], "b": {"c": [[]]}, "d": 2**63}
    assert jsons.decode(json.dumps(value).encode(), "x") == value
    deep = b"[" * 60 + b"]" * 60
    assert json.dumps(jsons.decode(deep, "x")).encode() == deep


def test_large_files_and_lines_are_refused_unread(tmp_path):
    large = tmp_path / "large.json"
    with large.open("wb") as file:
        file.truncate(1 << 40)  # a terabyte of nothing
    with pytest.raises(UserError, match="has more than 16 MiB"):
        jsons.read(large)
    assert "has more than 128 MiB" in str(jsons.usable_rows(large, jsons.json_object)[1])
    long = tmp_path / "long.jsonl"
    long.write_bytes(b'{"a": 1}\n"' + b"x" * (2 << 20) + b'"\n{"a": 2}\n')
    found, said = jsons.usable_rows(long, jsons.json_object)
    assert found == [{"a": 1}, {"a": 2}] and said == f"{long}: line 2 is longer than 1 MiB"


def test_a_carriage_return_in_a_row_is_not_a_line(tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_bytes(b'{"step": 1}\r\n{"step":\r2}\n{"step": 3}\n')
    journal = jsons.Journal(file, jsons.json_object, dict)
    journal.keep(lambda row: row["step"] <= 2)
    journal.append([{"step": 4}])
    journal.close()
    assert file.read_bytes() == b'{"step": 1}\r\n{"step":\r2}\n{"step": 4}\n'


def test_one_reader_of_json():
    """Everything that may come from elsewhere goes through `jsons`. The others read what this package itself holds or
    has just written: a word of its own command line, the paper's numbers, a trace of this process."""
    users = {file.name for file in (ROOT / "src").rglob("*.py") if re.search(r"json\.loads?\(", file.read_text())}
    assert users == {"jsons.py", "workers.py", "tables.py", "trace.py"}


# What killed processes leave ------------------------------------------------------------------------------------------


def test_leftovers_of_killed_processes_are_removed_and_others_kept(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    dead, alive = f".a.json.{child.pid}.tmp", f".a.json.{os.getppid()}.tmp"
    others = {alive, f".b.json.{child.pid}.tmp", ".a.json.x.tmp", "a.json.1.tmp"}
    for name in (dead, *others):
        (tmp_path / name).write_bytes(b"half")
    files.write_atomic(tmp_path / "a.json", b"whole")
    assert {p.name for p in tmp_path.iterdir()} == {"a.json", *others}
    files.remove_leftovers(tmp_path)
    assert not (tmp_path / f".b.json.{child.pid}.tmp").exists() and (tmp_path / alive).exists()


def test_opening_a_run_removes_what_a_killed_training_left(copy):
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    left = copy / "checkpoints" / f".step-000000077.safetensors.{child.pid}.tmp"
    left.write_bytes(b"half")
    reopen(copy)
    assert not left.exists()

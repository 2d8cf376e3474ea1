"""The command line: help at once, names checked, one line and exit status 2 for what a user can fix."""

import ast
import errno
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import tyro

from calls import configured, parsed, said
from dualgoal import cli, registry
from dualgoal.cli import parsing
from dualgoal.cli.main import VERBS, explain, main
from dualgoal.errors import UserError
from dualgoal.paper import settings
from tiny import TASK, dualgoal, flags, make_data, tiny_run, untrained


def plain(box):
    """The text in tyro's frames."""
    return " ".join(box.replace("│", " ").split())


def test_usage_names_every_verb_and_imports_nothing_heavy():
    code = "import sys; from dualgoal.cli.main import main; main(['--help']); "
    code += "print([m for m in ('jax', 'mujoco', 'matplotlib', 'imageio', 'tyro', 'rich') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *usage, heavy = done.stdout.strip().splitlines()
    assert heavy == "[]" and all(any(f"  {verb} " in line for line in usage) for verb in VERBS)


def test_help_comes_without_jax():
    code = "import sys; from dualgoal.cli.main import VERBS, main; "
    code += "[main([*verb.split(), '--help']) for verb in VERBS if verb != 'train']; "  # whose options parts decide
    code += "print([m for m in ('jax', 'mujoco', 'matplotlib', 'imageio') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_package_imports_at_once_and_without_jax():
    code = "import sys, time; began = time.process_time(); import dualgoal; took = time.process_time() - began; "
    code += "print(took < 0.2, 'jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]


@pytest.mark.parametrize("verb", VERBS)
def test_every_option_of_every_verb_has_help(capsys, verb):
    status, out, _ = said(capsys, *verb.split(), "--help")
    assert status == 0 and f"usage: dualgoal {verb}" in out and VERBS[verb].summary in plain(out)
    options = re.split(r"\n[│ ] (?=--?[a-z])", out)[1:]  # in a frame or without one
    silent = [text for text in options if not re.search(r"\s{2,}\w.*\w", text, re.S)]
    assert not silent, silent
    verb_class = VERBS[verb].load()
    shown = set(re.findall(r"--[a-z][\w.-]*", " ".join(options)))
    offered = set(parsing.flags(verb_class, verb_class.defaults(["--help"])))
    assert "--help" in shown and offered <= shown, "completion and suggestions have no others"
    assert verb != "train" or {"--rep", "--algo", "--config"} <= offered


def test_help_is_a_command_too(capsys):
    assert said(capsys, "help") == said(capsys, "--help") and said(capsys, "help")[0] == 0
    assert said(capsys, "help", "data", "info") == said(capsys, "data", "info", "--help")


def test_the_help_of_an_option_is_one_line_of_source():
    """Tyro would break the line of the help where that of a docstring is broken."""
    source = Path(cli.__file__).parent
    package = source.parent
    parts = (*package.glob("reps/*.py"), *package.glob("algos/*.py"))
    for file in (*source.glob("*.py"), *parts, package / "runs" / "config.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            body = node.body if isinstance(node, ast.ClassDef) else []
            for option, about in zip(body, body[1:], strict=False):
                if isinstance(option, ast.AnnAssign) and isinstance(about, ast.Expr):
                    assert about.lineno == about.end_lineno, f"{file.name}, line {about.lineno}"


def test_help_of_train_shows_every_option_with_its_default(capsys):
    status, out, _ = said(capsys, "train", "antmaze-giant-navigate-v0", "--rep", "vib", "--algo", "crl", "--help")
    assert status == 0
    for name in ("batch-size", "eval-every", "rep.beta", "algo.alpha", "track", "video", "data", "separate-cores"):
        assert f"--{name}" in out
    assert "(default: 0.995)" in plain(out), "the preset's discount for this task"
    assert "[OPTIONS] TASK" in out
    assert "--ema-before-update, --no-ema-before-update" in out, "the text says what the option does, not its negation"


# Words and codes that only make sense to those who wrote them.
CODES = [r"\bsections? \d", r"\b[DAT]\d+\b"]
COINED = ["way back", "coin", "last words", "deaf", "beside", "goes on", "go on", "at a price", "reference's", "said"]


def riddles(text):
    found = [match.group() for pattern in CODES for match in re.finditer(pattern, plain(text))]
    return found + [phrase for phrase in COINED if re.search(rf"\b{phrase}\b", plain(text))]


@pytest.mark.parametrize("verb", ["", *(verb for verb in VERBS if verb != "train"), "list tasks", "list tables"])
def test_what_is_printed_needs_no_key(capsys, verb):
    words = verb.split() if verb.startswith("list ") else [*verb.split(), "--help"]
    assert not riddles(said(capsys, *words)[1])


@pytest.mark.parametrize("kind", ["rep", "algo"])
def test_what_is_printed_about_parts_needs_no_key(capsys, kind):
    assert not riddles(said(capsys, "list", f"{kind}s")[1])
    for name in registry.names(kind):
        assert not riddles(said(capsys, "train", TASK, f"--{kind}", name, "--help")[1]), name


@pytest.mark.parametrize("what", ["reps", "algos", "tasks", "tables"])
def test_list(capsys, what):
    status, out, _ = said(capsys, "list", what, "--json")
    names = [entry["name"] for entry in json.loads(out)]
    expected = {"reps": {"orig", "dual"}, "algos": {"gcivl", "gcbc"}, "tasks": {TASK}, "tables": {"fusion", "noise"}}
    assert status == 0 and expected[what] <= set(names)
    assert len(names) == 20 + 13 if what == "tasks" else len(names) >= 5
    status, out, _ = said(capsys, "list", what)
    assert all(name in out for name in names)
    assert what != "tasks" or re.search(rf"{TASK} +observations 2 +actions 2 +discount 0.99 +representation 64\n", out)


@pytest.mark.parametrize("rep, algo", [("dual", "gcivl"), ("vib", "crl"), ("tra", "gcfbc"), ("orig", "gcivl")])
@pytest.mark.parametrize("task", [TASK, "antmaze-giant-navigate-v0", "visual-scene-play-v0"])
def test_without_flags_the_run_is_the_preset(task, rep, algo):
    assert configured(task, "--rep", rep, "--algo", algo) == settings.preset(task, rep, algo)


def test_flags_override_the_preset():
    run = parsed(
        TASK, "--rep=dual", "--algo", "gcivl", "--rep.dim", "128", "--algo.alpha", "3", "--seeds", "1", "2",
        "--no-ema-before-update", "--steps", "1000", "--rep.hidden", "16", "16", "--track", "tensorboard",
        "--video", "--out", "somewhere",
    )  # fmt: skip
    assert (run.rep.dim, run.algo.alpha, run.seeds, run.ema_before_update) == (128, 3.0, (1, 2), False)
    assert run.rep.hidden == (16, 16) and run.eval_every == 100, "evaluations keep their number"
    assert run.track == ("tensorboard",) and run.video and str(run.out) == "somewhere"


def test_columns_of_tables_are_options():
    direct = configured("scene-play-v0", "--algo.direct", "--rep.learner", "ivl")
    assert direct.algo.direct and direct.rep.learner == "ivl"
    late = configured("visual-puzzle-3x3-play-v0", "--rep", "orig", "--rep.fusion", "late")
    assert late.rep.fusion == "late"
    code = configured("antmaze-giant-navigate-v0", "--rep", "orig", "--source", "code")
    assert code.discount == 0.99


def test_own_data_needs_no_known_task(tmp_path):
    run = configured("my-robot", "--data", str(tmp_path), "--steps", "100")
    assert run.task == "my-robot" and run.episodes == 0 and run.log_every == 10
    with pytest.raises(UserError, match="unknown task 'my-robot'"):
        parsed("my-robot")
    without_preset = configured("antmaze-medium-stitch-v0", "--data", str(tmp_path))
    assert without_preset.episodes == 50, "there is an environment to evaluate in"


def test_the_frozen_representation_brings_its_options(tmp_path):
    phi = untrained(tmp_path / "phi", make_data(tmp_path / "data"), "dual", "none")
    run = parsed(TASK, "--frozen-rep", str(tmp_path / "phi"), "--algo", "gcbc")
    assert run.rep == phi.rep and run.frozen_rep and run.rep_name == "dual"
    (tmp_path / "same.toml").write_text(f"rep.dim = {phi.rep.dim}\n")
    (tmp_path / "other.toml").write_text("rep.dim = 99\n")
    frozen = ["--frozen-rep", str(tmp_path / "phi"), "--algo", "gcbc", "--config"]
    assert parsed(TASK, *frozen, str(tmp_path / "same.toml")).rep == phi.rep
    with pytest.raises(UserError, match=f"rep.dim is 99, but {phi.rep.dim} in the run of --frozen-rep"):
        parsed(TASK, *frozen, str(tmp_path / "other.toml"))


def test_train_eval_and_resume_from_the_command_line(tmp_path, capsys, monkeypatch):
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


def test_doctor_does_not_run_code_of_the_current_folder(tmp_path, monkeypatch):
    from dualgoal.cli import doctor

    (tmp_path / "mujoco.py").write_text("open('ran', 'w')")
    monkeypatch.chdir(tmp_path)
    doctor._draws("egl", {})
    assert not (tmp_path / "ran").exists()


def test_python_m_is_the_same_program():
    done = subprocess.run([sys.executable, "-m", "dualgoal", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == __import__("dualgoal").__version__


def test_tyro_tells_what_is_wrong():
    """One function reads a private module of tyro; a version without it prints several lines, which users can read."""
    from tyro import _errors

    assert hasattr(_errors, "on_parse_error"), f"tyro {tyro.__version__} has no hook any more; 1.0.16 had one"
    names = ("UnrecognizedArgs", "MissingArgs", "InvalidChoice", "BadValue", "InstantiationFailure")
    assert not [name for name in names if not hasattr(_errors, name)], tyro.__version__


def test_without_the_hook_tyro_speaks_for_itself(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "tyro._errors", None)
    monkeypatch.delattr(tyro, "_errors")
    status, _, err = said(capsys, "list", "rep")
    assert status == 2 and "rep" in err


def test_whatever_a_message_quotes_it_is_one_line():
    assert str(UserError("'a\nb\x1b[31m' is damaged")) == "'a\\nb\\x1b[31m' is damaged"


@pytest.mark.parametrize(
    "problem, line",
    [
        (
            OSError(errno.ENOSPC, "No space left on device", "x/metrics.jsonl"),
            "x/metrics.jsonl: no space left on device",
        ),
        (OSError(errno.ENOSPC, "No space left on device"), "no space left on device; free some space"),
        (PermissionError(errno.EACCES, "Permission denied", b"run/lock"), "run/lock: permission denied"),
        (TimeoutError("timed out"), "timed out"),
        (MemoryError("Unable to allocate 8 GiB"), "not enough memory (Unable to allocate 8 GiB)"),
        (RecursionError("maximum recursion depth"), "nested too deeply"),
        (RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate"), "not enough memory"),
    ],
)
def test_what_the_machine_refuses_is_one_line_too(capsys, monkeypatch, problem, line):
    from dualgoal.cli import listing

    def refuse(what):
        raise problem

    monkeypatch.setattr(listing, "entries", refuse)
    status, out, err = said(capsys, "list", "reps")
    assert status == 2 and not out and line in err and err.startswith("dualgoal: ") and err.count("\n") == 1
    monkeypatch.setenv("DUALGOAL_DEBUG", "1")
    with pytest.raises(type(problem)):
        main(["list", "reps"])


def test_defects_keep_their_traceback(monkeypatch):
    from dualgoal.cli import listing

    monkeypatch.setattr(listing, "entries", lambda what: {}[what])
    with pytest.raises(KeyError):
        main(["list", "reps"])
    assert explain(RuntimeError("dictionary changed size during iteration")) is None


@pytest.mark.parametrize(
    "words",
    [
        ["data", "generate", TASK, "--episodes", "1", "--workers", "1", "--quiet", "--out", "FILE"],
        ["data", "import", "SOURCE", "--out", "FILE/x"],
        ["data", "info", "FILE/x.npz"],
        ["data", "fetch", TASK, "--mirror", "http://127.0.0.1:9", "--out", "FILE/x", "--quiet"],
        ["train", TASK, "--data", "DATA", "--out", "FILE", "--episodes", "0", "--steps", "1"],
        ["train", TASK, "--data", "DATA", "--out", "FILE/x", "--episodes", "0", "--steps", "1"],
        ["eval", "FILE"],
        ["report", "DATA", "--out", "FILE/r.html"],
        ["results", "--folder", "FILE", "--out", "FILE/page.md"],
        ["export", "FILE", "--out", "x.safetensors"],
        ["theory", "--plot", "FILE/x"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_a_file_where_a_folder_belongs(tmp_path, capsys, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DUALGOAL_CACHE", str(tmp_path / "cache"))
    (tmp_path / "FILE").write_text("a file")
    source = make_data(tmp_path / "DATA")
    (source / "config.json").write_text("{}")  # a run, as far as report can see
    words = [str(source / f"{TASK}.npz") if word == "SOURCE" else word for word in words]
    status, _, err = said(capsys, *words)
    assert status == 2 and err.startswith("dualgoal: ") and err.count("\n") == 1 and "FILE" in err, err


def tiny_words(folder):
    return [*flags(tiny_run()), "--data", str(make_data(folder / "data")), "--out", str(folder / "run")]


def test_a_closed_pipe_does_not_stop_training(tmp_path):
    program = dualgoal(*tiny_words(tmp_path), cache=tmp_path)
    assert program.stdout.readline()
    program.stdout.close()
    assert program.wait(timeout=240) == 0
    assert (tmp_path / "run" / "checkpoints" / "step-000000040.json").is_file()


def test_a_failure_is_one_even_if_nobody_reads(tmp_path):
    code = "import os, sys; from dualgoal.cli.main import main; os.close(0); sys.exit(main())"
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, "-c", code, "eval", "/nowhere"], stdout=writer, stderr=writer)
    assert done.returncode == 2
    done = subprocess.run([sys.executable, "-c", code, "list", "tasks"], stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


def test_in_a_file_the_error_comes_after_the_output(tmp_path):
    code = """
        import sys
        from dualgoal.cli import main
        from dualgoal.errors import UserError

        def run(words):
            print("first")
            raise UserError("then")

        main.run = run
        sys.exit(main.main())
    """
    with (tmp_path / "log").open("w") as log:
        subprocess.run([sys.executable, "-c", textwrap.dedent(code)], stdout=log, stderr=log)
    assert (tmp_path / "log").read_text() == "first\ndualgoal: then\n"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_output_on_a_full_disk_is_not_a_success():
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "dualgoal", "list", "tasks"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2 and done.stderr == "dualgoal: output was lost: No space left on device\n"


# A shell that starts a program in the background lets it and all that it starts ignore Ctrl-C.
INTERRUPTIBLE = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "


@pytest.mark.parametrize(
    ("name", "verb", "status"), [("SIGINT", "doctor", 130), ("SIGINT", "train", 130), ("SIGTERM", "train", 75)]
)
def test_a_signal_in_a_callback_of_the_garbage_collector_is_not_lost(name, verb, status):
    code = """
        import dataclasses, gc, os, signal, sys, time
        from dualgoal.cli import main, verb

        @dataclasses.dataclass(frozen=True)
        class Wait(verb.Verb):
            def run(self):
                def callback(*_):
                    gc.callbacks.remove(callback)
                    os.kill(os.getpid(), signal.NAME)
                    time.sleep(0)
                gc.callbacks.append(callback)
                gc.collect()
                time.sleep(20)

        main.Entry.load = lambda entry: Wait
        sys.argv = ["dualgoal", "VERB"]
        sys.exit(main.main())
    """
    code = textwrap.dedent(code).replace("NAME", name).replace("VERB", verb)
    done = subprocess.run([sys.executable, "-c", INTERRUPTIBLE + code], capture_output=True, text=True, timeout=15)
    assert (done.returncode, done.stderr.count("\n")) == (status, 1), done.stderr
    assert done.stderr.startswith("dualgoal: ") and f"dualgoal {verb}" in done.stderr


def test_commands_that_say_that_they_resume_ask_schedulers_to_be_repeated():
    says = lambda entry: "resumes when" in " ".join((entry.load().__doc__ or "").split())
    missing = [name for name, entry in VERBS.items() if says(entry) and not entry.resumes]
    assert not missing and VERBS["data generate"].resumes


@pytest.mark.parametrize("delay", [0.3, 0.8, 1.3])
def test_ctrl_c_while_starting_ends_with_one_line(tmp_path, delay):
    words = [
        *flags(tiny_run(steps=10**6, log_every=1000)),
        "--data",
        str(make_data(tmp_path / "data")),
        "--out",
        str(tmp_path / "run"),
    ]
    code = INTERRUPTIBLE + "from dualgoal.cli.main import main; print('ready', flush=True); sys.exit(main())"
    command = [sys.executable, "-c", code, *words]
    program = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert program.stdout.readline() == "ready\n"
    time.sleep(delay)
    program.send_signal(signal.SIGINT)
    out, _ = program.communicate(timeout=60)
    assert program.returncode == 130 and "Traceback" not in out, out
    last = out.splitlines()[-1]  # a quick machine has begun the run by then
    assert last.startswith(("dualgoal: stopped", "dualgoal: interrupted")), out

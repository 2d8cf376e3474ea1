"""Options of what a part holds, such as `rep.goals.current`, have one name everywhere: as a flag, in Python, in a file
with options and in a sweep."""

import json
from pathlib import Path

import pytest

from calls import configured
from dualgoal.errors import UserError
from dualgoal.paper import sweep
from dualgoal.paper.settings import preset
from tiny import TASK

# The representation, the options with their flags, and what becomes of them.
GOALS = ("dual", {"rep.goals.current": 0.0, "rep.goals.random": 0.5}, {"goals": {"current": 0.0, "geometric": 0.5}})
PART = ("far_parts:Scaled", {"rep.inner.dim": 8, "rep.factor": 3.0}, {"factor": 3.0, "inner": {"dim": 8}})
DEEPER = (
    "far_parts:Scaled",
    {"rep.inner.goals.current": 0.0, "rep.inner.goals.geometric": 0.7},
    {"inner": {"expectile": 0.9, "goals": {"current": 0.0, "random": 0.3}}},
)


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "outside"))
    return tmp_path


def lines(options, cut=0):
    """Options in TOML, without the first words of their names."""
    return "\n".join(f"{'.'.join(name.split('.')[cut:])} = {json.dumps(value)}" for name, value in options.items())


def quoted(options):
    return "\n".join(f'"{name}" = {json.dumps(value)}' for name, value in options.items())


def of_file(text):
    Path("run.toml").write_text(text)
    return configured("--config", "run.toml")


def of_sweep(rep, text):
    Path("sweep.toml").write_text(f'tasks = ["{TASK}"]\nreps = ["{rep}"]\n{text}')
    (planned,) = sweep.expand(sweep.read("sweep.toml"))
    return planned


def contains(values, wanted):
    inside = lambda name, value: contains(values[name], value) if isinstance(value, dict) else values[name] == value
    return all(inside(name, value) for name, value in wanted.items())


@pytest.mark.parametrize("rep, options, wanted", [GOALS, PART, DEEPER])
def test_an_option_has_the_same_name_everywhere(rep, options, wanted):
    flags = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    run = configured(TASK, "--rep", rep, *flags)
    planned = of_sweep(rep, f"[options]\n{lines(options)}")
    assert contains(planned.config["rep"], wanted)
    head = f'task = "{TASK}"\nrep.name = "{rep}"\n'
    found = {
        "python": preset(TASK, rep, "gcivl", **options).id,
        "python, in another order": preset(TASK, rep, "gcivl", **dict(reversed(options.items()))).id,
        "a file": of_file(head + lines(options)).id,
        "a file with a table": of_file(f'task = "{TASK}"\n[rep]\nname = "{rep}"\n{lines(options, 1)}').id,
        "a file with quotes": of_file(f'task = "{TASK}"\nrep = "{rep}"\n{quoted(options)}').id,
        "a sweep": planned.id,
        "a sweep with a table": of_sweep(rep, f"[options.rep]\n{lines(options, 1)}").id,
        "a sweep with quotes": of_sweep(rep, f"[options]\n{quoted(options)}").id,
        "the grid of a sweep": of_sweep(
            rep, "[grid]\n" + lines({name: [value] for name, value in options.items()})
        ).id,
    }  # fmt: skip
    assert found == dict.fromkeys(found, run.id)


def test_another_part_can_be_put_in(place):
    options = {"rep.inner.dim": 8, "rep.inner.name": "tra"}
    python = preset(TASK, "far_parts:Scaled", "gcivl", **options)
    assert type(python.rep.inner).__name__ == "TRA" and python.rep.inner.dim == 8
    assert preset(TASK, "far_parts:Scaled", "gcivl", **{"rep.inner": {"name": "tra", "dim": 8}}) == python
    assert of_sweep("far_parts:Scaled", f"[options]\n{lines(options)}").id == python.id
    both = {"rep.inner.name": ["tra", "dual"], "rep.inner.expectile": [0.7, 0.9]}
    Path("sweep.toml").write_text(f'tasks = ["{TASK}"]\nreps = ["far_parts:Scaled"]\n[grid]\n{lines(both)}')
    labels = [planned.column.split(" ", 1)[1] for planned in sweep.expand(sweep.read("sweep.toml"))]
    assert labels == [
        'rep.inner.name="tra"',  # which has no such option: one run instead of two
        'rep.inner.name="dual" rep.inner.expectile=0.7',
        'rep.inner.name="dual" rep.inner.expectile=0.9',
    ]


@pytest.mark.parametrize(
    "rep, option, in_python, in_a_sweep",
    [
        ("dual", "rep.goals.curent", "rep.goals.curent is not an option of GoalMix; did you mean 'current'?",
         "unknown option 'rep.goals.curent'; did you mean 'rep.goals.current'?"),
        ("dual", "rep.gaols.current", "rep.gaols.current is not an option of Dual",
         "unknown option 'rep.gaols.current'; did you mean 'rep.goals.current'?"),
        ("dual", "rep.hidden.dim", "rep.hidden.dim is not an option of Dual", "unknown option 'rep.hidden.dim'"),
        ("far_parts:Scaled", "rep.inner.dmi", "rep.inner.dmi is not an option of Dual; did you mean 'dim'?",
         "unknown option 'rep.inner.dmi'; did you mean 'rep.inner.dim'?"),
        ("dual", "lr.rep", "lr.rep is not an option of Run", "unknown option 'lr.rep'"),
    ],
)  # fmt: skip
def test_an_unknown_name_is_one_line_that_names_it(rep, option, in_python, in_a_sweep):
    for words, ask in (
        (in_python, lambda: preset(TASK, rep, "gcivl", **{option: 8})),
        (in_a_sweep, lambda: of_sweep(rep, f'[options]\n"{option}" = 8')),
    ):
        with pytest.raises(UserError) as problem:
            ask()
        assert words in str(problem.value) and "\n" not in str(problem.value)


@pytest.mark.parametrize(
    "options, words",
    [
        ({"rep.goals.current": "a"}, 'rep.goals.current is "a"; expected a number'),
        ({"rep.goals.current": 0.1}, "goal mix (0.1, 0.5, 0.0, 0.3) does not sum to one"),
        ({"rep.inner.name": "duel"}, "unknown representation 'duel'; did you mean 'dual'?"),
        ({"rep.inner.name": 5}, "rep.inner is {'name': 5}; expected an object with a 'name'"),
        ({"rep.inner": 5, "rep.inner.dim": 8}, "rep.inner.dim is not an option of Scaled"),
    ],
)
def test_a_wrong_value_is_one_line_that_names_it(options, words):
    rep = "dual" if "rep.goals.current" in options else "far_parts:Scaled"
    with pytest.raises(UserError) as problem:
        preset(TASK, rep, "gcivl", **options)
    assert words in str(problem.value)


def test_a_part_that_is_held_has_the_settings_of_the_paper_too():
    made = lambda **options: preset("antmaze-large-navigate-v0", "far_parts:Scaled", "gcivl", **options).rep.inner
    plain = preset("antmaze-large-navigate-v0", "dual", "gcivl").rep
    assert made() == plain and plain.expectile == 0.9 != type(plain)().expectile
    assert made(**{"rep.inner.expectile": 0.6}).expectile == 0.6
    assert made(**{"rep.inner.name": "vib"}).beta == 0.003 == made(**{"rep.inner": {"name": "vib"}}).beta
    twice = {"rep.inner.name": "far_parts:Scaled"}
    assert preset("pointmaze-medium-navigate-v0", "far_parts:Scaled", "gcivl", **twice).rep.inner.inner.dim == 64

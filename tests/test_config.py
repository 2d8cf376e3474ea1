"""A run goes to JSON and back without loss, has one id, and is compared field by field."""

import dataclasses
import json
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calls import configured
from dualgoal import jsons
from dualgoal.algos import ALGOS, GCIVL, NoAlgorithm
from dualgoal.errors import UserError
from dualgoal.interface import Stream
from dualgoal.paper.settings import preset
from dualgoal.reps import REPS, Dual
from dualgoal.runs import config, forecast, training
from dualgoal.runs.config import Run, differences, from_dict, to_dict
from dualgoal.runs.preparation import How
from dualgoal.streams import VALUE_GOALS, GoalMix
from tiny import TASK

RUN = Run("cube-single-play-v0", Dual(dim=64, hidden=(32, 16)), GCIVL(alpha=3.0), seeds=(0, 7), steps=1000)


@pytest.mark.parametrize("rep", REPS)
@pytest.mark.parametrize("algo", ALGOS)
def test_every_pair_survives_json(rep, algo):
    run = Run("scene-play-v0", REPS[rep](), ALGOS[algo]())
    again = from_dict(json.loads(json.dumps(to_dict(run))))
    assert again == run and again.id == run.id


@settings(max_examples=50, deadline=None)
@given(
    st.floats(1e-6, 1 - 1e-7), st.lists(st.integers(0, 2**31), min_size=1, unique=True),
    st.integers(1, 10**7), st.booleans(),
)  # fmt: skip
def test_values_survive_json(discount, seeds, steps, lag):
    run = dataclasses.replace(RUN, discount=discount, seeds=tuple(seeds), steps=steps, ema_before_update=lag)
    assert from_dict(json.loads(config.canonical(to_dict(run)))) == run


def test_id_changes_with_what_changes_the_result_only():
    assert dataclasses.replace(RUN, save_every=3).id == dataclasses.replace(RUN, steps=2000).id == RUN.id
    for change in ({"seeds": (0,)}, {"lr": 1e-3}, {"rep": Dual(dim=65)}, {"algo": GCIVL(alpha=3.1)}, {"episodes": 3}):
        assert dataclasses.replace(RUN, **change).id != RUN.id


def test_differences_name_the_fields():
    other = dataclasses.replace(RUN, lr=1e-3, rep=Dual(dim=128, hidden=(32, 16)), save_every=5)
    assert differences(RUN, other) == ["lr: 0.0003 -> 0.001", "rep.dim: 64 -> 128"]
    assert differences(RUN, RUN) == []
    assert differences(RUN, dataclasses.replace(RUN, rep=REPS["orig"]())) == ['rep.name: "dual" -> "orig"']


@pytest.mark.parametrize(
    "change, words",
    [
        ({"steps": 0}, "steps is 0"),
        ({"seeds": ()}, "seeds is ()"),
        ({"seeds": (1, 1)}, "different integers"),
        ({"discount": 1.0}, "discount is 1.0"),
        ({"discount": 1 - 1e-9}, "discount is 0.999999999; expected a number above 0 and at most 1 - 1e-7"),
        ({"tau": 1.1}, "tau is 1.1; expected a number above 0 and at most 1"),
        ({"max_steps": 0}, "max_steps is 0; expected at least 1"),
        ({"steps": True}, "steps is True; expected a whole number"),
        ({"precision": "float16"}, "unknown precision 'float16'"),
        ({"goal_noise": -1.0}, "goal_noise is -1.0"),
        ({"steps": 1e6}, "steps is 1000000.0; expected a whole number"),
        ({"rep": "dual"}, "rep is 'dual'; expected an object such as"),
    ],
)
def test_bad_values_are_refused(change, words):
    with pytest.raises(UserError, match=re.escape(words)):
        dataclasses.replace(RUN, **change)


def test_seeds_may_be_a_list():
    assert dataclasses.replace(RUN, seeds=[0, 7]) == RUN


@pytest.mark.parametrize(
    "edit, words",
    [
        (lambda d: d["rep"].update(dmi=3), "rep.dmi is not an option of Dual; did you mean 'dim'"),
        (lambda d: d["rep"].update(name="dula"), "did you mean 'dual'"),
        (lambda d: d.update(steps="many"), 'steps is "many"; expected a whole number'),
        (lambda d: d.update(ema_before_update=1), "ema_before_update is 1; expected true or false"),
        (lambda d: d["algo"].update(hidden=[1, "x"]), 'algo.hidden is "x"; expected a whole number'),
        (lambda d: d.pop("task"), "task is missing"),
        (lambda d: d.update(rep=3), "rep is 3; expected an object with a 'name'"),
    ],
)
def test_a_bad_file_is_refused_with_the_field(edit, words):
    values = json.loads(json.dumps(to_dict(RUN)))
    edit(values)
    with pytest.raises(UserError) as problem:
        from_dict(values)
    assert words in str(problem.value) and "\n" not in str(problem.value)


@dataclasses.dataclass(frozen=True)
class Named(Dual):
    name: str = "x"


def test_an_option_does_not_take_the_name_of_its_part():
    for run in (
        dataclasses.replace(RUN, rep=Named()),
        from_dict(to_dict(RUN) | {"rep": {"name": f"{__name__}:Named"}}),
    ):
        with pytest.raises(UserError, match="Named has an option called 'name'; give the option another name"):
            print(run.id)


@dataclasses.dataclass(frozen=True)
class Needy(Dual):
    must: int = dataclasses.field(kw_only=True)


def test_every_option_of_a_part_has_a_default():
    name = f"{__name__}:Needy"
    for more in ((), ("--rep.must", "3")):
        with pytest.raises(UserError, match="Needy.must has no default; give every option of a part one"):
            configured(TASK, "--rep", name, *more)
    assert preset(TASK, name, "gcivl", **{"rep.must": 3}).rep.must == 3, "in Python it can be given"


@dataclasses.dataclass(frozen=True)
class Mine(Dual):
    """Of another package, where nothing checks types."""


def test_numbers_of_numpy_are_numbers():
    run = dataclasses.replace(RUN, rep=Mine(dim=np.int64(64), hidden=(np.int64(32), 16), expectile=np.float32(0.75)))
    assert from_dict(json.loads(json.dumps(to_dict(run)))) == run


def test_evaluation_steps():
    assert dataclasses.replace(RUN, steps=10, eval_every=4).eval_steps == (4, 8, 10)
    assert dataclasses.replace(RUN, steps=10, eval_every=0).eval_steps == (10,)
    assert dataclasses.replace(RUN, steps=10, episodes=0).eval_steps == ()
    assert dataclasses.replace(RUN, algo=NoAlgorithm()).eval_steps == ()


# Options that a file would not bring back -----------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class OwnEnd(GoalMix):
    """Goals of its own under the fields of another class."""


@dataclasses.dataclass(frozen=True)
class Odd(GCIVL):
    """Options of kinds that Python has and JSON has not."""

    pair: tuple[int, float] = (3, 0.5)
    where: Any = None
    stream: Stream = VALUE_GOALS


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rep": Dual(goals=OwnEnd(0.2, 0.5, 0.0, 0.3))}, r"rep.goals \(OwnEnd\) would come back .* as something else"),
        ({"algo": Odd()}, "config.json would not be read again: algo.stream is .*; expected Stream"),
        ({"algo": Odd(where={1, 2})}, r"option where is \{1, 2\}, which an option cannot be"),
    ],
)
def test_what_a_file_would_not_bring_back_is_not_trained(change, words, tmp_path):
    run = dataclasses.replace(RUN, **change)
    with pytest.raises(UserError, match=words):
        training.train(run, tmp_path / "run", data_path=tmp_path)
    with pytest.raises(UserError, match=words):
        forecast.look_ahead(run, tmp_path / "run", tmp_path, How())
    assert not (tmp_path / "run").exists()


def test_tuples_of_several_kinds_survive_json():
    @dataclasses.dataclass(frozen=True)
    class Both:
        pair: tuple[int, float] = (3, 0.5)
        many: tuple[float, ...] = (1.0,)

    assert jsons.typed({"pair": [4, 0.25], "many": [1, 2.5, 3]}, Both, "") == Both((4, 0.25), (1.0, 2.5, 3.0))
    for pair in ([4], [4, 0.25, 1], [0.5, 4]):
        with pytest.raises(UserError, match="pair is "):
            jsons.typed({"pair": pair, "many": [1]}, Both, "")
    config.require_recordable(RUN)

"""All 276 cells of the four main tables against a literal copy of section 6.2 of the method."""

import pytest

from dualgoal import errors
from dualgoal.envs import tasks
from dualgoal.paper import settings
from dualgoal.runs import config

REPS = ("orig", "vib", "vip", "tra", "byol", "dual")

# environment | gamma | N | kappa | beta | alpha_CRL, as printed (visual tasks have no CRL column)
LITERAL = """
pointmaze-medium-navigate-v0      | .99  | 64  | .9 | .003 | .03
pointmaze-large-navigate-v0       | .99  | 64  | .9 | .003 | .03
antmaze-medium-navigate-v0        | .99  | 256 | .9 | .001 | .1
antmaze-large-navigate-v0         | .99  | 256 | .9 | .003 | .1
antmaze-giant-navigate-v0         | .995 | 256 | .9 | .001 | .1
humanoidmaze-medium-navigate-v0   | .995 | 256 | .9 | .001 | .1
humanoidmaze-large-navigate-v0    | .995 | 256 | .9 | .001 | .1
antsoccer-arena-navigate-v0       | .99  | 256 | .9 | .001 | .3
cube-single-play-v0               | .99  | 256 | .7 | .001 | 3
cube-double-play-v0               | .99  | 256 | .7 | .001 | 3
scene-play-v0                     | .99  | 256 | .7 | .001 | 3
puzzle-3x3-play-v0                | .99  | 256 | .7 | .001 | 3
puzzle-4x4-play-v0                | .99  | 256 | .7 | .001 | 3
visual-antmaze-medium-navigate-v0 | .99  | 256 | .9 | .001 | -
visual-antmaze-large-navigate-v0  | .99  | 256 | .9 | .003 | -
visual-cube-single-play-v0        | .99  | 256 | .7 | .001 | -
visual-cube-double-play-v0        | .99  | 256 | .7 | .001 | -
visual-scene-play-v0              | .99  | 256 | .7 | .001 | -
visual-puzzle-3x3-play-v0         | .99  | 256 | .7 | .001 | -
visual-puzzle-4x4-play-v0         | .99  | 256 | .7 | .001 | -
"""


def cells():
    for line in LITERAL.strip().splitlines():
        task, gamma, dim, kappa, beta, alpha = (part.strip() for part in line.split("|"))
        for algo in ("gcivl",) if task.startswith("visual") else ("gcivl", "crl", "gcfbc"):
            for rep in REPS:
                yield task, rep, algo, float(gamma), int(dim), float(kappa), float(beta), alpha


def test_there_are_276_cells_and_every_one_is_the_papers():
    count = 0
    for task, rep, algo, gamma, dim, kappa, beta, alpha in cells():
        run = config.to_dict(settings.preset(task, rep, algo))
        where = f"{task} {rep} {algo}"
        visual = task.startswith("visual")
        assert (run["rep"]["name"], run["algo"]["name"], run["task"]) == (rep, algo, task), where
        assert run["discount"] == gamma, where
        assert run["rep"].get("dim") == (None if rep == "orig" else dim), where
        assert run["rep"].get("expectile") == (kappa if rep == "dual" else None), where
        assert run["rep"].get("beta") == (beta if rep == "vib" else None), where
        assert run["rep"].get("aggregation") == ("inner" if rep == "dual" else None), where
        expected = {"gcivl": 10.0, "crl": alpha, "gcfbc": None}[algo]
        assert run["algo"].get("alpha") == (float(expected) if expected else None), where
        assert run["algo"].get("expectile") == (0.9 if algo == "gcivl" else None), where
        if rep in ("tra", "byol"):
            assert run["rep"]["flow_gradient"] is True, where  # D5: the paper's setting
        assert (run["steps"], run["batch_size"], run["episodes"]) == (
            (500_000, 256, 15) if visual else (1_000_000, 1024, 50)
        ), where
        assert run["eval_every"] == 100_000 and run["lr"] == 3e-4 and run["tau"] == 0.005, where
        assert run["augment"] == (0.5 if visual else 0.0), where
        assert run["rep"].get("hidden", [512] * 3) == [512] * 3 and run["algo"].get("hidden", [512] * 3) == [512] * 3
        count += 1
    assert count == 276


def test_gciql_follows_ogbench():
    alphas = {task.family: settings.preset(name, "dual", "gciql").algo.alpha for name, task in tasks.TASKS.items()}
    assert alphas == {
        "pointmaze": 0.003,
        "antmaze": 0.3,
        "humanoidmaze": 0.1,
        "antsoccer": 0.1,
        "cube": 1.0,
        "scene": 1.0,
        "puzzle": 1.0,
    }


def test_hiql_follows_ogbench():
    presets = {task.family: settings.preset(name, "hiql_phi", "hiql") for name, task in tasks.TASKS.items()}
    assert {family: run.algo.waypoint_steps for family, run in presets.items()} == {
        "pointmaze": 25,
        "antmaze": 25,
        "humanoidmaze": 100,
        "antsoccer": 25,
        "cube": 10,
        "scene": 10,
        "puzzle": 10,
    }
    assert {run.rep.dim for run in presets.values()} == {10}
    assert {(run.algo.expectile, run.algo.alpha_low, run.algo.alpha_high) for run in presets.values()} == {(0.7, 3, 3)}


def test_trl_follows_its_release():
    chosen = {name: settings.preset(name, "orig", "trl").algo for name in tasks.STATE_TASKS}
    assert {name.rsplit("-", 2)[0]: (algo.alpha, algo.falloff) for name, algo in chosen.items()} == {
        "pointmaze-medium": (10.0, 0.7),
        "pointmaze-large": (10.0, 0.7),
        "antmaze-medium": (0.7, 0.0),
        "antmaze-large": (0.7, 0.0),
        "antmaze-giant": (0.7, 0.0),
        "humanoidmaze-medium": (0.1, 0.0),
        "humanoidmaze-large": (0.1, 0.1),
        "antsoccer-arena": (0.3, 0.5),
        "cube-single": (1.0, 0.7),
        "cube-double": (10.0, 1.0),
        "scene": (1.0, 1.0),
        "puzzle-3x3": (2.0, 0.5),
        "puzzle-4x4": (2.0, 2.0),
    }
    assert {algo.expectile for algo in chosen.values()} == {0.7}


@pytest.mark.parametrize("rep", ["dual_siamese", "dual_pair", "dual_token"])
def test_variants_of_dual_have_its_settings_and_their_own_form(rep):
    for task in ("scene-play-v0", "pointmaze-large-navigate-v0"):
        run, dual = (settings.preset(task, name, "gcivl") for name in (rep, "dual"))
        assert (run.rep.dim, run.rep.expectile) == (dual.rep.dim, dual.rep.expectile)
        assert run.rep.aggregation == ("symmetric" if rep == "dual_siamese" else "inner")


def test_the_released_commands_differ_in_exactly_the_listed_cells():
    differing = set()
    for task, rep, algo, *_ in cells():
        paper, code = settings.preset(task, rep, algo), settings.preset(task, rep, algo, source="code")
        for change in config.differences(paper, code):
            differing.add((algo, rep, task if "giant" in task and algo == "gcivl" else "*", change))
    assert differing == {
        ("gcivl", "orig", "antmaze-giant-navigate-v0", "discount: 0.995 -> 0.99"),
        ("gcivl", "vip", "antmaze-giant-navigate-v0", "discount: 0.995 -> 0.99"),
        ("gcfbc", "tra", "*", "rep.flow_gradient: true -> false"),
        ("gcfbc", "byol", "*", "rep.flow_gradient: true -> false"),
    }


def test_overrides_reach_the_run_and_its_parts():
    options = {"rep.dim": 32, "algo.alpha": 3}
    run = settings.preset("scene-play-v0", "dual", "gcivl", steps=5_000, seeds=(0, 1), **options)
    assert (run.steps, run.seeds, run.rep.dim, run.algo.alpha) == (5_000, (0, 1), 32, 3.0)
    assert run.eval_every == 500 and len(run.eval_steps) == 10
    assert settings.preset("scene-play-v0", "dual", "gcivl", steps=5_000, eval_every=2_500).eval_steps == (2_500, 5_000)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("scene-play-v0", "duel", "gcivl"), "did you mean 'dual'"),
        (("scene-play-v0", "dual", "gcvil"), "did you mean 'gcivl'"),
        (("scene-play", "dual", "gcivl"), "did you mean 'scene-play-v0'"),
    ],
)
def test_unknown_names_are_one_line(args, message):
    with pytest.raises(errors.UserError, match=message) as caught:
        settings.preset(*args)
    assert "\n" not in str(caught.value)


def test_an_option_of_another_part_is_refused():
    with pytest.raises(errors.UserError, match="beta"):
        settings.preset("scene-play-v0", "dual", "gcivl", **{"rep.beta": 0.1})

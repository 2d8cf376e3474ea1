"""Soft actor-critic on a body so small that it learns in seconds: it improves, and a stopped run goes on exactly."""

import dataclasses
import json
import math
import re
import threading
import types

import jax
import mujoco
import numpy as np
import pytest
from safetensors.numpy import load_file
from scipy.stats import norm

from dualgoal.collect import experts
from dualgoal.errors import UserError
from dualgoal.experts import evaluation, rounds, training
from dualgoal.experts.bodies import BODIES, Body
from dualgoal.experts.recipe import OFFICIAL, Recipe, changed
from dualgoal.experts.sac import SAC, sample
from dualgoal.experts.simulations import Simulations
from dualgoal.files import sha256
from dualgoal.runs import trees


class Puck(Body):
    """A disc on a table with two motors; it is to move in the direction of the command."""

    name, asset, observation_size = "puck", "", 4
    seconds, limit, new_command_every = 0.1, 30, 10

    def xml(self):
        return """<mujoco><option timestep="0.02"/><worldbody><body><geom size=".1" mass="1"/>
        <joint name="x" type="slide" axis="1 0 0" damping="4"/><joint name="y" type="slide" axis="0 1 0" damping="4"/>
        </body></worldbody><actuator><motor joint="x" gear="80"/><motor joint="y" gear="80"/></actuator></mujoco>"""

    def reset(self, data, rng):
        mujoco.mj_resetData(self.model, data)
        data.qvel[:] = 0.1 * rng.standard_normal(2)

    def step(self, data, action):
        data.ctrl[:] = action
        mujoco.mj_step(self.model, data, 5)

    def observe(self, seen, command):
        return np.concatenate([seen[:, 2:], command], axis=1)

    def reward(self, before, after, command):
        return self.progress(before, after, command)

    def fallen(self, seen):
        return np.abs(seen[:, :2]).max(axis=1) > 60  # off the table

    turns = (0,)

    def scale(self):
        return np.array([0.5, 0.25, 1, 1], np.float32)


RECIPE = Recipe(
    "puck", steps=3200, updates_per_step=0.25, envs=16, horizon=4, random_steps=400, replay=2000, hidden=(32, 32),
    policy_hidden=(32, 32), batch_size=64, lr=3e-3, discount=0.9, seed=1,
)  # fmt: skip
QUICK = {"threads": 2, "log_every": 400, "save_every": 10**9, "quiet": True}


@pytest.fixture(autouse=True)
def puck(monkeypatch):
    monkeypatch.setitem(BODIES, "puck", Puck)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(BODIES, "puck", Puck)
        training.train(RECIPE, folder, **QUICK)
    return folder


def rows(folder):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines]


def test_it_learns_to_follow_the_command(whole):
    found = rows(whole)
    assert [row["step"] for row in found] == [448, 832, 1216, 1600, 2048, 2432, 2816, 3200]
    speeds = [row["metres_per_step"] for row in found]
    assert abs(speeds[0]) < 0.1  # random actions
    assert speeds[-1] > 0.8
    assert found[-1]["updates"] == (3200 // 64 - 6) * 16


def test_the_file_of_the_policy_is_one_that_collectors_load(whole):
    policy = experts.load(whole / "actor.safetensors", "walk", (4, 2))
    for angle in np.linspace(0, 6, 7):
        command = np.array([np.cos(angle), np.sin(angle)])
        assert policy(np.concatenate([[0, 0], command]).astype(np.float32)) @ command > 0.5
    record = json.loads((whole / "actor.json").read_text())
    assert record["steps"] == 3200
    assert record["recipe"]["seed"] == 1
    assert record["differs_from_official"]["batch_size"] == 64


def test_a_stopped_run_goes_on_exactly(whole, tmp_path, monkeypatch):
    class Stop(training.Interruption):
        """As if a signal came in the middle."""

        asked = 0

        @property
        def requested(self):
            Stop.asked += 1
            return Stop.asked == 23

    with monkeypatch.context() as patch:
        patch.setattr(training, "Interruption", Stop)
        with pytest.raises(KeyboardInterrupt, match="To resume"):
            training.train(RECIPE, tmp_path, **QUICK)
    assert (tmp_path / "checkpoints" / "step-000001472.json").exists()
    training.train(RECIPE, tmp_path, **QUICK | {"threads": 1})
    assert rows(tmp_path) == rows(whole)
    ours, theirs = (load_file(folder / "actor.safetensors") for folder in (tmp_path, whole))
    assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)
    assert threading.active_count() < 20


def test_another_recipe_is_refused_in_a_folder_that_has_one(whole):
    with pytest.raises(UserError, match=r"another lr \(0.003, now 0.1\)"):
        training.train(dataclasses.replace(RECIPE, lr=0.1), whole)


def test_networks_of_one_run_are_the_beginning_of_another(whole, tmp_path):
    further = dataclasses.replace(RECIPE, steps=832, seed=2)
    for _ in range(2):  # the second finds the run complete
        training.train(further, tmp_path / "further", start=whole, **QUICK)
    found = rows(tmp_path / "further")
    assert [row["step"] for row in found] == [448, 832] and found[0]["updates"] == 16
    assert min(row["metres_per_step"] for row in found) > 0.8, "the policy plays from the first step on"
    record = json.loads((tmp_path / "further" / "actor.json").read_text())
    assert record["recipe"]["begins_with"] == sha256(whole / "networks.safetensors")
    with pytest.raises(UserError, match="another begins_with"):
        training.train(further, tmp_path / "further", **QUICK)
    with pytest.raises(UserError, match="networks.safetensors: no such file; --start takes"):
        training.train(further, tmp_path / "none", start=tmp_path, **QUICK)
    with pytest.raises(UserError, match="networks.safetensors"):
        training.train(dataclasses.replace(further, hidden=(16, 16)), tmp_path / "narrow", start=whole, **QUICK)
    (tmp_path / "networks.safetensors").write_bytes((whole / "networks.safetensors").read_bytes()[:-4])
    (tmp_path / "networks.json").write_bytes((whole / "networks.json").read_bytes())
    with pytest.raises(UserError, match="networks.safetensors"):
        training.train(further, tmp_path / "damaged", start=tmp_path, **QUICK)
    for name in ("none", "narrow", "damaged"):
        assert not (tmp_path / name / "config.json").exists(), "the folder can still be used"


def test_critics_that_a_policy_alone_lacks_learn_before_it_moves(whole, tmp_path):
    further = dataclasses.replace(RECIPE, steps=512, actor_waits=32, alpha=0.1)
    given = load_file(whole / "actor.safetensors")
    folder = tmp_path / "halves"
    played = training.train(further, folder, start=whole / "actor.safetensors", **QUICK)
    assert rows(folder)[-1]["updates"] == 32
    assert all(np.array_equal(load_file(played)[name], given[name]) for name in given)
    waited = load_file(folder / "networks.safetensors")
    new = jax.jit(SAC(further, 4, 2).init)(jax.random.key(1)).params
    old = {name: leaf for name, leaf in trees.to_host(new).items() if name.startswith("critic/")}
    assert old and not any(np.array_equal(waited[name], leaf) for name, leaf in old.items())
    assert np.allclose(waited["log_alpha"], math.log(0.1))

    further = dataclasses.replace(further, steps=832)
    for name in ("halves", "whole"):  # the first goes on
        training.train(further, tmp_path / name, start=whole / "actor.safetensors", **QUICK)
    halves, once = (load_file(tmp_path / name / "networks.safetensors") for name in ("halves", "whole"))
    assert all(np.array_equal(halves[name], once[name]) for name in once)
    assert not any(np.array_equal(waited[name], leaf) for name, leaf in once.items())
    assert min(row["metres_per_step"] for row in rows(tmp_path / "whole")) > 0.8


def test_a_policy_alone_must_fit(whole, tmp_path):
    alone = whole / "actor.safetensors"
    with pytest.raises(UserError, match="actor.safetensors: a policy without critics; .* --actor-waits 100000"):
        training.train(RECIPE, tmp_path, start=alone, **QUICK)
    with pytest.raises(UserError, match=r"hidden layers are \(32, 32\); expected policy_hidden \(8,\)"):
        training.train(dataclasses.replace(RECIPE, policy_hidden=(8,), actor_waits=1), tmp_path, start=alone, **QUICK)
    with pytest.raises(UserError, match="antball.safetensors: no skill 'walk'"):
        training.train(RECIPE, tmp_path, start="antball", **QUICK)
    assert not (tmp_path / "config.json").exists(), "the folder can still be used"


def test_in_the_frame_of_the_command_all_directions_are_alike(tmp_path):
    recipe = dataclasses.replace(RECIPE, steps=448, command_frame=True, look_ahead=3)
    policy = experts.load(training.train(recipe, tmp_path / "run", **QUICK), "walk", (4, 2))
    velocity, angle = np.array([3.0, -2.0]), 0.7
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    straight, turned = (np.float32([*velocity @ by, *np.array([1, 0]) @ by]) for by in (np.eye(2), turn))
    assert np.allclose(policy(straight), policy(turned), atol=1e-5)
    assert not np.allclose(policy(straight), policy(np.float32([3, -2, *turned[2:]])), atol=1e-3)
    session = training.Session(dataclasses.replace(recipe, actor_waits=1), tmp_path / "run", 1)
    mean = jax.jit(lambda p, s: p(session.sac.view(s))[0])
    for file in ("networks.safetensors", "actor.safetensors"):
        session.begin_with(tmp_path / "run" / file)
        assert np.allclose(np.tanh(mean(session.state.params.policy, turned[None])), policy(turned), atol=1e-5)
    session.close()
    with pytest.raises(UserError, match="not trained with this frame of reference; give --command-frame"):
        training.train(
            dataclasses.replace(RECIPE, actor_waits=1), tmp_path / "other", start=tmp_path / "run/actor.safetensors"
        )


def test_looking_ahead_adds_rewards_until_the_episode_ends():
    def row(number, reward, bootstrap):
        return np.array([[number, number + 0.5, 0.0, reward, bootstrap]], np.float32)  # state, next, action

    played = [row(1, 1, 1), row(2, 2, 1), row(3, 4, 1), row(4, 8, 0), row(5, 16, 1)]
    ended = [np.array([end]) for end in (False, True, False, True, False)]
    found = np.concatenate(rounds.look_ahead(played, ended, 1, 3, 0.5))[:, [0, 1, 3, 4]]
    assert found.tolist() == [[1, 2.5, 2, 0.5], [2, 2.5, 2, 1], [3, 4.5, 8, 0], [4, 4.5, 8, 0], [5, 5.5, 16, 1]]


def test_the_lesson_of_a_humanoid_rewards_rising_and_bounds_speed():
    body = BODIES["humanoid"]()
    seen, progress = np.zeros((5, 69)), np.array([0.0, 0.0, 0.05, 0.01, -0.05])
    seen[:, 23], seen[:, 38] = (-0.1, 0.7, 1.4, 1.5, 1.6), 1.0  # heights of the head; all are upright
    own = body.standing(seen) * (1 + 100 * progress)
    assert np.array_equal(body.lesson(own, seen, progress, 0.0, 0.0), own)
    assert np.allclose(body.lesson(own, seen, progress, 2.0, 0.0) - own, [0, 0.5, 2, 2, 2])
    assert np.allclose(body.lesson(own, seen, progress, 0.0, 0.8)[2:], [3, 2, -1])
    assert body.scale().shape == (body.observation_size,)


def test_what_is_learned_from_is_the_lesson_and_what_is_counted_the_reward():
    recipe = dataclasses.replace(OFFICIAL["humanoid"], envs=4, horizon=1)
    plain, taught = (
        rounds.Simulator(dataclasses.replace(recipe, rise=rise), BODIES["humanoid"](), 1).play(0, still)
        for rise in (0.0, 2.0)
    )
    assert np.array_equal(plain.tally, taught.tally)
    assert (taught.rows[:, -2] > plain.rows[:, -2] + 0.5).all()  # they begin in the air
    assert np.array_equal(np.delete(taught.rows, -2, axis=1), np.delete(plain.rows, -2, axis=1))


def still(observation):
    return np.zeros((len(observation), 42), np.float32)


def test_a_share_of_episodes_begins_standing():
    recipe = dataclasses.replace(OFFICIAL["humanoid"], envs=40, horizon=1, upright=0.5, episode=2)
    simulator = rounds.Simulator(recipe, BODIES["humanoid"](), 1)
    simulator.simulations.start(np.random.default_rng(0))
    seen, body = simulator.simulations.seen, simulator.body
    standing = (body.head_height(seen) > 1.4) & (seen[:, 38] > 0.99)
    assert 12 <= standing.sum() <= 28
    depths = [-data.contact.dist.min(initial=0.0) for data in simulator.simulations.datas]
    assert max(depths) < 0.03, "nobody begins in the floor"
    assert len(np.unique(np.round([data.qpos[6] for data in simulator.simulations.datas], 3))) > 30, "all directions"
    steps = [simulator.simulations.step(np.zeros((40, 21)), np.random.default_rng(1)) for _ in range(2)]
    assert not steps[0].ended.any() and steps[1].ended.all()
    simulator.simulations.close()


@pytest.mark.parametrize("upright", [0.0, 1.0])
def test_a_fall_ends_an_episode_only_after_standing(upright):
    rng, body = np.random.default_rng(0), BODIES["humanoid"]()
    simulations = Simulations(body, 6, 1, 1000, upright, falls_end=True)
    simulations.start(rng)
    fell = np.zeros(6, bool)
    for _ in range(70):  # without any force
        made = simulations.step(np.zeros((6, 21)), rng)
        assert np.array_equal(made.ended, made.fallen) and (body.head_height(made.seen[made.fallen]) < 0.8).all()
        assert (simulations.age[made.fallen] == 0).all() and (simulations.stood[made.fallen] == 0).all()
        assert np.array_equal(simulations.seen[made.fallen], made.seen[made.fallen]), "where it lies"
        fell |= made.fallen
    assert fell.all() if upright else not fell.any()
    assert np.array_equal(simulations.save()["stood"], simulations.stood)
    simulations.close()


def test_density_of_squashed_samples():
    mean, log_std, noise = np.random.default_rng(0).normal(size=(3, 5, 3))
    action, log_prob = map(np.asarray, jax.jit(sample)(mean, log_std, noise))
    by_hand = (norm.logpdf(np.arctanh(action), mean, np.exp(log_std)) - np.log(1 - action**2)).sum(axis=-1)
    assert np.allclose(log_prob, by_hand, atol=2e-2)


def test_each_loss_trains_its_own_part():
    """With one transition the critic's target, the policy's loss and the weight's loss can be worked out apart."""
    sac, rng = SAC(RECIPE, 4, 2), np.random.default_rng(0)
    state = jax.jit(sac.init)(jax.random.key(0))  # compiled already, for the runs above
    batch, noise = rng.standard_normal((4, sac.row), np.float32), rng.standard_normal((8, 2), np.float32)
    batch[:, -1] = 1.0, 0.0, 1.0, 1.0
    batch, noise = jax.device_put((batch, noise))

    @jax.jit  # one program instead of a hundred small ones
    def both(state):
        gradients = jax.grad(lambda p: sac.losses(p, state.target, batch, noise)[0])(state.params)
        s, next_s, action, reward, mask = batch[:, :4], batch[:, 4:8], batch[:, 8:10], batch[:, 10], batch[:, 11]
        next_action, next_log_prob = sample(*state.params.policy(next_s), noise[4:])
        target = reward + 0.9 * mask * (state.target(next_s, next_action)[..., 0].min(axis=0) - next_log_prob)

        def critic(params):
            return ((params(s, action)[..., 0] - target[None]) ** 2).mean()

        def policy(params):
            proposed, log_prob = sample(*params(s), noise[:4])
            return (log_prob - state.params.critic(s, proposed)[..., 0].min(axis=0)).mean()

        _, log_prob = sample(*state.params.policy(s), noise[:4])
        apart = jax.grad(policy)(state.params.policy), jax.grad(critic)(state.params.critic), 1.0 - log_prob.mean()
        return tuple(gradients), apart

    ours, theirs = both(state)
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert np.allclose(one, other, atol=1e-5)


def test_official_recipes_are_the_defaults():
    assert all(not changed(recipe) for recipe in OFFICIAL.values())
    assert {name: recipe.steps * recipe.updates_per_step for name, recipe in OFFICIAL.items()} == {
        "ant": 400_000, "antball": 3_000_000, "humanoid": 10_000_000,
    }  # fmt: skip


@pytest.mark.parametrize(
    "wrong",
    [
        {"envs": 0}, {"lr": 0.0}, {"lr": math.inf}, {"updates_per_step": math.inf}, {"discount": 1.5}, {"hidden": (0,)},
        {"policy_hidden": ()}, {"look_ahead": 0}, {"rise": -1.0}, {"pace": -1.0}, {"upright": 1.5},
        {"episode": -1},
    ],
)  # fmt: skip
def test_numbers_out_of_range_are_one_line(wrong):
    ((name, value),) = wrong.items()
    with pytest.raises(UserError, match=re.escape(f"{name} is {value}; ")):
        Recipe("ant", **wrong)


def test_a_round_must_fit_into_the_replay():
    with pytest.raises(UserError, match="64 simulations x 4 steps: more than the replay"):
        Recipe("ant", replay=10)


def test_what_only_the_humanoid_has_is_refused_for_others(tmp_path):
    settings = {"rise": 1.0, "pace": 1.0, "upright": 1.0, "falls_end": True, "command_frame": True}
    for name, value in settings.items():
        with pytest.raises(UserError, match=f"{name} is for the humanoid; leave it out for ant"):
            training.train(Recipe("ant", **{name: value}), tmp_path / "run", **QUICK)
    assert not (tmp_path / "run").exists()


class Kneeling(Puck):
    """A puck that has what otherwise only the humanoid has: it is taught to stay near, and falls unnoticed."""

    name, trials, slow = "kneeling", ("walk", "stand up"), None

    @classmethod
    def settings(cls):
        return super().settings() | {"rise", "falls_end"}

    def lesson(self, reward, seen, progress, rise, pace):
        return reward - rise * np.abs(seen[:, 0])

    def fallen(self, seen):
        return np.zeros(len(seen), bool)

    def on_feet(self, seen):
        return np.abs(seen[:, :2]).max(axis=1) < 4

    def down(self, seen):
        return np.abs(seen[:, :2]).max(axis=1) > 5

    def unseen(self, seen):
        return {"far away": self.down(seen)}


def test_any_body_may_have_what_the_humanoid_has(tmp_path, monkeypatch):
    monkeypatch.setitem(BODIES, "kneeling", Kneeling)
    recipe = dataclasses.replace(RECIPE, body="kneeling", envs=4, horizon=1, rise=2.0)
    still = lambda observation: np.zeros((len(observation), 4), np.float32)
    plain = rounds.Simulator(dataclasses.replace(recipe, rise=0.0), Kneeling(), 1).play(0, still)
    taught = rounds.Simulator(recipe, Kneeling(), 1).play(0, still)
    assert np.array_equal(plain.tally, taught.tally) and (taught.rows[:, -2] < plain.rows[:, -2]).all()
    with pytest.raises(UserError, match="rise is for the humanoid; leave it out for puck"):
        training.train(dataclasses.replace(recipe, body="puck"), tmp_path, **QUICK)
    with pytest.raises(UserError, match="pace is for the humanoid; leave it out for kneeling"):
        training.train(dataclasses.replace(recipe, pace=1.0), tmp_path, **QUICK)

    for falls_end in (False, True):
        simulations, rng = Simulations(Kneeling(), 2, 1, 1000, falls_end=falls_end), np.random.default_rng(0)
        simulations.start(rng)
        speeds = [0.0] * 20 + [1.0] * 40  # it stands for a while, then leaves
        ends = [at for at, v in enumerate(speeds) if simulations.step(np.full((2, 2), v), rng).fallen.any()]
        assert bool(ends) is falls_end and (not ends or ends[0] > 20)
        simulations.close()

    along = lambda observation: 0.6 * observation[:, 2:]
    found = evaluation.evaluate("kneeling", along, episodes=8, seed=0, threads=1)["0"]
    assert list(found)[-2:] == ["stood up within 300 steps (%)", "steps until it has stood for a second"]
    assert found["far away at the end (%)"] == 100 and found["falls per 1,000 steps"] == 1000 / (Kneeling.limit // 2)
    assert not any("targets" in name or "episodes under" in name for name in found)


@pytest.mark.parametrize("wrong", [{"threads": -1}, {"log_every": 0}, {"save_every": 0}])
def test_nothing_begins_with_a_count_below_one(wrong, tmp_path):
    with pytest.raises(UserError, match="; expected at least 1"):
        training.train(RECIPE, tmp_path / "run", **wrong)
    assert not (tmp_path / "run").exists()


def test_a_direction_counts_by_the_mean_of_its_episodes():
    def slow_to_the_west(observation):
        command = observation[:, 2:]
        return 0.3 * command * np.where(command[:, :1] < -0.9, 0.1, 1.0)

    found = evaluation.evaluate("puck", slow_to_the_west, episodes=16, seed=0, threads=1)["0"]
    assert found["metres per step, slowest direction"] == found["metres per step at 180 degrees"] < 0.1
    assert found["metres per step at 0 degrees"] > 0.4
    assert found["episodes under 0.1 m per step (%)"] == 12.5
    assert found["targets 8 m away reached (%)"] == 100 and found["falls per 1,000 steps"] == 0
    assert "metres per step at 45 degrees" in evaluation.table({"0": found})


def test_who_stands_up_stays_up():
    """Heads that are high only at the start, or in jumps, do not stand."""

    class Heads:
        count = 4

        def __init__(self):
            self.at = 0

        def step(self):
            self.at += 1
            seen = np.zeros((4, 69))
            seen[:, 23] = self.at <= 39, self.at % 10 > 0, self.at > 100, self.at > 261
            return types.SimpleNamespace(seen=1.5 * seen, fallen=np.zeros(4, bool))

    heads = Heads()
    found = evaluation._stand_up(BODIES["humanoid"](), heads, heads.step)
    assert found == {"stood up within 300 steps (%)": 25.0, "steps until it has stood for a second": 140.0}

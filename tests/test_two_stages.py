"""A representation of one run, frozen, in another run: on images, and where it cannot be."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dualgoal
import small
from dualgoal.errors import UserError
from dualgoal.losses import temporal_distance


@pytest.fixture(autouse=True)
def own_cache(cache, monkeypatch):
    monkeypatch.setenv("DUALGOAL_CACHE", str(cache))


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


def test_a_second_stage_on_images_takes_over_what_reads_goals_alone(tmp_path):
    rng = np.random.default_rng(0)
    episodes = [(rng.integers(0, 256, (6, *small.IMAGE), np.uint8), rng.uniform(-1, 1, (6, 2))) for _ in range(3)]
    data = dualgoal.Dataset.from_episodes([{"observations": o, "actions": a} for o, a in episodes])
    tiny = {"steps": 2, "batch_size": 4, "rep.dim": 4, "rep.hidden": (8,), "quiet": True}
    first = dualgoal.train(data, tmp_path / "first", rep="dual", algo="none", **tiny).policy
    frozen = {"rep": "dual", "frozen_rep": str(tmp_path / "first"), "algo.hidden": (8,), **tiny}
    second = dualgoal.train(data, tmp_path / "second", algo="gcbc", **frozen).policy
    assert same(first.params.rep, second.params.rep)
    assert same(first.params.encoders.goal, second.params.encoders.goal)
    assert not same(first.params.encoders.state, second.params.encoders.state)
    s, g = data.observations[:3], data.observations[4:7]
    np.testing.assert_array_equal(first.encode(g), second.encode(g))
    with pytest.raises(UserError, match="neither Dual nor GCBC learns a value that this run can use"):
        second.distance(s, g)
    valued = dualgoal.train(data, tmp_path / "valued", algo="gcivl", **frozen).policy
    of_states = valued.params.encoders.state(jnp.asarray(s))
    v = valued.agent.algo.value(valued.params.algo, of_states, jnp.asarray(valued.encode(g)), valued.agent.algo_spec)
    np.testing.assert_allclose(valued.distance(s, g), temporal_distance(v, 0.99), rtol=1e-3)
    with pytest.raises(UserError, match="GCIVL cannot use the value of a frozen Dual on images"):
        dualgoal.train(data, tmp_path / "direct", algo="gcivl", **frozen, **{"algo.direct": True})
    assert not (tmp_path / "direct").exists()


def test_a_second_stage_on_other_states_goals_or_distances_is_refused(tmp_path):
    rng = np.random.default_rng(0)
    rows = lambda width: rng.uniform(-1, 1, (18, width)).astype(np.float32)
    ends = np.arange(18) % 6 == 5
    plain = dualgoal.Dataset(rows(2), rows(2), ends)
    wide, own = (dataclasses.replace(plain, **new) for new in ({"observations": rows(4)}, {"goals": rows(2)}))
    coordinates = dataclasses.replace(own, provenance={"goal_space": {"dims": [1, 0]}})
    tiny = {"steps": 1, "batch_size": 4, "rep.dim": 4, "rep.hidden": (8,), "quiet": True, "episodes": 0}
    for name, data in (("first", plain), ("swapped", coordinates)):
        dualgoal.train(data, tmp_path / name, rep="dual", algo="none", **tiny)
    for first, data, more, words in (
        (
            "first",
            wide,
            {},
            "observations 2, goals 2, .* but these data have observations 4, goals 4, actions",
        ),
        ("first", own, {}, "goals 2, actions of 2 numbers, but these data have observations 2, goals 2 of their own"),
        (
            "swapped",
            own,
            {},
            "swapped: goals there are .*, but the run was trained on coordinates 1 0",
        ),
        ("first", plain, {"discount": 0.9}, r"its value has the discount 0.99, this run 0.9; give --discount 0.99"),
    ):
        frozen = {"rep": "dual", "frozen_rep": str(tmp_path / first), "algo.hidden": (8,), **tiny, **more}
        with pytest.raises(UserError, match=words):
            dualgoal.train(data, tmp_path / "second", algo="gcbc", **frozen)
    assert not (tmp_path / "second").exists()


def test_a_second_stage_is_extended_after_the_first_was_moved(tmp_path):
    rng = np.random.default_rng(0)
    episode = {"observations": rng.normal(size=(6, 2)), "actions": rng.uniform(-1, 1, (6, 2))}
    data, first = dualgoal.Dataset.from_episodes([episode] * 3), tmp_path / "first"
    tiny = {"batch_size": 4, "rep.dim": 4, "rep.hidden": (8,), "quiet": True, "episodes": 0}
    dualgoal.train(data, first, rep="dual", algo="none", steps=1, **tiny)
    dualgoal.train(data, tmp_path / "other", rep="dual", algo="none", steps=1, lr=0.1, **tiny)
    second = {"rep": "dual", "algo": "gcbc", "algo.hidden": (8,), **tiny}
    begun = dualgoal.train(data, tmp_path / "second", frozen_rep=first, steps=1, **second)
    before = begun.policy.params.rep
    with pytest.raises(UserError, match="another configuration .frozen_rep: .*first. -> .*other"):
        dualgoal.train(data, begun, frozen_rep=tmp_path / "other", steps=2, **second)
    first.rename(tmp_path / "moved")
    with pytest.raises(UserError, match="another configuration .frozen_rep: .*first. -> .*other"):
        dualgoal.train(data, begun, frozen_rep=tmp_path / "other", steps=2, **second)
    whole = dualgoal.train(data, begun, frozen_rep=tmp_path / "moved", steps=2, **second)
    assert (whole.step, whole.run.id) == (2, begun.run.id) and same(whole.policy.params.rep, before)

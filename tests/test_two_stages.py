"""A representation of one run, frozen, in another run on images."""

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

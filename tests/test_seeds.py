"""Seeds are a mapped axis: a seed in company starts with the same bits, sees the same batches and learns the same.

Compiled with all optimisations, as training is.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

import small
from dualgoal import loop

STEPS = 100
SEEDS = (0, 7, 3, 11)
HURRY = loop.quick_compile_options()  # what runs once is compiled so in training, too


@pytest.fixture(scope="module")
def agent():
    return small.agent("dual", "gcivl", (16,), batch_size=32)


@pytest.fixture(scope="module")
def data():
    return small.data(lengths=[40] * 5)


def keys(count: int):
    return jax.vmap(random.key)(jnp.array(SEEDS[:count], jnp.uint32))


def run(agent, data):
    def steps(state, key):
        return jax.lax.fori_loop(0, jnp.int32(STEPS), lambda _, s: agent.update(s, data, key)[0], state)

    return steps


@pytest.fixture(scope="module")
def alone(agent, data):
    """Each seed by itself: the start and the end."""
    steps = jax.jit(run(agent, data), compiler_options=small.OPTIMISED)
    init = jax.jit(agent.init, compiler_options=HURRY)
    starts = [init(random.key(seed)) for seed in SEEDS]
    return starts, [steps(start, random.key(seed)) for start, seed in zip(starts, SEEDS, strict=True)]


def test_a_seed_in_company_is_the_seed_alone(agent, data, alone):
    (starts, ends), count = alone, len(SEEDS)
    together = jax.jit(jax.vmap(agent.init), compiler_options=HURRY)(keys(count))
    trained = jax.device_get(
        jax.jit(jax.vmap(run(agent, data)), compiler_options=small.OPTIMISED)(together, keys(count))
    )
    together = jax.device_get(together)
    for n in range(count):
        one = lambda tree, n=n: jax.tree.map(lambda x: x[n], tree)
        for a, b in zip(jax.tree.leaves(one(together)), jax.tree.leaves(starts[n]), strict=True):
            np.testing.assert_array_equal(a, b)
        assert int(trained.step[n]) == STEPS
        for a, b in zip(jax.tree.leaves(one(trained.params)), jax.tree.leaves(ends[n].params), strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-5)


@pytest.mark.parametrize("count", [1, 4])
def test_a_seed_in_company_draws_the_same_batches(count, agent, data):
    draw = lambda key: agent.sample(data, key, 57)
    batches, alone = jax.device_get(jax.jit(jax.vmap(draw))(keys(count))), jax.jit(draw)
    for n in range(count):
        single = alone(random.key(SEEDS[n]))
        for a, b in zip(jax.tree.leaves(batches), jax.tree.leaves(single), strict=True):
            np.testing.assert_array_equal(a[n], b)


def test_seeds_differ(alone):
    starts, ends = alone
    for trees in (starts, ends):
        first, second = (jax.tree.leaves(t.params)[0] for t in trees[:2])
        assert (np.asarray(first) != np.asarray(second)).all()


def test_a_program_takes_the_steps_that_updates_take(agent, data, alone, monkeypatch):
    """It draws a batch one step ahead and hands goals that two consumers share on as one; nothing else differs."""
    monkeypatch.setattr(loop, "compile_loop", lambda lowered: lowered.compile(compiler_options=small.OPTIMISED))
    trainer = loop.TrainingLoop(agent, SEEDS[:2])
    state = trainer.init()
    for steps in (1, STEPS - 1):
        state, broken = trainer.advance(state, trainer.place_data(data), steps)
    assert loop.first_broken(broken, SEEDS[:2]) is None
    for n in range(2):
        ours = jax.tree.map(lambda x, n=n: x[n], state.params)
        for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(alone[1][n].params), strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-5)

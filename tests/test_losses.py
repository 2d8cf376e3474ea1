"""Every objective against numbers worked out by hand, and no gradient where the method stops it."""

from math import exp, log, pi

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualgoal import losses

close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
array = lambda *x: jnp.array(x, jnp.float32)


def is_flat(f, x) -> bool:
    """Whether f does not depend on x as far as gradients can see."""
    return not np.asarray(jax.grad(f)(x)).any()


def test_expectile_weighs_the_two_sides():
    close(losses.expectile(array(2.0, -3.0), 0.9), [0.9 * 4, 0.1 * 9])


def test_expectile_side_can_be_given_and_zero_counts_as_above():
    close(losses.expectile(array(2.0, -3.0), 0.9, side=array(-1.0, 0.0)), [0.1 * 4, 0.9 * 9])


IQL = {
    "v": array([1.0, 3.0], [0.0, 1.0]),
    "v_next": array([2.0, 7.0], [4.0, 9.0]),
    "q": array([1.0, 1.0], [2.0, -1.0]),
    "q_target": array([2.0, 1.0], [4.0, 5.0]),
    "r": array(-1.0, 0.0),
    "m": array(1.0, 0.0),
}


def test_iql():
    """min of targets (2, 1); deltas (1, -2) and (2, 0); targets y (0, 0) and (1, 0), each for both critics."""
    l_v, l_q = losses.iql(**IQL, gamma=0.5, kappa=0.7)
    close(l_v, ((0.7 * 1 + 0.7 * 4) / 2 + (0.3 * 4 + 0.0) / 2) / 2)
    close(l_q, (((1 + 0) / 2 + (4 + 1) / 2) + ((1 + 1) / 2 + (1 + 1) / 2)) / 2)


@pytest.mark.parametrize(("name", "which"), [("q_target", 0), ("q", 0), ("v_next", 1), ("v", 1), ("q_target", 1)])
def test_iql_stops(name, which):
    assert is_flat(lambda x: losses.iql(**{**IQL, name: x}, gamma=0.5, kappa=0.7)[which], IQL[name])


IVL = {
    "v": array([1.0, 0.0], [2.0, 1.0]),
    "v_target": array([0.0, -1.0], [2.0, -3.0]),
    "v_target_next": array([2.0, 4.0], [4.0, 2.0]),
    "r": array(-1.0, 0.0),
    "m": array(1.0, 0.0),
}


def test_ivl_side_from_targets_residual_from_online():
    """y (0, 0) and (1, 0); A = (-1, 2), so the second sample weighs 0.9 although its residuals are not positive."""
    close(losses.ivl(**IVL, gamma=0.5, kappa=0.9), (0.1 * 1 + 0.9 * 0) / 2 + (0.1 * 1 + 0.9 * 1) / 2)


@pytest.mark.parametrize("name", ["v_target", "v_target_next"])
def test_ivl_stops(name):
    assert is_flat(lambda x: losses.ivl(**{**IVL, name: x}, gamma=0.5, kappa=0.9), IVL[name])


def test_awr_weight_is_capped_and_stopped():
    advantage, log_prob = array(0.0, 1.0, 0.1), array(-1.0, -2.0, -3.0)
    close(losses.awr(advantage, log_prob, 10.0), (1 * 1 + 100 * 2 + exp(1) * 3) / 3)
    assert is_flat(lambda x: losses.awr(x, log_prob, 10.0), advantage)
    assert np.isfinite(losses.awr(array(1e4, 0.0, 0.0), log_prob, 10.0)), "exp overflows before the cap"


def test_ddpg_bc():
    close(losses.ddpg_bc(array(1.0, -3.0), array(-1.0, -2.0), 0.5), 1 / 2.000001 + 0.75)


@settings(max_examples=30, deadline=None)
@given(st.floats(1e-2, 1e4))
def test_ddpg_bc_does_not_see_the_scale_of_the_critic(scale):
    q, log_prob = array(1.0, -3.0, 4.0), array(-1.0, -2.0, -0.5)
    loss = lambda q: losses.ddpg_bc(q, log_prob, 0.3)
    np.testing.assert_allclose(loss(scale * q), loss(q), rtol=2e-4)
    np.testing.assert_allclose(scale * jax.grad(loss)(scale * q), jax.grad(loss)(q), rtol=2e-4)


def test_log_probabilities():
    close(losses.gaussian_log_prob(array([1.0, 2.0]), array([0.0, 0.0])), [-2.5 - log(2 * pi)])
    close(losses.categorical_log_prob(array([0.0, 1.0]), array([0.0, log(3)])), [log(0.75)])


def test_symmetric_info_nce_is_a_mean_over_the_matrix():
    """Rows give 3/4 and 1/3, columns 3/5 and 1/2; divided by B^2 = 4 (D12)."""
    logits = array([log(3), 0.0], [log(2), 0.0])
    close(losses.symmetric_info_nce(logits), -log(3 / 4 * 1 / 3 * 3 / 5 * 1 / 2) / 4)


def test_binary_nce():
    logits = jnp.stack([log(3) * jnp.eye(2), jnp.zeros((2, 2))])
    close(losses.binary_nce(logits), (2 * log(4 / 3) + 2 * log(2) + 4 * log(2)) / 8)


def test_flow_matching_is_an_elementwise_mean():
    close(losses.flow_matching(array([1.0, 2.0]), array([0.0, 1.0]), array([2.0, 1.0])), (1 + 4) / 2)


def test_gaussian_kl():
    close(losses.gaussian_kl(array([1.0, 0.0]), array([0.0, log(2)])), [0.5 + 1.5 - log(2)])


def test_byol_halves_exchange_prediction_and_target():
    """softmax (3/4, 1/4) and (9/10, 1/10)."""
    prediction, target = array([log(3), 0.0]), array([log(9), 0.0])
    close(losses.byol_forward(prediction, target), -(0.9 * log(0.75) + 0.1 * log(0.25)))
    close(losses.byol_backward(prediction, target), -(0.75 * log(0.9) + 0.25 * log(0.1)))
    for loss in (losses.byol_forward, losses.byol_backward):
        assert is_flat(lambda x, loss=loss: loss(prediction, x), target)
        assert not is_flat(lambda x, loss=loss: loss(x, target), prediction)


def test_vip_is_a_log_sum():
    """Exponents -1 + 1 - 0 and -2 + 1 + 1."""
    close(losses.vip(array(-1.0, -3.0), array(-1.0, -2.0), array(0.0, -2.0), 0.5), 0.5 * 2 + log(2))


def test_dqn():
    q, q_next, r, m = array(1.0, 3.0), array(2.0, 5.0), array(-1.0, 0.0), array(1.0, 0.0)
    close(losses.dqn(q, q_next, r, m, 0.5, huber=False), (1 + 9) / 2)
    close(losses.dqn(q, q_next, r, m, 0.5, huber=True), (0.5 + 2.5) / 2)
    assert is_flat(lambda x: losses.dqn(q, x, r, m, 0.5, huber=False), q_next)


@settings(max_examples=50, deadline=None)
@given(st.floats(0, 60), st.sampled_from([0.95, 0.99, 0.995]))
def test_temporal_distance_inverts_the_value(d, gamma):
    value = jnp.float32(-(1 - gamma**d) / (1 - gamma))
    np.testing.assert_allclose(losses.temporal_distance(value, gamma), d, rtol=1e-3, atol=1e-3)


def test_temporal_distance_of_impossible_values_is_clipped():
    close(losses.temporal_distance(array(0.5, -1.5), 0.5), [0.0, 2.0])
    assert np.isfinite(losses.temporal_distance(jnp.float32(-1e3), 0.99))

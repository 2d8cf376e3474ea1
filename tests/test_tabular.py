"""The exact theory on generated processes: every certificate of `theorems.py` holds, and the control does not."""

import json

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dualgoal.errors import UserError
from dualgoal.theory import checks, theorems
from dualgoal.theory.processes import (
    BlockProcess,
    Process,
    distances,
    dual_policy,
    dual_representation,
    expectations,
    optimal_q,
    optimal_values,
    policy_values,
    shortest_paths,
    to_distance,
)

# Few distinct shapes, so that the compiled sweeps are shared; what varies is the process.
SIZES = st.sampled_from([4, 12])
quick = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def processes(draw, kind=None):
    rng, states = np.random.default_rng(draw(st.integers(0, 2**32 - 1))), draw(SIZES)
    kinds = {
        "stochastic": checks.random_stochastic,
        "deterministic": checks.random_deterministic,
        "unreachable": checks.random_unreachable,
    }
    return kinds[kind or draw(st.sampled_from(sorted(kinds)))](rng, states)


@st.composite
def blocks(draw):
    """Six latents with 1 to 5 observations each, 18 in all."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    decoder = rng.permutation(np.repeat(np.arange(6), [1, 2, 3, 3, 4, 5]))
    weights = rng.uniform(0.1, 1, size=len(decoder))
    emission = weights / np.bincount(decoder, weights)[decoder]
    return BlockProcess(checks.random_stochastic(rng, 6), decoder, emission)


gammas = st.sampled_from([0.5, 0.9, 0.95])


def test_two_states_by_hand():
    # From 0 the only action reaches 1 with probability 1/2 per step: V = g/2 + g/2 V, so V = g / (2 - g).
    process = Process.from_dense(np.array([[[0.5, 0.5]], [[0.0, 1.0]]]))
    values = optimal_values(process, 0.9)
    np.testing.assert_allclose(values, [[1, 0.9 / 1.1], [0, 1]], rtol=0, atol=1e-13)
    d = distances(process, 0.9)
    assert d[0, 0] == d[1, 1] == 0 and np.isinf(d[1, 0])
    assert d[0, 1] == pytest.approx(np.log(0.9 / 1.1) / np.log(0.9))
    assert d[0, 1] < 2  # the certainty equivalent, below the mean hitting time
    np.testing.assert_allclose(optimal_values(process, 0.9, reward="negative"), (values - 1) / 0.1, rtol=0, atol=1e-12)


def test_one_way_ring_is_asymmetric():
    ring = Process(((np.arange(5) + 1) % 5)[:, None, None], np.ones((5, 1, 1)))
    expected = (np.arange(5)[None] - np.arange(5)[:, None]) % 5
    assert ring.deterministic
    np.testing.assert_array_equal(distances(ring, 0.9), expected)
    np.testing.assert_array_equal(dual_representation(ring, 0.9)[2], [2, 1, 0, 4, 3])


def test_sufficiency_on_100_stochastic_processes():
    rng = np.random.default_rng(0)
    worst = max(theorems.sufficiency(checks.random_stochastic(rng, 12), 0.9) for _ in range(100))
    assert worst <= 1e-10


@quick
@given(processes(), gammas)
def test_every_statement_holds(process, gamma):
    assert theorems.bellman(process, gamma) <= 1e-12
    assert theorems.sufficiency(process, gamma) <= 1e-10
    assert theorems.affine_rewards(process, gamma) <= 1e-11
    assert theorems.triangle(process, gamma) <= 1e-12
    assert theorems.reachability(process, gamma) == 0
    assert theorems.injectivity(process, gamma) == 0


@quick
@given(processes("deterministic"), gammas)
def test_deterministic_distances_are_shortest_paths(process, gamma):
    assert theorems.shortest_path_distances(process, gamma) <= 1e-9


@quick
@given(processes(), st.randoms(use_true_random=False))
def test_relabelling_permutes_and_changes_nothing_else(process, random):
    order = np.array(random.sample(range(process.states), process.states))
    assert theorems.relabelling(process, 0.9, order) <= 1e-10


@quick
@given(blocks())
def test_noise_invariance_and_its_control(block):
    assert theorems.noise_invariance(block, 0.9) == 0.0
    assert theorems.latent_distances(block, 0.9) <= 1e-10
    assert theorems.noise_invariance(block, 0.9, by_latent=False) > 0.1


@quick
@given(processes())
def test_unreachable_goals_have_infinite_distance_and_any_policy(process):
    phi = dual_representation(process, 0.9)
    policy = dual_policy(process, phi, 0.9)
    assert not np.isnan(phi).any()
    assert policy.min() >= 0 and policy.max() < process.actions
    assert ((policy_values(process, policy, 0.9) == 0) == np.isinf(phi.T)).all()


def test_policy_is_greedy_in_q_and_ties_go_to_the_smallest_action():
    rng = np.random.default_rng(3)
    process = checks.random_stochastic(rng, 20)
    values = optimal_values(process, 0.9)
    q = optimal_q(process, 0.9, values)
    policy = dual_policy(process, to_distance(values, 0.9).T, 0.9)
    chosen = np.take_along_axis(q, policy[:, None], 1)[:, 0]
    np.testing.assert_allclose(chosen, q.max(1), rtol=0, atol=1e-13)
    twin = Process(np.repeat(process.successors[:, :1], 3, 1), np.repeat(process.probabilities[:, :1], 3, 1))
    assert (dual_policy(twin, dual_representation(twin, 0.9), 0.9) == 0).all()


def test_a_wrong_policy_is_caught_by_the_linear_solve():
    process = checks.random_stochastic(np.random.default_rng(5), 12)
    values = optimal_values(process, 0.9)
    worst = optimal_q(process, 0.9, values).argmin(1)
    assert theorems.gap(policy_values(process, worst, 0.9), values) > 0.05


def test_sparse_and_dense_forms_agree():
    rng = np.random.default_rng(1)
    dense = rng.dirichlet(np.ones(80), (80, 2))  # 80 successors each: the loop instead of the unrolled sum
    process = Process.from_dense(dense)
    np.testing.assert_allclose(process.dense(), dense, rtol=0, atol=0)
    v = rng.random((80, 7))
    np.testing.assert_allclose(expectations(process, v), np.einsum("sax,xg->sag", dense, v), rtol=0, atol=1e-14)
    sparse = checks.random_unreachable(rng, 20)
    np.testing.assert_allclose(Process.from_dense(sparse.dense()).dense(), sparse.dense(), rtol=0, atol=0)


def test_values_are_within_the_tolerance_asked_for():
    process = checks.random_stochastic(np.random.default_rng(2), 20)
    exact = optimal_values(process, 0.95)
    for tol in (1e-2, 1e-5, 1e-10):
        assert theorems.gap(optimal_values(process, 0.95, tol=tol), exact) <= tol


@pytest.mark.parametrize("gamma", [0.5, 0.9, 0.99])
def test_far_goals_have_exact_distances_and_only_unreachable_ones_are_infinite(gamma):
    assert checks.corridor_distances(checks.corridor(150), gamma) < 1e-8, "their values go down to 1e-71"
    first, place = np.arange(150) // 75 * 75, np.arange(150) % 75  # two rows of states without a way between them
    there = first[:, None] + np.clip(place[:, None] + [-1, 1], 0, 74)
    rows = Process(there[..., None], np.ones((150, 2, 1)))
    assert theorems.shortest_path_distances(rows, gamma) < 1e-9
    slippery = Process(np.stack([there, there[:, ::-1]], axis=-1), np.broadcast_to([0.9, 0.1], (150, 2, 2)))
    assert theorems.reachability(slippery, gamma) == 0


def test_goal_sets_may_be_fewer_than_states():
    process = checks.random_stochastic(np.random.default_rng(2), 20)
    two = np.zeros((20, 2), bool)
    two[3, 0] = two[[1, 7], 1] = True
    values = optimal_values(process, 0.9, two)
    np.testing.assert_allclose(values[:, 0], optimal_values(process, 0.9)[:, 3], rtol=0, atol=1e-12)
    assert values[1, 1] == values[7, 1] == 1
    assert (values[:, 1] >= optimal_values(process, 0.9)[:, [1, 7]].max(1) - 1e-12).all()


def test_padding_is_not_a_path():
    # State 0's padded successor 1 has probability 0, so 1 is out of reach.
    process = Process(np.array([[[0, 1]], [[1, 1]]]), np.array([[[1.0, 0.0]], [[0.5, 0.5]]]))
    assert np.isinf(shortest_paths(process)[0, 1]) and np.isinf(distances(process, 0.9)[0, 1])


def test_inner_products_pass_the_floor_of_symmetric_metrics():
    values = optimal_values(checks.random_stochastic(np.random.default_rng(0), 30, 2, 2), 0.9)
    fits = [theorems.fit_errors(values, dim) for dim in (4, 16, 30)]
    assert [fit.inner for fit in fits] == sorted([fit.inner for fit in fits], reverse=True)
    assert fits[-1].inner < 1e-13
    assert all(fit.metric >= fit.floor > 0.02 for fit in fits)
    assert fits[1].inner < fits[1].floor


def test_a_metric_fits_a_symmetric_process():
    # On a line both directions cost the same: the floor is 0 and the fit improves on its starting point.
    left, right = np.maximum(np.arange(12) - 1, 0), np.minimum(np.arange(12) + 1, 11)
    line = Process(np.stack([left, right], 1)[..., None], np.ones((12, 2, 1)))
    fit = theorems.fit_errors(0.9 ** distances(line, 0.9), 8)
    assert fit.floor == 0 and fit.metric < 0.02


def test_classical_scaling_recovers_points():
    x = np.random.default_rng(0).normal(size=(10, 2))
    d = np.linalg.norm(x[:, None] - x[None], axis=-1)
    y = theorems.classical_scaling(d, 2)
    np.testing.assert_allclose(np.linalg.norm(y[:, None] - y[None], axis=-1), d, rtol=0, atol=1e-12)


def test_rows_have_the_documented_fields_and_pass():
    rows = list(checks.run_checks(sizes=(12,), repeats=3))
    assert rows and all(row.passed for row in rows)
    assert {"stochastic", "deterministic", "unreachable", "block"} <= {row.process for row in rows}
    listed = json.loads(checks.as_json(rows))
    assert all(set(row) == {"check", "process", "states", "deviation", "passed"} for row in listed)


def test_command_prints_every_row_and_fails_with_a_failed_check(monkeypatch, capsys):
    good, bad = (
        checks.CheckResult("triangle", "stochastic", 9, 1e-16, True),
        checks.CheckResult("triangle", "odd", 9, np.inf, False),
    )
    monkeypatch.setattr(checks, "run_checks", lambda seed: iter([good, good]))
    checks.check_and_print()
    assert capsys.readouterr().out.splitlines()[-1] == "2 of 2 checks passed"
    monkeypatch.setattr(checks, "run_checks", lambda seed: iter([good, bad]))
    with pytest.raises(SystemExit) as end:
        checks.check_and_print(json=True)
    assert end.value.code == 1
    assert [row["deviation"] for row in json.loads(capsys.readouterr().out)] == [1e-16, None]


def test_float64_stays_inside():
    optimal_values(checks.random_stochastic(np.random.default_rng(0), 4), 0.9)
    assert jax.numpy.ones(1).dtype == np.float32


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: Process(np.zeros((2, 1, 1)), np.full((2, 1, 1), 0.5)), "sum to 1"),
        (lambda: Process(np.full((2, 1, 1), 2), np.ones((2, 1, 1))), "states 0..1"),
        (lambda: Process(np.zeros((2, 1, 2)), np.ones((2, 1, 1))), "one shape"),
        (lambda: Process.from_dense(np.ones((2, 1, 3))), "dense kernel"),
        (lambda: BlockProcess(checks.random_deterministic(np.random.default_rng(0), 2), np.zeros(2, int), np.ones(2)),
         "emission"),
        (lambda: optimal_values(checks.random_deterministic(np.random.default_rng(0), 4), 1.0), "gamma"),
        (lambda: optimal_values(checks.random_deterministic(np.random.default_rng(0), 4), 0.9, np.eye(3)), "mask"),
        (lambda: list(checks.run_checks(sizes=(2000,))), "sizes must be"),
    ],
)  # fmt: skip
def test_bad_input_is_named(build, words):
    with pytest.raises(UserError, match=words):
        build()


def test_linear_solve_limit_says_what_is_possible():
    big = checks.random_deterministic(np.random.default_rng(0), 301)
    with pytest.raises(UserError, match="up to 300"):
        policy_values(big, np.zeros((301, 301), int), 0.9)

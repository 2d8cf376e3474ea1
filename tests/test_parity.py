"""Ten pairs against a slow, literal reading of the method's formulas in NumPy and float64.

The functions below were written from sections 3 to 5 and 14, symbol by symbol, and share nothing with the package but
the arrays of its networks. `now` are the parameters that are differentiated and `then` the same parameters where the
method stops the gradient: equal values, but a central difference moves only `now`.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

import small
from dualgoal.interface import Batch, Frames, Goals, Passed

B, D, A, N = 6, 3, 2, small.DIM
HIDDEN = (7, 6)
GAMMA = 0.9


# Section 3 ------------------------------------------------------------------------------------------------------------


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def mlp(p, x, e=None):
    """Member e of an MLP (or its only one)."""
    of = (lambda w: w) if e is None else (lambda w: w[e])
    for n, layer in enumerate(p.layers):
        x = x @ of(layer.w) + of(layer.b)
        if n < len(p.layers) - (p.outputs is not None):
            x = gelu(x)
            if hasattr(layer, "scale"):
                deviation = x - x.mean(-1, keepdims=True)
                x = deviation / np.sqrt((deviation**2).mean(-1, keepdims=True) + 1e-6)
                x = x * of(layer.scale) + of(layer.offset)
    return x


def members(p, *inputs):
    """Both members of a network on its concatenated inputs; scalars per sample lose their last axis."""
    out = [mlp(p.mlp, np.concatenate(inputs, axis=-1), e) for e in (0, 1)]
    return [y[:, 0] for y in out] if out[0].shape[-1] == 1 else out


def average(p, *inputs):
    first, second = members(p, *inputs)
    return 0.5 * (first + second)


def log_pi(p, s, z, a):
    mean = mlp(p.mlp, np.concatenate([s, z], axis=-1)) @ p.head.w + p.head.b
    return mean, -0.5 * ((a - mean) ** 2).sum(-1) - 0.5 * A * np.log(2 * np.pi)


def drawn_by_rep(b):
    """What the representation's own loss drew; Dual uses the value's goals."""
    return b.draws["rep"] if "rep" in b.draws else b.draws["value"]


def weight(x, kappa):
    return np.where(x >= 0, kappa, 1 - kappa)


def log_softmax(x, axis=-1):
    x = x - x.max(axis, keepdims=True)
    return x - np.log(np.exp(x).sum(axis, keepdims=True))


def softmax(x):
    return np.exp(log_softmax(x))


# Section 5: the algorithms, given phi as a function of parameters and goals ------------------------------------------


def implicit_value(now, slow, b, z_now, z_then, z_next, kappa):
    """IVL; z_now and z_then are seen from s, z_next from s'."""
    g = b.draws["value"]
    r, m = g.success - 1, 1 - g.success
    v_next, v_slow = members(slow.value, b.next_s, z_next), members(slow.value, b.s, z_then)
    v = members(now.value, b.s, z_now)
    advantage = r + GAMMA * m * np.minimum(*v_next) - 0.5 * (v_slow[0] + v_slow[1])
    value = 0.0
    for k in (0, 1):
        y = r + GAMMA * m * v_next[k]
        value += (weight(advantage, kappa) * (y - v[k]) ** 2).mean()
    return value


def gcivl(now, then, slow, b, z_now, z_then, z_actor, kappa=0.9, alpha=10.0):
    value = implicit_value(now, slow, b, z_now, z_then, z_then, kappa)
    a = average(then.value, b.next_s, z_actor) - average(then.value, b.s, z_actor)
    actor = -(np.minimum(np.exp(alpha * a), 100.0) * log_pi(now.actor, b.s, z_actor, b.a)[1]).mean()
    return {"value/loss": value, "actor/loss": actor}


def hiql(now, then, slow, b, z_now, z_then, origin=0.0, kappa=0.7, alpha=3.0):
    """z_now and z_then are functions of a goal's role and of the state it is seen from; the high policy names how far a
    waypoint is from `origin`."""
    way = b.draws["waypoint"].g  # as a state

    def awr(a, log_prob):
        return -(np.minimum(np.exp(alpha * a), 100.0) * log_prob).mean()

    value = implicit_value(now, slow, b, z_now("value", b.s), z_then("value", b.s), z_then("value", b.next_s), kappa)
    v = lambda s, role: average(then.value, s, z_then(role, s))
    low = awr(v(b.next_s, "low") - v(b.s, "low"), log_pi(now.low, b.s, z_then("low", b.s), b.a)[1])
    target = z_then("waypoint", b.s) - origin
    mean = mlp(now.high.mlp, np.concatenate([b.s, z_then("high", b.s)], axis=-1)) @ now.high.head.w + now.high.head.b
    log_prob = -0.5 * ((target - mean) ** 2).sum(-1) - 0.5 * target.shape[-1] * np.log(2 * np.pi)
    high = awr(v(way, "high") - v(b.s, "high"), log_prob)
    return {"value/loss": value, "low/loss": low, "high/loss": high}


def trl(now, then, slow, b, z, kappa=0.7, alpha=1.0, falloff=0.5):
    """z is a function of a role; `between` is also where the second half of the way begins."""
    way, (before, after, a_way) = b.draws["between"].g, b.draws["between"].passed
    sigmoid = lambda x: 1 / (1 + np.exp(-x))
    critic = 0.0
    for e in (0, 1):
        q = sigmoid(members(now.critic, b.s, z("value"), b.a)[e])
        first = sigmoid(members(slow.critic, b.s, z("between"), b.a)[e])
        second = sigmoid(members(slow.critic, way, z("value"), a_way)[e])
        for i in range(B):
            y = GAMMA ** before[i] if before[i] <= 1 else first[i]
            y *= GAMMA ** after[i] if after[i] <= 1 else second[i]
            bce = -y * np.log(q[i]) - (1 - y) * np.log(1 - q[i])
            weight = (1 + np.log(y) / np.log(GAMMA)) ** -falloff
            critic += (kappa if y >= q[i] else 1 - kappa) * weight * bce / (2 * B)
    q = lambda mean: np.minimum(*members(then.critic, b.s, z("actor"), np.clip(mean, -1, 1)))
    mean, log_prob = log_pi(now.actor, b.s, z("actor"), b.a)
    scale = np.abs(q(log_pi(then.actor, b.s, z("actor"), b.a)[0])).mean() + 1e-6
    return {"critic/loss": critic, "actor/loss": -q(mean).mean() / scale - alpha * log_prob.mean()}


def crl(now, then, slow, b, z_now, z_then, z_actor, alpha=0.1):
    left, right = members(now.critic.state, b.s, b.a), members(now.critic.goal, z_now)
    bce = 0.0
    for e in (0, 1):
        for i in range(B):
            for j in range(B):
                p = 1 / (1 + np.exp(-(left[e][i] @ right[e][j]) / np.sqrt(N)))
                bce -= np.log(p if i == j else 1 - p)
    mean, log_prob = log_pi(now.actor, b.s, z_actor, b.a)

    def q(mean):
        left = members(then.critic.state, b.s, np.clip(mean, -1, 1))
        right = members(then.critic.goal, z_actor)
        return np.minimum(*[(left[e] * right[e]).sum(-1) / np.sqrt(N) for e in (0, 1)])

    scale = np.abs(q(log_pi(then.actor, b.s, z_actor, b.a)[0])).mean() + 1e-6
    return {"value/loss": bce / (2 * B * B), "actor/loss": -q(mean).mean() / scale - alpha * log_prob.mean()}


def gcfbc(now, b, z_now, x0, t):
    x_t = (1 - t) * x0 + t * b.a
    v = mlp(now.actor.mlp, np.concatenate([b.s, z_now, x_t, t], axis=-1))
    return {"actor/loss": ((v - (b.a - x0)) ** 2).mean()}


# Section 4: the representations, each with the algorithm it is joined to ---------------------------------------------


def dual_own(now, then, slow, b, kappa=0.7):
    g = drawn_by_rep(b)
    r, m = g.success - 1, 1 - g.success

    def f(p, s):
        psi, phi = members(p.psi, s), members(p.phi, g.g)
        return [(psi[e] * phi[e]).sum(-1) / np.sqrt(N) for e in (0, 1)]

    q_bar = np.minimum(*members(slow.rep.critic, b.s, g.g, b.a))
    l_v = np.mean(0.5 * sum(weight(q_bar - v, kappa) * (q_bar - v) ** 2 for v in f(now.rep, b.s)))
    y = [r + GAMMA * m * v for v in f(then.rep, b.next_s)]
    l_q = np.mean(sum(0.5 * sum((q - y_e) ** 2 for y_e in y) for q in members(now.rep.critic, b.s, g.g, b.a)))
    return {"rep/value_loss": l_v, "rep/critic_loss": l_q, "rep/loss": l_v + l_q}


def dual_gcivl(now, then, slow, b, noise):
    phi = lambda role: average(then.rep.phi, b.draws[role].g)
    rest = gcivl(now.algo, then.algo, slow.algo, b, phi("value"), phi("value"), phi("actor"))
    return {**dual_own(now, then, slow, b), **rest}


def dual_hiql(now, then, slow, b, noise):
    z = lambda role, s: average(then.rep.phi, b.draws[role].g)
    return {**dual_own(now, then, slow, b), **hiql(now.algo, then.algo, slow.algo, b, z, z)}


def orig_hiql(now, then, slow, b, noise):
    z = lambda role, s: b.draws[role].g
    return hiql(now.algo, then.algo, slow.algo, b, z, z, origin=b.s)


def dual_trl(now, then, slow, b, noise):
    z = lambda role: average(then.rep.phi, b.draws[role].g)
    return {**dual_own(now, then, slow, b), **trl(now.algo, then.algo, slow.algo, b, z)}


def dual_daf(now, then, slow, b, noise, alpha=10.0):
    """The displacement of the embedding under an action, for each member; what it gains towards a goal, for both."""
    u, phi = members(now.algo.displacement, b.s, b.a), members(then.rep.phi, b.draws["actor"].g)
    u_then = members(then.algo.displacement, b.s, b.a)
    psi, psi_next = members(then.rep.psi, b.s), members(then.rep.psi, b.next_s)
    error = np.mean([(u[e] - (GAMMA * psi_next[e] - psi[e])) ** 2 for e in (0, 1)])
    a = 0.5 * sum((u_then[e] * phi[e]).sum(-1) / np.sqrt(N) for e in (0, 1))
    log_prob = log_pi(now.algo.actor, b.s, average(then.rep.phi, b.draws["actor"].g), b.a)[1]
    actor = -(np.minimum(np.exp(alpha * a), 100.0) * log_prob).mean()
    return {**dual_own(now, then, slow, b), "displacement/loss": error, "actor/loss": actor}


def vib_gcivl(now, then, slow, b, noise, beta=0.001):
    def z(p, role):
        phi = p.rep.phi
        h = mlp(phi.trunk, b.draws[role].g)
        mu, log_sigma = h @ phi.mean.w + phi.mean.b, np.clip(h @ phi.log_std.w + phi.log_std.b, -5, 2)
        kl = 0.5 * (mu**2 + np.exp(log_sigma) ** 2 - 1 - 2 * log_sigma).sum(-1)
        return mu + np.exp(log_sigma) * noise["normal"][(B, N)], kl

    z_now, kl = z(now, "value")
    rest = gcivl(now.algo, then.algo, slow.algo, b, z_now, z(then, "value")[0], z(then, "actor")[0])
    return {"penalty/loss": beta * kl.mean(), **rest}


def vip_gcivl(now, then, slow, b, noise):
    phi = lambda p, x: mlp(p.rep.phi.mlp, x)
    o = drawn_by_rep(b)

    def v(x):
        return -np.sqrt(np.maximum(((phi(now, x) - phi(now, o.last)) ** 2).sum(-1), 1e-6))

    own = -(1 - GAMMA) * v(o.first).mean() + np.log(np.exp(v(o.now) + 1 - GAMMA * v(o.after)).sum())
    z = {role: phi(then, b.draws[role].g) for role in ("value", "actor")}
    return {"rep/loss": own, **gcivl(now.algo, then.algo, slow.algo, b, z["value"], z["value"], z["actor"])}


def tra_crl(now, then, slow, b, noise):
    u, v = average(now.rep.psi, b.s), average(now.rep.phi, drawn_by_rep(b).g)
    logits = u @ v.T / np.sqrt(N)
    own = -sum(log_softmax(logits, 1)[i, i] + log_softmax(logits, 0)[i, i] for i in range(B)) / B**2
    z = {role: average(then.rep.phi, b.draws[role].g) for role in ("value", "actor")}
    return {"rep/loss": own, **crl(now.algo, then.algo, slow.algo, b, z["value"], z["value"], z["actor"])}


def byol_gcfbc(now, then, slow, b, noise):
    g = drawn_by_rep(b).g
    p_s, p_g = (lambda p: average(p.rep.phi, b.s)), (lambda p: average(p.rep.phi, g))
    q, back = average(now.rep.forward, p_s(now), b.a), average(now.rep.backward, p_g(now))
    forward = -(softmax(p_g(then)) * log_softmax(q)).sum(-1).mean()
    backward = -(softmax(back) * log_softmax(p_s(then))).sum(-1).mean()
    z = average(now.rep.phi, b.draws["actor"].g)  # D5: the flow loss trains phi
    rest = gcfbc(now.algo, b, z, noise["normal"][(B, A)], noise["uniform"][(B, 1)])
    return {"rep/forward": forward, "rep/backward": backward, "rep/loss": forward + backward, **rest}


def hiql_phi_hiql(now, then, slow, b, noise):
    def z(p):
        def seen(role, s):
            y = mlp(p.rep.phi.mlp, np.concatenate([s, b.draws[role].g], axis=-1))
            return np.sqrt(N) * y / np.maximum(np.sqrt((y**2).sum(-1, keepdims=True)), 1e-6)

        return seen

    return hiql(now.algo, then.algo, slow.algo, b, z(now), z(then))


PAIRS = {
    ("dual", "gcivl"): dual_gcivl,
    ("vib", "gcivl"): vib_gcivl,
    ("tra", "crl"): tra_crl,
    ("byol", "gcfbc"): byol_gcfbc,
    ("vip", "gcivl"): vip_gcivl,
    ("orig", "hiql"): orig_hiql,
    ("dual", "hiql"): dual_hiql,
    ("dual", "trl"): dual_trl,
    ("dual", "daf"): dual_daf,
    ("hiql_phi", "hiql"): hiql_phi_hiql,
}
TERMS = (
    "rep/loss",
    "penalty/loss",
    "value/loss",
    "critic/loss",
    "displacement/loss",
    "actor/loss",
    "low/loss",
    "high/loss",
)


def fixed_batch(rep: str, rng, roles=("value", "actor")) -> Batch:
    """A batch in which Dual shares its goals with the value, unless the algorithm has none or draws others."""
    draw = lambda d=D: rng.normal(size=(B, d))
    goals = lambda: Goals(draw(), np.array([1.0, 0.0, 0.0, 0.0, 1.0, 0.0]))
    draws = {role: goals() for role in roles}
    if rep not in ("dual", "orig", "hiql_phi") or "between" in roles or "value" not in roles:
        draws["rep"] = Frames(draw(), draw(), draw(), draw()) if rep == "vip" else goals()
    if "between" in roles:
        steps = np.array([0, 1, 5, 2, 3, 0]), np.array([4, 1, 0, 3, 1, 0])
        draws["between"] = draws["between"]._replace(passed=Passed(*steps, draw(A)))
    return Batch(draw(), rng.uniform(-1, 1, (B, A)), draw(), draws)


def fixed_noise(monkeypatch, rng) -> dict[str, dict]:
    """Every draw of one shape is the same array, whoever asks for it and with whatever key."""
    noise = {"normal": {(B, N): rng.normal(size=(B, N)), (B, A): rng.normal(size=(B, A))}}
    noise["uniform"] = {(B, 1): rng.uniform(size=(B, 1))}
    for name, arrays in noise.items():
        monkeypatch.setattr(random, name, lambda key, shape, dtype=None, arrays=arrays: jnp.asarray(arrays[shape]))
    return noise


def moved(tree, direction, h):
    return jax.tree.map(lambda x, d: x + h * d, tree, direction)


@pytest.mark.parametrize(("rep", "algo"), PAIRS)
def test_losses_and_gradients_equal_the_formulas(rep, algo, monkeypatch):
    rng, literal = np.random.default_rng(0), PAIRS[rep, algo]
    agent = small.agent(rep, algo, HIDDEN, shape=(D,), actions=A, discount=GAMMA, batch_size=B)
    noisy = lambda tree: jax.tree.map(lambda x: np.asarray(x, np.float64) + 0.3 * rng.normal(size=x.shape), tree)
    state = agent.init(random.key(0))
    params, slow = noisy(state.params), noisy(state.targets)
    batch = fixed_batch(rep, rng, tuple(sorted(agent.algo.roles, key=lambda role: role != "value")))
    noise = fixed_noise(monkeypatch, rng)
    with jax.enable_x64(True):
        exact = lambda tree: jax.tree.map(jnp.asarray, tree)
        loss = lambda p: agent.losses(p, exact(slow), exact(batch), random.key(0))
        (total, info), gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))(exact(params))
        assert total.dtype == jnp.float64
        gradient = jax.tree.map(np.asarray, gradient)

    value = lambda p: literal(p, params, slow, batch, noise)
    expected = value(params)
    for name, term in expected.items():
        np.testing.assert_allclose(info[name], term, rtol=1e-5, err_msg=name)
    summed = lambda terms: sum(terms[name] for name in TERMS if name in terms)
    assert {name for name in info if name.endswith("/loss")} == set(expected) & set(TERMS)
    np.testing.assert_allclose(total, summed(expected), rtol=1e-5)

    h = 1e-6
    for _ in range(5):
        direction = jax.tree.map(lambda x: rng.normal(size=x.shape), params)
        slope = (summed(value(moved(params, direction, h))) - summed(value(moved(params, direction, -h)))) / (2 * h)
        products = jax.tree.map(lambda g, d: (g * d).sum(), gradient, direction)
        np.testing.assert_allclose(sum(jax.tree.leaves(products)), slope, rtol=1e-4)


def test_the_reading_tells_a_missing_stop_gradient():
    """The reading with `then` moving along has other slopes, so agreement above is not an accident."""
    rng = np.random.default_rng(0)
    agent = small.agent("dual", "gcivl", HIDDEN, shape=(D,), actions=A, discount=GAMMA, batch_size=B)
    state = jax.tree.map(lambda x: np.asarray(x, np.float64), agent.init(random.key(0)))
    batch = fixed_batch("dual", rng)
    direction, h = jax.tree.map(lambda x: rng.normal(size=x.shape), state.params), 1e-6

    def slope(follow):
        ends = []
        for sign in (1, -1):
            p = moved(state.params, direction, sign * h)
            ends.append(sum(dual_gcivl(p, p if follow else state.params, state.targets, batch, {}).values()))
        return (ends[0] - ends[1]) / (2 * h)

    assert abs(slope(True) - slope(False)) > 1e-2 * abs(slope(False))


def test_options_used_above_are_the_documented_ones():
    dual, gcivl_ = small.rep("dual"), small.algo("gcivl")
    assert (dual.expectile, gcivl_.expectile, gcivl_.alpha) == (0.7, 0.9, 10.0)
    hiql_ = small.algo("hiql")
    assert (hiql_.expectile, hiql_.alpha_low, hiql_.alpha_high) == (0.7, 3.0, 3.0)
    trl_ = small.algo("trl")
    assert (trl_.expectile, trl_.falloff, trl_.alpha) == (0.7, 0.5, 1.0)
    assert (small.algo("daf").alpha, small.algo("daf").displacement) == (10.0, "predicted")
    assert (small.rep("vib").beta, small.algo("crl").alpha) == (0.001, 0.1)
    assert dataclasses.asdict(small.rep("byol"))["flow_gradient"] is True

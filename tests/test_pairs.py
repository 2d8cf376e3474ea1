"""Every representation with every algorithm, on vectors and (all but DQN) on images: a finite update, one trace for
many steps, and gradients that flow exactly where sections 4.7 and 14 of the method let them. Pairs that an agent
refuses are listed in REFUSED.

The tables below are those sections, typed in by hand. They know nothing of `routes`; each loss is differentiated alone
and what it moves is compared by module.
"""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

import small
from dualgoal.agent import Agent
from dualgoal.algos import ALGOS
from dualgoal.errors import UserError
from dualgoal.nets.encoders import Impala
from dualgoal.nets.heads import Towers
from dualgoal.reps import REPS

# VALUE is everything an algorithm learns values or critics by, POLICY its policy loss, KL the bottleneck's price.
VALUE_LOSSES = {
    "gcivl": {"value"},
    "crl": {"value"},
    "gciql": {"value", "critic"},
    "gcfbc": set(),
    "gcbc": set(),
    "dqn": {"value"},
    "hiql": {"value"},
    "trl": {"critic"},
    "daf": set(),
}
# Losses of neither kind, which move nothing but a network of the algorithm.
OTHER_LOSSES = {"displacement"}

# What trains each network of a representation on vectors, under an algorithm that has a value loss ...
VECTORS = {
    "orig": {},
    "dual": {"psi": "L_V", "phi": "L_V", "critic": "L_Q"},
    "vib": {"phi": "VALUE KL"},
    "vip": {"phi": "L_VIP"},
    "tra": {"psi": "L_TRA", "phi": "L_TRA"},
    "byol": {"phi": "L_FWD L_BWD", "forward": "L_FWD", "backward": "L_BWD"},
    "hiql_phi": {"phi": "VALUE"},
    "dual_siamese": {"phi": "L_V", "critic": "L_Q"},
    "dual_pair": {"psi": "L_V", "phi": "L_V", "critic": "L_Q"},
    "dual_token": {"psi": "L_V", "phi": "L_V", "tokens": "L_V", "join": "L_V", "critic": "L_Q"},
}
# ... and where that differs under one that has none (VIB needs some loss; TRA and BYOL as the paper says, D5).
VECTORS_NO_VALUE = {
    "vib": {"phi": "POLICY KL"},
    "hiql_phi": {"phi": "POLICY"},
    "tra": {"psi": "L_TRA", "phi": "L_TRA POLICY"},
    "byol": {"phi": "L_FWD L_BWD POLICY", "forward": "L_FWD", "backward": "L_BWD"},
}
# On images downstream losses pass through the frozen head into the encoders (D8); VIB's head is the exception (D7).
IMAGES = {
    "orig": {},
    "dual": {
        "psi": "L_V",
        "phi": "L_V",
        "critic": "L_Q",
        "E_s": "L_V L_Q VALUE POLICY",
        "E_g": "L_V L_Q VALUE POLICY",
    },
    "vib": {"phi": "VALUE KL POLICY", "E_s": "VALUE POLICY", "E_g": "VALUE KL"},
    "vip": {"phi": "L_VIP", "E_s": "L_VIP VALUE POLICY", "E_g": "L_VIP VALUE POLICY"},
    "tra": {"psi": "L_TRA", "phi": "L_TRA", "E_s": "L_TRA VALUE POLICY", "E_g": "L_TRA VALUE POLICY"},
    "byol": {
        "phi": "L_FWD L_BWD",
        "forward": "L_FWD",
        "backward": "L_BWD",
        "E_s": "L_FWD VALUE POLICY",
        "E_g": "L_BWD VALUE POLICY",
    },
    "hiql_phi": {"phi": "VALUE POLICY", "phi encoder": "VALUE POLICY"},
    "dual_siamese": {"phi": "L_V", "critic": "L_Q", "E_s": "L_V L_Q VALUE POLICY"},
    "dual_pair": {
        "psi": "L_V",
        "psi encoder": "L_V",
        "phi": "L_V",
        "phi encoder": "L_V",
        "critic": "L_Q",
        "critic encoder": "L_Q",
    },
    "dual_token": {
        "psi": "L_V",
        "phi": "L_V",
        "tokens": "L_V",
        "join": "L_V",
        "critic": "L_Q",
        "critic encoder": "L_Q",
    },
}
IMAGES_NO_VALUE = {
    "vib": {"phi": "POLICY KL", "E_s": "POLICY", "E_g": "POLICY KL"},
    "hiql_phi": {"phi": "POLICY", "phi encoder": "POLICY"},
}
# With these the algorithm's networks encode images themselves.
NO_SHARED_ENCODERS = {"orig", "hiql_phi", "dual_pair", "dual_token"}
# The algorithm's own networks are trained by its own losses and nothing else.
OWN = {
    "gcivl": {"value": "value", "actor": "actor"},
    "crl": {"critic.state": "value", "critic.goal": "value", "actor": "actor"},
    "gciql": {"value": "value", "critic": "critic", "actor": "actor"},
    "gcfbc": {"actor": "actor"},
    "gcbc": {"actor": "actor"},
    "dqn": {"critic": "value"},
    "hiql": {"value": "value", "low": "low", "high": "high"},
    "trl": {"critic": "critic", "actor": "actor"},
    "daf": {"displacement": "displacement", "actor": "actor"},
}
# What a representation calls the parts of its loss.
PARTS = {
    **dict.fromkeys(("dual", "dual_siamese", "dual_pair", "dual_token"), {"value_loss": "L_V", "critic_loss": "L_Q"}),
    "byol": {"forward": "L_FWD", "backward": "L_BWD"},
    "vip": "L_VIP",
    "tra": "L_TRA",
}

SHAPES = {"vectors": (3,), "images": small.IMAGE}
LOOKS_AT_STATE = ("hiql_phi", "dual_siamese", "dual_pair", "dual_token")
HAS_FACTORS = ("dual",)
REFUSED = {
    ("orig", "hiql", "images"),
    *((rep, "crl", kind) for rep in LOOKS_AT_STATE for kind in SHAPES),
    *((rep, "daf", kind) for rep in REPS if rep not in HAS_FACTORS for kind in SHAPES),
}
# Images take seconds per pair. Lights Out has none. What `routes` may depend on is images, and whether there is a value
# loss: so every representation is joined with GCIVL, every one of the paper with GCFBC, and the others with a few.
PAPER = ("orig", "vib", "vip", "tra", "byol", "dual")
ON_IMAGES = {
    "gcivl": tuple(REPS),
    "gcfbc": PAPER,
    "crl": ("orig", "dual", "vib"),
    "gciql": ("orig", "dual", "tra"),
    "gcbc": ("dual", "vib", "hiql_phi"),
    "hiql": ("dual", "vib", "hiql_phi"),
    "trl": ("dual",),
    "daf": ("dual",),
    "dqn": (),
}
CASES = [
    (rep, algo, kind)
    for kind in SHAPES
    for rep in REPS
    for algo in OWN
    if (rep, algo, kind) not in REFUSED and (kind == "vectors" or rep in ON_IMAGES[algo])
]


def test_the_tables_know_every_part():
    assert set(VECTORS) == set(IMAGES) == set(REPS)
    assert set(OWN) == set(ALGOS) - {"none"}
    assert set(LOOKS_AT_STATE) == {name for name in REPS if small.rep(name).looks_at_state}
    assert set(HAS_FACTORS) == {name for name in REPS if small.rep(name).factor_shape}


@pytest.mark.parametrize(("rep", "algo", "kind"), sorted(REFUSED))
def test_pairs_that_are_not_here_are_refused(rep, algo, kind):
    with pytest.raises(UserError, match="cannot use"):
        matched(rep, algo, SHAPES[kind])


def allowed(rep: str, algo: str, kind: str) -> dict[str, set[str]]:
    """The network groups that each loss moves, by section 4.7."""
    values = VALUE_LOSSES[algo]
    table = dict(VECTORS if kind == "vectors" else IMAGES)
    if not values:
        table |= VECTORS_NO_VALUE if kind == "vectors" else IMAGES_NO_VALUE
    moved: dict[str, set[str]] = {}
    for group, losses in table[rep].items():
        for loss in losses.split():
            for name in {"VALUE": values, "POLICY": set(OWN[algo].values()) - values - OTHER_LOSSES}.get(loss, {loss}):
                moved.setdefault(name, set()).add(group)
    for net, loss in OWN[algo].items():
        moved.setdefault(loss, set()).add(f"own {net}")
        if kind == "images" and rep in NO_SHARED_ENCODERS:  # heads that read images themselves
            moved[loss].add(f"own {net} encoder")
    return moved


def trained(rep: str, algo: str, kind: str) -> set[str]:
    return set().union(*allowed(rep, algo, kind).values())


def groups(params) -> dict[str, list]:
    """Arrays by network, named as in the tables; image encoders inside a network apart from the rest of it."""
    found: dict[str, list] = {}

    def visit(prefix, net):
        if type(net).__module__.startswith(("dualgoal.reps", "dualgoal.algos")) or isinstance(net, Towers):
            for name, inner in vars(net).items():
                visit([*prefix, name], inner)
            return
        name = " ".join(x for x in (prefix[0], ".".join(prefix[1:])) if x)
        for part in jax.tree.leaves(net, is_leaf=lambda x: isinstance(x, Impala)):
            inside = isinstance(part, Impala) and not isinstance(net, Impala)
            found.setdefault(name + " encoder" * inside, []).extend(jax.tree.leaves(part))

    visit([""], params.rep)
    visit(["own"], params.algo)
    if params.encoders is not None:
        visit(["", "E_s"], params.encoders.state)
        visit(["", "E_g"], params.encoders.goal)
    return {name: leaves for name, leaves in found.items() if leaves}


def gradients_by_loss(agent, rep_name: str, state, batch, key, monkeypatch) -> dict[str, dict]:
    """The gradient of each loss alone. Losses are noted where the two parts return them; the price of a bottleneck is
    what remains of the total."""
    noted: dict = {}
    own_loss, algo_losses = type(agent.rep).loss, type(agent.algo).losses

    def note_rep(self, *args):
        loss, info = own_loss(self, *args)
        parts = PARTS[rep_name]
        noted.update({parts: loss} if isinstance(parts, str) else {name: info[key] for key, name in parts.items()})
        return loss, info

    def note_algo(self, *args):
        terms = algo_losses(self, *args)
        noted.update({name: loss for name, (loss, _) in terms.items()})
        return terms

    monkeypatch.setattr(type(agent.rep), "loss", note_rep)
    monkeypatch.setattr(type(agent.algo), "losses", note_algo)

    def all_losses(params):
        noted.clear()
        total, _ = agent.losses(params, state.targets, batch, key)
        return {**noted, "KL": total - sum(noted.values())}

    values, pull = jax.vjp(all_losses, state.params)
    assert all(np.isfinite(x) for x in values.values())
    zeros = {name: jnp.zeros(()) for name in values}
    return {name: pull({**zeros, name: jnp.ones(())})[0] for name in values}


def matched(rep: str, algo: str, shape=SHAPES["vectors"]):
    """An agent and data with the kind of actions that it uses."""
    agent = small.agent(rep, algo, shape=shape)
    return agent, small.data(shape, discrete=agent.spec.discrete)


def moved_groups(tree) -> set[str]:
    return {name for name, leaves in groups(tree).items() if any(np.asarray(x).any() for x in leaves)}


@pytest.mark.parametrize(("rep", "algo", "kind"), CASES)
def test_each_loss_moves_exactly_what_it_may_and_an_update_is_finite(rep, algo, kind, monkeypatch):
    """Run eagerly, because compiling all of these takes minutes. That jit traces an update once for any number of steps
    is shown by the state: what comes out has the types of what went in, so every later call meets the first one's
    cache. Every part is traced, too, on vectors; image encoders are traced by the tests of encoders."""
    agent, data = matched(rep, algo, SHAPES[kind])
    start, key = agent.init(random.key(0)), random.key(1)
    if kind == "vectors" and (algo == "gcivl" or rep == "dual"):
        same_types(start, jax.jit(agent.update).trace(start, data, key).out_info[0])

    gradients = gradients_by_loss(agent, rep, start, agent.sample(data, key, 0), key, monkeypatch)
    found = {loss: moved_groups(gradient) for loss, gradient in gradients.items()}
    table = allowed(rep, algo, kind)
    assert found == {loss: table.get(loss, set()) for loss in found}
    assert set(found) >= set(table)
    assert trained(rep, algo, kind) <= set(groups(start.params))
    total = jax.tree.map(lambda *parts: sum(parts), *gradients.values())
    after = agent.apply_gradients(start, total)
    same_types(start, after)
    check(start, after, {}, moving=trained(rep, algo, kind))


def same_types(start, after):
    assert jax.tree.structure(after) == jax.tree.structure(start)
    for before, then in zip(jax.tree.leaves(start), jax.tree.leaves(after), strict=True):
        assert (before.shape, before.dtype, before.weak_type) == (then.shape, then.dtype, then.weak_type)


def losses_that_move(group: str, agent, rep: str, monkeypatch) -> set[str]:
    shape = agent.spec.observation_shape
    state, key = agent.init(random.key(0)), random.key(1)
    batch = agent.sample(small.data(shape), key, 0)
    found = gradients_by_loss(agent, rep, state, batch, key, monkeypatch)
    return {loss for loss, gradient in found.items() if group in moved_groups(gradient)}


@pytest.mark.parametrize("rep", ["tra", "byol"])
def test_the_flow_loss_can_be_kept_out_of_phi(rep, monkeypatch):
    """D5: the reference's reading as the switch."""
    agent = Agent(small.rep(rep, flow_gradient=False), small.algo("gcfbc"), small.agent(rep, "gcfbc").spec)
    assert "actor" not in losses_that_move("phi", agent, rep, monkeypatch)


def test_the_actor_loss_can_be_kept_out_of_a_bottleneck_on_images(monkeypatch):
    """D7: the paper's reading as the switch."""
    spec = small.agent("vib", "gcivl", shape=SHAPES["images"]).spec
    agent = Agent(small.rep("vib", pixel_actor_gradient=False), small.algo("gcivl"), spec)
    assert losses_that_move("phi", agent, "vib", monkeypatch) == {"value", "KL"}


def test_late_fusion_of_orig_has_a_pair_of_encoders_per_network():
    """T3: nothing shared, and the value's pair has a slow copy."""
    spec = small.agent("orig", "gcivl", shape=SHAPES["images"]).spec
    state = Agent(small.rep("orig", fusion="late"), small.algo("gcivl"), spec).init(random.key(0))
    count = lambda tree: sum(
        isinstance(x, Impala) for x in jax.tree.leaves(tree, is_leaf=lambda x: isinstance(x, Impala))
    )
    assert (count(state.params.algo.value), count(state.params.algo.actor)) == (2, 2)
    assert count(state.targets.algo) == 2
    assert state.params.encoders is None


# Every representation and every algorithm at least once; DAF works with Dual alone.
ONCE = [
    ("dual", "daf"),
    *zip([rep for rep in REPS if rep != "dual"], itertools.cycle(algo for algo in OWN if algo != "daf"), strict=False),
]


@pytest.mark.parametrize(("rep", "algo"), ONCE)
def test_compiled_update_traces_once(rep, algo):
    """One trace for many steps."""
    agent, data = matched(rep, algo)
    traces = []

    def counted(state, data, key):
        traces.append(1)
        return agent.update(state, data, key)

    step, start = jax.jit(counted), agent.init(random.key(0))
    state = start
    for _ in range(20):
        state, info = step(state, data, random.key(1))
    assert len(traces) == 1
    assert int(state.step) == 20
    check(start, state, info, moving=trained(rep, algo, "vectors"))


def check(start, state, info, moving: set[str]):
    """Everything is finite, and exactly the networks that some loss trains have moved."""
    for x in jax.tree.leaves((eqx.filter(state, eqx.is_inexact_array), info)):
        assert np.isfinite(x).all()
    difference = jax.tree.map(lambda a, b: a - b, state.params, start.params)
    assert moved_groups(difference) == moving

"""Parts from somebody's own module: they train, are evaluated in worker processes, resume, export and report, without a
change to this package; a representation may look at the state, and an algorithm may name its roles as it likes."""

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

import dualgoal
import small
import tiny
from dualgoal import registry
from dualgoal.agent import Agent
from dualgoal.algos import CRL, DQN, GCBC, GCIQL, GCIVL, HIQL, TRL, NoAlgorithm
from dualgoal.cli.main import main
from dualgoal.errors import UserError
from dualgoal.interface import Encoded, Expectile, Goal, Representation, Role, Routes, Spec
from dualgoal.loop import TrainingLoop
from dualgoal.nets.heads import Embedding
from dualgoal.options import Size, Sizes, check_options
from dualgoal.paper import settings
from dualgoal.reps import REPS, VIB, Dual, Wrapped
from dualgoal.runs import config, policy
from dualgoal.streams import ACTOR_GOALS, VALUE_GOALS, Between, GoalStream, Waypoint, Window

FOLDER = str(Path(__file__).parent / "outside")
IMAGE = small.IMAGE
SPEC = Spec((3,), 2, discount=0.9, batch_size=4)


@dataclass  # not frozen, so that it has no hash
class Loose(GoalStream):
    def rows(self, data, at, bits, discount, towards=None):
        return at.rows


@pytest.fixture(scope="module", autouse=True)
def parts():
    sys.path.insert(0, FOLDER)
    import far_parts

    yield far_parts
    sys.path.remove(FOLDER)
    del sys.modules["far_parts"]


# z depends on the state -----------------------------------------------------------------------------------------------


def views(agent, monkeypatch):
    """The states from which each role's goals were seen in one evaluation of the losses."""
    state, data = agent.init(random.key(0)), small.data(discrete=agent.spec.discrete)
    batch, seen = agent.sample(data, random.key(1), 0), []
    original = Goal.__call__

    def noted(self, s):
        seen.append(s)
        return original(self, s)

    monkeypatch.setattr(Goal, "__call__", noted)
    _, info = agent.losses(state.params, state.targets, batch, random.key(2))
    return state, batch, seen, info


@pytest.mark.parametrize(
    "algo", [GCIVL(hidden=(8,)), GCIQL(hidden=(8,)), DQN(hidden=(8,))], ids=lambda a: type(a).__name__
)
def test_every_bootstrap_sees_the_goal_from_the_next_state(algo, parts, monkeypatch):
    discrete = "continuous" not in algo.actions
    agent = Agent(parts.Seen(), algo, Spec((3,), 2, discount=0.9, batch_size=4, discrete=discrete))
    _, batch, seen, _ = views(agent, monkeypatch)
    assert any((s == batch.next_s).all() for s in seen)
    assert any((s == batch.s).all() for s in seen)


def test_the_value_loss_bootstraps_from_z_of_the_next_state(parts):
    """GCIVL's value loss worked out with z(s', g), and how it would differ with z(s, g)."""
    agent = Agent(parts.Seen(), GCIVL(hidden=(8,)), SPEC)
    state = agent.init(random.key(0))
    batch = agent.sample(small.data(), random.key(1), 0)
    _, info = agent.losses(state.params, state.targets, batch, random.key(2))
    goals, nets, slow = batch.draws["value"], state.params.algo.value, state.targets.algo.value
    z = lambda s: state.params.rep.phi(goals.g - s)
    r, m = np.asarray(goals.success) - 1, 1 - np.asarray(goals.success)

    def loss(next_z):
        v, v_slow, v_next = (np.asarray(x, np.float64) for x in (
            nets(batch.s, z(batch.s)), slow(batch.s, z(batch.s)), slow(batch.next_s, next_z)
        ))  # fmt: skip
        advantage = r + 0.9 * m * v_next.min(0) - v_slow.mean(0)
        return (np.where(advantage >= 0, 0.9, 0.1) * (r + 0.9 * m * v_next - v) ** 2).mean(1).sum()

    np.testing.assert_allclose(info["value/loss"], loss(z(batch.next_s)), rtol=1e-5)
    assert abs(loss(z(batch.s)) - loss(z(batch.next_s))) > 1e-3 * loss(z(batch.next_s))


def test_contrastive_learning_refuses_a_representation_that_looks_at_the_state(parts):
    with pytest.raises(UserError, match="CRL cannot use Seen: it pairs every state with every goal") as problem:
        Agent(parts.Seen(), CRL(), SPEC)
    assert "\n" not in str(problem.value)


def test_encoding_asks_for_the_state_it_needs(parts):
    agent = Agent(parts.Seen(), GCIVL(hidden=(8,)), SPEC)
    params, g = agent.init(random.key(0)).params, jnp.ones((2, 3))
    with pytest.raises(UserError, match="Seen looks at the state"):
        agent.encode(params, g, random.key(0))
    assert agent.encode(params, g, random.key(0), s=0 * g).shape == (2, 8)


# Roles ----------------------------------------------------------------------------------------------------------------


def test_a_role_of_any_name_trains_the_goal_encoder(parts):
    """What a loss trains follows from what its role says, not from what it is called."""
    agent = Agent(Dual(dim=8, hidden=(8,)), parts.Planner(), Spec(IMAGE, 2, batch_size=4))
    state = agent.init(random.key(0))
    batch = agent.sample(small.data(IMAGE), random.key(1), 0)
    assert set(agent.streams) == {"judge", "far", "near", "rep"}

    def losses(params):  # info carries no gradient, so the losses are taken from the algorithm itself
        features = agent.encode_images(params, batch)
        goals = {name: agent.goal(params, batch, features, name, random.key(3))[0] for name in agent.algo.roles}
        terms = agent.algo.losses(params.algo, state.targets.algo, features, goals, random.key(4), agent.algo_spec)
        return {name: terms[name][0] for name in ("judge", "near")}

    for name, gradient in jax.jit(jax.jacrev(losses))(state.params).items():
        assert any(np.asarray(x).any() for x in jax.tree.leaves(gradient.encoders.goal)), name
        assert not any(np.asarray(x).any() for x in jax.tree.leaves(gradient.rep.phi)), "Dual's own loss alone"


def test_a_loss_may_not_take_the_name_of_the_representations_own():
    @dataclass(frozen=True)
    class Taken(GCBC):
        def losses(self, *given):
            return {"rep": super().losses(*given)["actor"]}

    agent = Agent(Dual(dim=8, hidden=(8,)), Taken(hidden=(8,)), SPEC)
    with pytest.raises(UserError, match="Taken: a loss cannot be called 'rep'; that is the representation's"):
        jax.eval_shape(agent.update, jax.eval_shape(agent.init, random.key(0)), small.data(), random.key(1))


def test_routes_hold_for_a_representations_own_loss_too():
    @dataclass(frozen=True)
    class Routed(Dual):
        def routes(self, spec, value_loss):
            return Routes(head=frozenset({"actor"}), features=frozenset({"actor"}))

    agent = Agent(Routed(dim=8, hidden=(8,)), NoAlgorithm(), Spec(IMAGE, 2, batch_size=4))
    state = agent.init(random.key(0))
    batch = agent.sample(small.data(IMAGE), random.key(1), 0)
    gradient = jax.grad(lambda p: agent.losses(p, state.targets, batch, random.key(2))[0])(state.params)
    assert not any(np.asarray(x).any() for x in jax.tree.leaves(gradient)), "no loss of an actor is there to train it"


def test_routes_name_losses_that_there_are():
    @dataclass(frozen=True)
    class Misspelt(Dual):
        def routes(self, spec, value_loss):
            return Routes(head=frozenset({"reps"}), features=frozenset())

    with pytest.raises(UserError, match="unknown loss in the routes of Misspelt 'reps'; did you mean 'rep'?"):
        Agent(Misspelt(), GCBC(), SPEC).routes  # noqa: B018


def test_a_target_copy_of_a_network_that_is_not_there_is_refused():
    @dataclass(frozen=True)
    class Misspelt(GCIVL):
        ema = ("valeu",)

    with pytest.raises(UserError, match="unknown network of GCIVLNets 'valeu'; did you mean 'value'?"):
        jax.eval_shape(Agent(Dual(dim=8, hidden=(8,)), Misspelt(hidden=(8,)), SPEC).init, random.key(0))


def test_a_network_for_exports_that_is_not_there_is_refused():
    @dataclass(frozen=True)
    class Misspelt(Dual):
        goal_network = "phy"

    @dataclass(frozen=True)
    class Misnamed(GCBC):
        policy_network = "actr"

    for rep, algo, words in (
        (Misspelt(dim=8, hidden=(8,)), GCBC(hidden=(8,)), "'phy'; did you mean 'phi'?"),
        (Dual(dim=8, hidden=(8,)), Misnamed(hidden=(8,)), "'actr'; did you mean 'actor'?"),
    ):
        with pytest.raises(UserError, match=re.escape(words)):
            jax.eval_shape(Agent(rep, algo, SPEC).init, random.key(0))


def test_a_loss_that_is_never_computed_is_refused():
    @dataclass(frozen=True)
    class Unfed(Dual):
        stream = None

    with pytest.raises(UserError, match="Unfed has a loss but draws no goals for it; give it a stream"):
        Agent(Unfed(dim=8, hidden=(8,)), GCBC(hidden=(8,)), SPEC)


def test_there_is_a_z_for_every_goal():
    @dataclass(frozen=True)
    class Lone(Dual):
        def encode(self, nets, g, s, key):
            return Encoded(nets.phi.mean(g)[:1])

    agent = Agent(Lone(dim=8, hidden=(8,)), GCBC(hidden=(8,)), SPEC)
    with pytest.raises(UserError, match=r"Lone.encode gives z of shape \(1, 8\) for 2 goals; expected a row for each"):
        jax.eval_shape(agent.init, random.key(0))


@pytest.mark.parametrize(
    "options, words",
    [
        ({"dim": "a"}, "dim is 'a'; expected a whole number"),
        ({"hidden": 64}, "hidden is 64; expected a tuple of whole numbers"),
        ({"hidden": (8, "b")}, "hidden is b; expected a whole number"),
        ({"hidden": ()}, "hidden is (); expected one or more whole numbers from 1 to 1,048,576"),
        ({"dim": 0}, "dim is 0; expected a whole number from 1 to 1,048,576"),
        ({"expectile": "0.7"}, "expectile is '0.7'; expected a number"),
        ({"normalize": 1}, "normalize is 1; expected True or False"),
    ],
)
def test_options_of_another_kind_are_refused_in_python_too(options, words):
    @dataclass(frozen=True)
    class Mine:
        dim: Size = 8
        hidden: Sizes = (8,)
        latent: float = 0.5  # a name that sizes have elsewhere
        expectile: Expectile = 0.7
        normalize: bool = False

    with pytest.raises(UserError, match=re.escape(words)):
        check_options(Mine(**options))
    check_options(Mine(dim=np.int64(8), expectile=np.float32(0.5)))


def test_the_shape_of_z_is_a_tuple_and_a_vector_where_it_is_predicted():
    @dataclass(frozen=True)
    class Bare(Dual):
        def z_shape(self, spec):
            return self.dim

    @dataclass(frozen=True)
    class Matrix(Dual):
        def z_shape(self, spec):
            return (2, self.dim)

    with pytest.raises(UserError, match=re.escape("Bare.z_shape gives 8; expected a tuple of whole numbers")):
        Agent(Bare(dim=8, hidden=(8,)), GCBC(hidden=(8,)), SPEC).algo_spec  # noqa: B018
    with pytest.raises(UserError, match=re.escape("HIQL cannot use Matrix: it predicts z, which must be a vector")):
        Agent(Matrix(dim=8, hidden=(8,)), HIQL(hidden=(8,)), SPEC)


@pytest.mark.parametrize("towards", ["fra", "near"])
def test_goals_are_drawn_towards_a_role_that_depends_on_no_other(towards):
    @dataclass(frozen=True)
    class Led(GCBC):
        roles = {
            "far": Role(ACTOR_GOALS, "actor"),
            "near": Role(Waypoint(3, towards="far"), "actor"),
            "actor": Role(Waypoint(2, towards=towards), "actor"),
        }

    with pytest.raises(UserError, match=rf"role 'actor' are drawn towards those of '{towards}'; .* no other \(far\)"):
        Agent(Dual(dim=8, hidden=(8,)), Led(hidden=(8,)), SPEC)


@pytest.mark.parametrize(
    ("roles", "words"),
    [
        ({"actor": Role(Between("far"), "actor"), "far": Role(VALUE_GOALS, "value")},
         "role 'actor' are drawn towards those of 'far', which may lie anywhere; Between needs goals ahead"),
        ({"actor": Role(Between(towards=None), "actor")}, "the stream of role 'actor' names no role towards whose"),
        ({"actor": Role(Loose(), "actor")}, "is not hashable; decorate Loose with @dataclass(frozen=True)"),
        ({"actor": Role("random", "actor")}, "the stream of role 'actor' is a str; expected a stream"),
    ],
)  # fmt: skip
def test_streams_of_roles_that_cannot_be_drawn_are_refused(roles, words):
    algo = type("Odd", (GCBC,), {"roles": roles})
    with pytest.raises(UserError, match=re.escape(words)):
        Agent(Dual(dim=8, hidden=(8,)), algo(hidden=(8,)), SPEC)


def test_a_role_needs_goals(parts):
    algo = type("Framed", (GCBC,), {"roles": {"actor": Role(Window(), "actor")}})
    agent = Agent(Dual(dim=8, hidden=(8,)), algo(hidden=(8,)), SPEC)
    with pytest.raises(UserError, match="the stream of 'actor' draws Frames; an algorithm's roles need goals"):
        agent.update(agent.init(random.key(0)), small.data(), random.key(1))


@pytest.mark.parametrize("towards", ["value", "rep"])
def test_a_representation_is_drawn_towards_roles_that_there_are(towards, parts):
    rep = type("Led", (Dual,), {"stream": Between(towards)})
    with pytest.raises(UserError, match=f"Led: the goals of its own loss are drawn towards those of '{towards}'"):
        Agent(rep(dim=8, hidden=(8,)), GCBC(hidden=(8,)), SPEC)


def test_goals_between_lie_between():
    """TRL's goals are ahead, so what is drawn towards them lies in the same episode and before them."""
    agent = Agent(Dual(dim=8, hidden=(8,)), TRL(hidden=(8,)), Spec((3,), 2, discount=0.9, batch_size=256))
    passed = agent.sample(small.data(), random.key(1), 0).draws["between"].passed
    assert (passed.before >= 0).all() and (passed.after >= 0).all()


def test_a_wrapper_of_a_representation_without_a_loss_trains(parts):
    """It defines a loss for those that have one; HIQL's phi has none."""
    agent = Agent(parts.Scaled(VIB(dim=4, hidden=(8, 8))), GCBC(hidden=(8,)), SPEC)
    _, info = agent.update(agent.init(random.key(0)), small.data(), random.key(1))
    assert "rep/loss" not in info and np.isfinite(info["actor/loss"])


@pytest.mark.parametrize("shape", [(3,), IMAGE], ids=["vectors", "images"])
@pytest.mark.parametrize("name", REPS)
def test_a_wrapped_representation_is_the_one_that_it_holds(name, shape):
    """Parameters, losses and gradients are equal, and so are its declarations, but for exports."""
    inner = small.rep(name)
    spec = Spec(shape, 2, discount=0.9, batch_size=4)
    one, other = (Agent(rep, GCIVL(hidden=(8,)), spec) for rep in (inner, Wrapped(inner)))
    declared = {n for n in vars(Representation) if not n.startswith("_") and not callable(getattr(Representation, n))}
    for field in declared - {"goal_network", "set_per_task"}:
        assert getattr(other.rep, field) == getattr(inner, field), field
    data, found = small.data(shape), []
    for agent in (one, other):
        state = agent.init(random.key(0))
        found.append((agent.update(state, data, random.key(1)), agent.act(state.params, *look(data), random.key(2))))
    for a, b in zip(*map(jax.tree.leaves, found), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_wrapped_raw_goal_is_a_raw_goal_unless_it_is_changed(parts):
    assert not Wrapped(small.rep("orig")).learned
    assert parts.Scaled(inner=small.rep("orig")).learned, "what it gives is no goal any more"


def test_a_frozen_representation_that_looks_at_states_is_refused_without_its_state_encoder(parts):
    """On images with two shared encoders, only the goal's comes along: z would be that of another state encoder."""
    ahead, images = parts.Seen(), Spec(IMAGE, 2, batch_size=4)
    Agent(ahead, GCIVL(hidden=(8,)), images)
    Agent(ahead, GCIVL(hidden=(8,)), SPEC, frozen=True)
    with pytest.raises(UserError, match="^GCIVL cannot use a frozen Seen on images: its state encoder does not come"):
        Agent(ahead, GCIVL(hidden=(8,)), images, frozen=True)


def look(data):
    return data.observations[:3], data.observations[5:8]


def test_a_single_member_is_its_own_mean():
    for members, shape in ((None, (7, 5)), (2, (7, 5))):
        phi = Embedding(random.key(0), (3,), 5, (8,), SPEC, members=members)
        assert phi.mean(jnp.ones((7, 3))).shape == shape


def test_a_penalty_is_booked_once_for_the_role_that_trains_a_value(parts):
    agent = Agent(VIB(dim=8, hidden=(8, 8)), parts.Planner(), SPEC)
    state = agent.init(random.key(0))
    _, info = agent.losses(state.params, state.targets, agent.sample(small.data(), random.key(1), 0), random.key(2))
    assert agent.penalised == "judge"
    assert {name for name in info if name.endswith("/loss")} == {"penalty/loss", "judge/loss", "near/loss"}


def test_the_penalty_does_not_depend_on_what_an_algorithm_asks_for_first(parts):
    """It is that of the transitions' own states, whether the algorithm encodes from there or from the next ones."""

    @dataclass(frozen=True)
    class Paid(parts.Seen):
        def encode(self, nets, g, s, key):
            return Encoded(nets.phi(g - s), (g - s).sum(axis=-1))

    @dataclass(frozen=True)
    class Backwards(GCBC):
        def losses(self, nets, targets, batch, goals, key, spec):
            goals["actor"](batch.next_s)
            return super().losses(nets, targets, batch, goals, key, spec)

    found = []
    for algo in (GCBC(hidden=(8,)), Backwards(hidden=(8,))):
        agent = Agent(Paid(), algo, SPEC)
        state, batch = agent.init(random.key(0)), agent.sample(small.data(), random.key(1), 0)
        found.append(agent.losses(state.params, state.targets, batch, random.key(2))[1]["penalty/loss"])
    assert found[0] == found[1] == (batch.draws["actor"].g - batch.s).sum(axis=-1).mean() != 0


# Names and configurations ---------------------------------------------------------------------------------------------


def test_a_part_is_found_by_its_path_and_by_an_entry_point(parts, monkeypatch):
    assert registry.part("rep", "far_parts:Seen") is parts.Seen
    assert registry.name_of("rep", parts.Seen) == "far_parts:Seen"
    monkeypatch.setattr(registry, "_offered", lambda kind: {"seen": "far_parts:Seen"} if kind == "rep" else {})
    assert registry.part("rep", "seen") is parts.Seen and registry.name_of("rep", parts.Seen) == "seen"
    assert {"seen", "dual"} <= set(registry.names("rep"))


def test_an_installed_package_offers_a_part(tmp_path, parts, monkeypatch):
    """As pip leaves it: a folder of metadata on the path."""
    facts = tmp_path / "far_away-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: far-away\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[dualgoal.reps]\nseen = far_parts:Seen\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    registry._offered.cache_clear()
    try:
        assert "seen" in registry.names("rep") and registry.part("rep", "seen") is parts.Seen
        assert config.to_dict(config.Run("t", parts.Seen(), GCIVL()))["rep"]["name"] == "seen"
    finally:
        registry._offered.cache_clear()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("duel", "did you mean 'dual'"),
        ("far_parts:Nothing", "far_parts has nothing called Nothing"),
        ("far_parts:Planner", "'far_parts:Planner' is not a subclass of Representation"),
        ("no_such_module_anywhere:Rep", "put its folder on PYTHONPATH"),
        ("os:system", "'os:system' is not a subclass of Representation"),
        ("far_parts:a.b", "not of the form module:Class"),
        ("../far_parts:Seen", "not of the form module:Class"),
        ("far_parts.py:Seen", "is in a file; give module:Class, here far_parts:Seen, with the folder . on PYTHONPATH"),
        ("../far_parts.py:Seen", "here far_parts:Seen, with the folder .. on PYTHONPATH"),
        ("far_parts:Undecorated", "is not a dataclass; decorate it with @dataclass"),
        ("far_parts:Aimless", "'far_parts:Aimless' does not define routes; see Representation"),
    ],
)
def test_a_wrong_name_is_answered_in_one_line(name, words):
    with pytest.raises(UserError, match=words) as problem:
        registry.part("rep", name)
    assert "\n" not in str(problem.value)


def test_a_class_that_other_processes_cannot_import_is_refused():
    class Local(Dual):
        pass

    with pytest.raises(UserError, match="at the top level of a module"):
        registry.name_of("rep", Local)


def test_a_part_that_holds_a_part_survives_json_and_trains(parts):
    run = config.Run("my-task", parts.Scaled(Dual(dim=8, hidden=(8,)), 3.0), GCIVL(hidden=(8,)))
    values = json.loads(json.dumps(config.to_dict(run)))
    assert values["rep"]["inner"]["name"] == "dual" and values["rep"]["name"] == "far_parts:Scaled"
    assert config.from_dict(values) == run
    other = config.Run("my-task", parts.Scaled(Dual(dim=16, hidden=(8,)), 3.0), GCIVL(hidden=(8,)))
    assert config.differences(run, other) == ["rep.inner.dim: 8 -> 16"]
    values["rep"]["inner"]["dmi"] = 3
    with pytest.raises(UserError, match="rep.inner.dmi is not an option of Dual"):
        config.from_dict(values)
    agent = Agent(run.rep, run.algo, SPEC)
    state, info = agent.update(agent.init(random.key(0)), small.data(), random.key(1))
    assert all(np.isfinite(x).all() for x in jax.tree.leaves((state.params, info)))


# Parts that break their word ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Peeking", "Peeking.encode reads the state; declare looks_at_state = True"),
        ("Wider", r"Wider.encode gives z of shape \(8,\) for a goal, but by its z_shape it is \(9,\)"),
        ("Bare", r"Bare.encode gives an array; expected Encoded\(z\)"),
    ],
)
def test_a_representation_keeps_its_word(name, words, parts):
    agent = Agent(getattr(parts, name)(), GCBC(hidden=(8,)), SPEC)
    with pytest.raises(UserError, match=words):
        agent.update(agent.init(random.key(0)), small.data(), random.key(1))


def test_what_depends_on_the_state_is_followed_through_a_program(parts):
    """Neither a state that is only looked at for its size, or printed, nor one inside a compiled function deceives the
    check."""

    @dataclass(frozen=True)
    class Sized(parts.Peeking):
        def encode(self, nets, g, s, key):
            return Encoded(nets.phi(g) * s.shape[0])

    @dataclass(frozen=True)
    class Hidden(parts.Peeking):
        def encode(self, nets, g, s, key):
            return Encoded(jax.jit(lambda g, s: nets.phi(g) + jnp.mean(s))(g, s))

    @dataclass(frozen=True)
    class Half(parts.Peeking):
        """A compiled function also gives something of the state, which z does not use."""

        def encode(self, nets, g, s, key):
            return Encoded(jax.jit(lambda g, s: (s + 1, nets.phi(g)))(g, s)[1])

    @dataclass(frozen=True)
    class Printed(parts.Peeking):
        """The state is shown, also inside a compiled function, and not used."""

        def encode(self, nets, g, s, key):
            def shown(g, s):
                jax.debug.print("{}", s)
                return nets.phi(g)

            return Encoded(shown(g, s) + jax.jit(shown)(g, s))

    for rep in (Sized(), Half(), Printed()):
        Agent(rep, GCBC(hidden=(8,)), SPEC).init(random.key(0))
    with pytest.raises(UserError, match="Hidden.encode reads the state"):
        Agent(Hidden(), GCBC(hidden=(8,)), SPEC).init(random.key(0))


def test_goal_network_names_what_encode_reads(parts):
    two = Dual(dim=4, hidden=(8,))
    wrong = type("Wrong", (Dual,), {"goal_network": "psi"})(dim=4, hidden=(8,))
    for rep in (
        two,
        type("Right", (Dual,), {})(dim=4, hidden=(8,)),
        type("Silent", (type(wrong),), {"goal_network": None})(dim=4),
    ):
        Agent(rep, GCBC(hidden=(8,)), SPEC).init(random.key(0))
    with pytest.raises(
        UserError, match="Wrong.encode reads phi, but by its goal_network psi alone turns a goal into z"
    ):
        Agent(wrong, GCBC(hidden=(8,)), SPEC).init(random.key(0))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (
            lambda self, nets, s, g, spec: self.f(nets, s, g),
            r"Valued.value gives values of shape \(2, 2\); expected \(2,\)",
        ),
        (Representation.value, "Valued says that it learns a value, so it must define it"),
    ],
)
def test_a_declared_value_is_tried_before_training(value, words):
    valued = type("Valued", (Dual,), {"value": value})(dim=4, hidden=(8,))
    with pytest.raises((UserError, TypeError), match=words):
        policy.try_out(TrainingLoop(Agent(valued, GCBC(hidden=(8,)), SPEC), (0,)), small.data())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"losses": lambda *_: []}, "losses gives a list; expected a dictionary of losses by name"),
        (
            {"losses": lambda *_: {"a": jnp.zeros(())}},
            r"losses\['a'\] gives an array; expected a loss and a dictionary",
        ),
        ({"losses": lambda *_: {"a": (jnp.zeros(4), {})}}, r"\['a'\]: the loss has shape \(4,\); expected a single"),
        ({"losses": lambda *_: {"a": (jnp.zeros(()), {"v": jnp.zeros(2)})}}, r"\['a'\]: v has shape \(2,\)"),
        ({"act": lambda self, nets, s, *_: s[:, :1]}, r"act gives actions of shape \(2, 1\); expected \(2, 2\)"),
        ({"roles": {"a": Role(ACTOR_GOALS, "critic")}}, "unknown kind of loss in role 'a' of Broken 'critic'"),
    ],
)
def test_an_algorithm_keeps_its_word(changes, words):
    broken = type("Broken", (GCBC,), changes)(hidden=(8,))
    with pytest.raises(UserError, match=words):
        agent = Agent(Dual(dim=4, hidden=(8,)), broken, SPEC)
        policy.try_out(TrainingLoop(agent, (0,)), small.data())


@pytest.mark.parametrize(
    ("rep", "raised"),
    [
        ("Faulty", "AttributeError"),
        ("Unborn", "FileNotFoundError"),
        ("Shapeless", "ZeroDivisionError"),
        ("Lossy", "NotImplementedError"),
    ],
)
def test_what_an_outside_part_raises_is_one_line_and_leaves_no_run_behind(rep, raised, tmp_path, capsys):
    folder, out = tiny.make_data(tmp_path / "data"), tmp_path / "runs" / "run"

    def train(name, *more):
        words = ["train", tiny.TASK, "--rep", f"far_parts:{name}", "--algo", "gcbc", "--algo.hidden", "8"]
        words += ["--steps", "2", "--batch-size", "8", "--episodes", "0", "--data", str(folder), "--out", str(out)]
        return main([*words, *more])

    for more in ([], ["--dry-run"]):
        assert train(rep, *more) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert f"{rep} raised {raised}" in line and "(far_parts.py, line " in line and "DUALGOAL_DEBUG=1" in line
    assert not out.parent.exists()
    if rep == "Faulty":  # what was there before stays, and the folder is free for another run
        out.mkdir(parents=True)
        (out / "notes.txt").write_text("mine")
        assert train(rep) == 2 and [file.name for file in out.iterdir()] == ["notes.txt"]
        assert train("Seen") == 0


# Exports --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rep, algo, kinds",
    [
        ("dual", "Squashed", ("mlp", "other")),
        ("dual", "Judged", ("mlp", "other")),
        ("dual", "Pieces", ("mlp", "other")),
        ("dual", "Brisk", ("mlp", "other")),
        ("dual", "Streaming", ("mlp", "other")),
        ("Doubled", "gcbc", ("other", "gaussian")),
        ("Short", "gcfbc", ("other", "flow")),
        ("Unlearned", "gcbc", ("other", "gaussian")),
        ("Scaled", "Planner", ("other", "other")),
    ],
)
def test_an_export_says_nothing_that_its_parts_do_not_do(rep, algo, kinds, tmp_path, capsys):
    folder, outside = tiny.make_data(tmp_path / "data", episodes=3), lambda name: f"far_parts:{name}"
    names = [outside(name) if name[0].isupper() else name for name in (rep, algo)]
    sizes = {"rep.inner.hidden": [8], "rep.inner.dim": 4} if rep == "Scaled" else {"rep.hidden": [8], "rep.dim": 4}
    options = {"steps": 2, "episodes": 0, "seeds": (0,), "algo.hidden": [8], **({} if rep == "Unlearned" else sizes)}
    run, file = tmp_path / "run", tmp_path / "p.safetensors"
    tiny.untrained_run(run, folder, settings.preset(tiny.TASK, *names, **options))
    assert main(["export", str(run), "--out", str(file)]) == 0, capsys.readouterr().err
    about = json.loads(file.with_suffix(".json").read_text())
    assert (about["goal"]["kind"], about["policy"]["kind"]) == kinds
    original, loaded = dualgoal.load(run), dualgoal.load(file)
    rows = np.random.default_rng(0).normal(size=(2, 5, 2)) * 9
    np.testing.assert_array_equal(loaded.act(*rows, draw=1), original.act(*rows, draw=1))
    np.testing.assert_array_equal(loaded.encode(rows[1], draw=1), original.encode(rows[1], draw=1))


# From the command line ------------------------------------------------------------------------------------------------


def test_outside_parts_train_resume_are_evaluated_export_and_report(tmp_path, capsys, monkeypatch):
    """The whole way by the command line, evaluation in a worker process, which has to find the module itself."""
    folder, run = tiny.make_data(tmp_path / "data"), tmp_path / "run"
    monkeypatch.setenv("DUALGOAL_CACHE", str(tmp_path / "cache"))
    train = ["train", tiny.TASK, "--rep", "far_parts:Seen", "--algo", "gcivl", "--algo.hidden", "8", "--rep.dim", "4"]
    train += ["--steps", "20", "--eval-every", "20", "--save-every", "10", "--log-every", "10", "--batch-size", "8"]
    train += ["--episodes", "1", "--workers", "1", "--data", str(folder), "--out", str(run)]

    def call(*words):
        assert main(list(words)) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    call(*train)
    values = json.loads((run / "config.json").read_text())["run"]["rep"]
    assert (values["name"], values["dim"]) == ("far_parts:Seen", 4)
    assert len((run / "eval.jsonl").read_text().splitlines()) == 5
    before = {p.name: p.read_bytes() for p in (run / "checkpoints").glob("*.safetensors")}
    monkeypatch.setattr("dualgoal.runs.evaluation.Pool", tiny.here)  # one worker has found the module
    (run / "checkpoints" / "step-000000020.json").unlink()
    assert "resuming from step 10" in call(*train)
    assert {p.name: p.read_bytes() for p in (run / "checkpoints").glob("*.safetensors")} == before
    policy = dualgoal.load(run)
    with pytest.raises(UserError, match="Seen looks at the state"):
        policy.encode(np.zeros(2))
    assert policy.encode(np.zeros(2), np.ones(2)).shape == (4,)
    assert policy.act(np.zeros(2), np.ones(2)).shape == (2,)
    call("eval", str(run), "--episodes", "1", "--workers", "1", "--json")
    call("export", str(run), "--out", str(tmp_path / "x.safetensors"))
    assert json.loads((tmp_path / "x.json").read_text())["rep"]["name"] == "far_parts:Seen"
    call("report", str(run), "--out", str(tmp_path / "x.html"))
    assert "far_parts:Seen" in (tmp_path / "x.html").read_text()

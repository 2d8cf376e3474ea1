"""One agent of ours and one Flax agent with the same weights, on the same batches, in float64."""

import contextlib
import functools
import importlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import parity_weights
from jax import random
from parity_hiql import OnRawGoals

from dualgoal import algos, reps
from dualgoal.agent import Agent
from dualgoal.errors import UserError
from dualgoal.interface import Batch, Frames, Goals, Spec
from dualgoal.streams import Window

STEPS = 5
ROWS = 16  # in a batch
HIDDEN = (24, 16, 12)  # of every network; different sizes, so that exchanged layers cannot fit
LATENT = 16  # of embeddings; a multiple of what every form of f needs
SHAPES = {"state": (5,), "pixels": (8, 8, 3)}
ACTIONS = 3
QUANTITIES = ("losses", "gradients", "parameters", "targets", "actions")

# Our loss terms, and the names under which the other agents log theirs. A term that they do not log is compared only
# as a part of the total.
TERMS = {
    "value/loss": ("value/value_loss", "critic/contrastive_loss"),
    "critic/loss": ("critic/critic_loss",),
    "actor/loss": ("actor/actor_loss",),
    "low/loss": ("low_actor/actor_loss",),
    "high/loss": ("high_actor/actor_loss",),
    "rep/value_loss": ("rep/value_loss",),
    "rep/critic_loss": ("rep/critic_loss",),
    "rep/forward": ("byol/forward_loss",),
    "rep/backward": ("byol/backward_loss",),
    "rep/loss": ("rep/vip_loss", "contrastive/contrastive_loss"),
    "penalty/loss": ("value/kl_loss",),
}


@dataclass(frozen=True)
class Case:
    """A pair of agents: what ours is made of, and what theirs is called. `theirs_options` are set in its config.

    A `control` is a pair that differs, in the way that it says; the comparison must notice.
    """

    name: str  # in their dictionary of agents
    algo: str
    rep: str = "orig"
    kind: str = "state"
    discrete: bool = False
    algo_options: dict[str, Any] = field(default_factory=dict)
    rep_options: dict[str, Any] = field(default_factory=dict)
    spec_options: dict[str, Any] = field(default_factory=dict)
    theirs_options: dict[str, Any] = field(default_factory=dict)
    control: str = ""

    def title(self) -> str:
        if self.control:
            return f"control: {self.control}"
        options = {**self.rep_options, **self.algo_options}
        words = [f"{self.rep} + {self.algo}", *(f"{k}={v}" for k, v in options.items())]
        return ", ".join([*words, *(["discrete"] if self.discrete else []), *(["pixels"] if self.pixels else [])])

    @property
    def pixels(self) -> bool:
        return self.kind == "pixels"

    def agent(self) -> Agent:
        sizes = {"hidden": HIDDEN, **({"latent": LATENT} if self.algo == "crl" else {})}
        make = OnRawGoals if self.algo == "hiql" else algos.ALGOS[self.algo]
        algo = make(**sizes, **self.algo_options)
        sizes = {} if self.rep == "orig" else {"hidden": HIDDEN, "dim": LATENT}
        rep = reps.REPS[self.rep](**sizes, **self.rep_options)
        options = {"discount": 0.97, "batch_size": ROWS, **self.spec_options}
        return Agent(rep, algo, Spec(SHAPES[self.kind], ACTIONS, self.discrete, **options))


def ogbench_cases() -> list[Case]:
    """Every algorithm of ours that OGBench has, with the goal itself as its representation; HIQL with its own."""
    awr = {"algo_options": {"actor": "awr"}, "theirs_options": {"actor_loss": "awr"}}
    cases = [Case(name, name) for name in ("gcivl", "gciql", "crl", "gcbc")]
    cases += [Case("gciql", "gciql", **awr)]
    cases += [Case(name, name, discrete=True) for name in ("gcivl", "gcbc")]
    cases += [Case("gciql", "gciql", discrete=True, **awr)]
    cases += [Case(name, name, kind="pixels") for name in ("gcivl", "gciql", "crl", "gcbc")]
    cases += [Case("hiql", "hiql", "hiql_phi", discrete=discrete) for discrete in (False, True)]
    cases += [Case("gcivl", "gcivl", theirs_options={"expectile": 0.89}, control="gcivl, expectile 0.9 against 0.89")]
    late = {"spec_options": {"ema_before_update": False}, "control": "gcivl, targets follow one step earlier"}
    return [*cases, Case("gcivl", "gcivl", **late)]


def release_cases() -> list[Case]:
    """Every pair of the paper's released agents."""
    cases = [Case(name, name) for name in ("gcivl", "crl", "gcfbc")] + [Case("gcivl", "gcivl", kind="pixels")]
    for rep in ("dual", "vib", "vip"):
        cases += [Case(f"{algo}_{rep}", algo, rep) for algo in ("gcivl", "crl", "gcfbc")]
    for rep in ("tra", "byol"):
        cases += [Case(f"{algo}_{rep}", algo, rep) for algo in ("gcivl", "crl")]
        for flows in (True, False):
            options = {"rep_options": {"flow_gradient": flows}, "theirs_options": {"actor_goalrep_grad": flows}}
            cases.append(Case(f"gcfbc_{rep}", "gcfbc", rep, **options))
    forms = {"symmetric": "hilbert", "asymmetric": "asymmetric", "mrn": "mrn", "iqe": "iqe"}
    for ours, theirs in forms.items():
        options = {"rep_options": {"aggregation": ours}, "theirs_options": {"rep_type": theirs}}
        cases.append(Case("gcivl_dual", "gcivl", "dual", **options))
    bilinear = {"theirs_options": {"rep_type": "bilinear"}}
    for rep in ("dual", "vib", "vip", "tra", "byol"):
        cases.append(Case(f"gcivl_{rep}_vis", "gcivl", rep, kind="pixels", **(bilinear if rep == "dual" else {})))
    return cases


# The same weights -----------------------------------------------------------------------------------------------------


def config_for(case: Case, agent: Agent, config: Any) -> Any:
    """Their configuration with our options; names that an agent's configuration lacks are left out."""
    algo, rep = agent.algo, agent.rep
    ours = {
        **dict.fromkeys(("value_hidden_dims", "actor_hidden_dims", "rep_hidden_dims", "vib_hidden_dims"), HIDDEN),
        **dict.fromkeys(("latent_dim", "goalrep_dim", "rep_dim"), LATENT),
        **({"low_alpha": algo.alpha_low, "high_alpha": algo.alpha_high} if case.algo == "hiql" else {}),
        **{"discount": agent.spec.discount, "tau": agent.spec.tau, "lr": agent.spec.lr, "discrete": case.discrete},
        **{name: getattr(algo, name) for name in ("expectile", "alpha") if hasattr(algo, name)},
        **({"rep_expectile": rep.expectile} if hasattr(rep, "expectile") else {}),
        **({"beta": rep.beta} if hasattr(rep, "beta") else {}),
        **({"encoder": "impala_small"} if case.pixels else {}),
    }
    for name, setting in ours.items():
        if name in config:
            config[name] = setting
    for name, setting in case.theirs_options.items():  # these must be there, or something else would be compared
        if name not in config:
            raise UserError(f"agent '{case.name}' has no option '{name}'; this checkout is of another version")
        config[name] = setting
    return config


def noisy(tree: Any, rng: np.random.Generator) -> Any:
    """Float64 parameters away from the regular values that they start with: biases of zero, copies that are equal."""
    return jax.tree.map(lambda x: jnp.asarray(np.asarray(x, np.float64) + 0.1 * rng.normal(size=x.shape)), tree)


def their_agent(case: Case, agent: Agent, state: Any, batch: dict[str, Any]) -> Any:
    """Their agent with our weights, and an optimiser that has not moved yet."""
    known = importlib.import_module("agents").agents
    if case.name not in known:
        raise UserError(f"the checkout has no agent '{case.name}'; it has {', '.join(known)}")
    config = config_for(case, agent, importlib.import_module(known[case.name].__module__).get_config())
    actions = np.array([ACTIONS - 1]) if case.discrete else batch["actions"][:1]
    theirs = known[case.name].create(0, batch["observations"][:1], actions, config)
    params = parity_weights.modules(agent, state.params) | parity_weights.target_modules(agent, state.targets)
    expected, found = (jax.tree.map(jnp.shape, tree) for tree in (dict(theirs.network.params), params))
    if expected != found:
        names = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
        raise UserError(f"agent '{case.name}' has other networks than ours: {', '.join(names)} differ")
    network = theirs.network.replace(params=params, opt_state=theirs.network.tx.init(params))
    return theirs.replace(network=network)


# The same batch -------------------------------------------------------------------------------------------------------


def make_batch(case: Case, agent: Agent, rng: np.random.Generator) -> tuple[Batch, dict[str, Any]]:
    """A batch as we and as they hold it. A fifth of the goals are reached."""
    shape = (ROWS, *agent.spec.observation_shape)
    look = (lambda: rng.integers(0, 256, shape, np.uint8)) if case.pixels else (lambda: rng.normal(size=shape))

    def draw(stream: Any) -> Goals | Frames:
        if isinstance(stream, Window):
            return Frames(look(), look(), look(), look())
        return Goals(look(), (rng.uniform(size=ROWS) < 0.2).astype(np.float64))

    draws = {name: draw(agent.streams[name]) for name in dict.fromkeys(agent.draw_of.values())}
    numbers = rng.integers(0, ACTIONS, ROWS)
    actions = np.eye(ACTIONS)[numbers] if case.discrete else rng.uniform(-1, 1, (ROWS, ACTIONS))
    ours = Batch(look(), actions, look(), draws)
    theirs = {
        "observations": ours.s,
        "actions": numbers if case.discrete else actions,
        "next_observations": ours.next_s,
    }
    by_role = {role: draws[name] for role, name in agent.draw_of.items()}
    if isinstance(by_role.get("rep"), Frames):
        names = ("rep_init_obs", "rep_k_obs", "rep_k+1_obs", "rep_final_obs")
        theirs |= dict(zip(names, by_role.pop("rep"), strict=True))
    names = {"low": "low_actor_goals", "high": "high_actor_goals", "waypoint": "high_actor_targets"}  # of HIQL
    for role, goals in by_role.items():
        theirs[names.get(role, f"{role}_goals")] = goals.g
    judged = by_role.get("value", by_role.get("rep"))  # without a value loss, a representation's goals have this name
    if judged is not None:
        theirs |= {"value_goals": judged.g, "rewards": judged.success - 1, "masks": 1 - judged.success}
    if "rep" in by_role:
        theirs |= {"rep_rewards": by_role["rep"].success - 1, "rep_masks": 1 - by_role["rep"].success}
    exact = lambda tree: jax.tree.map(jnp.asarray, tree)
    return exact(ours), exact(theirs)


@contextlib.contextmanager
def fixed_noise(rng: np.random.Generator) -> Iterator[None]:
    """Every normal or uniform draw of one shape is the same array, whoever asks for it and with whatever key.

    The two sides split their keys differently, so losses that draw (VIB, flows) could not be compared otherwise.
    """
    tables: dict[tuple[Any, ...], np.ndarray] = {}
    originals = {name: getattr(random, name) for name in ("normal", "uniform")}

    def fixed(name: str, key: Any, shape: Any = (), dtype: Any = None, *bounds: Any, **others: Any) -> Any:
        if len(shape) < 2 or bounds or others:
            return originals[name](key, shape, dtype or jnp.float64, *bounds, **others)
        return jnp.asarray(tables.setdefault((name, *shape[-2:]), getattr(rng, name)(size=shape[-2:]))).reshape(shape)

    for name in originals:
        setattr(random, name, functools.partial(fixed, name))
    try:
        yield
    finally:
        for name, function in originals.items():
            setattr(random, name, function)


class Wide:
    """jax.numpy for their image encoder, which would round images to float32 even in a float64 program."""

    float32 = jnp.float64

    def __getattr__(self, name: str) -> Any:
        return getattr(jnp, name)


# The comparison -------------------------------------------------------------------------------------------------------


def difference(ours: Any, theirs: Any) -> float:
    """The largest difference between two arrays or trees of the same structure, relative to the largest number."""
    pairs = list(zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True))
    scale = max(float(jnp.abs(y).max()) for _, y in pairs)
    gap = max(float(jnp.abs(x - y).max()) for x, y in pairs)
    if not np.isfinite(gap) or not np.isfinite(scale):
        return float("nan")
    return gap / scale if scale else gap


def by_module(ours: dict[str, Any], theirs: dict[str, Any]) -> float | None:
    """The largest relative difference of any network; None if there is no network to compare."""
    gaps = [difference(tree, theirs[name]) for name, tree in ours.items()]
    return None if not gaps else float(np.max(gaps))


def compare(case: Case, seed: int = 0) -> dict[str, float | None]:
    """The largest relative difference of every quantity, None where a pair does not have it."""
    rng = np.random.default_rng(seed)
    agent = case.agent()
    state = agent.init(random.key(seed))
    state = state._replace(params=noisy(state.params, rng), targets=noisy(state.targets, rng))
    state = state._replace(
        opt_state=jax.tree.map(
            lambda x: x.astype(jnp.float64) if jnp.issubdtype(x.dtype, jnp.floating) else x, state.opt_state
        )
    )
    batches = [make_batch(case, agent, rng) for _ in range(STEPS)]
    with fixed_noise(rng):
        theirs = their_agent(case, agent, state, batches[0][1])
        losses, gradients = compare_losses(agent, state, theirs, *batches[0])
        actions = compare_actions(case, agent, state, theirs, batches[0][0])
        step = jax.jit(agent.update_on)
        for ours_batch, their_batch in batches:
            state, _ = step(state, ours_batch, random.key(seed))
            theirs, _ = theirs.update(their_batch)
    after = theirs.network.params
    params = by_module(parity_weights.modules(agent, state.params), after)
    targets = by_module(parity_weights.target_modules(agent, state.targets), after)
    return dict(zip(QUANTITIES, (losses, gradients, params, targets, actions), strict=True))


def compare_losses(
    agent: Agent, state: Any, theirs: Any, ours_batch: Batch, their_batch: dict[str, Any]
) -> tuple[float, float]:
    """The total and every logged term; and the gradient of the total with respect to every parameter."""
    ours = lambda params: agent.losses(params, state.targets, ours_batch, random.key(0))
    (total, info), gradient = jax.jit(jax.value_and_grad(ours, has_aux=True))(state.params)
    other = lambda params: theirs.total_loss(their_batch, params, rng=random.key(0))
    (their_total, their_info), their_gradient = jax.value_and_grad(other, has_aux=True)(theirs.network.params)
    if total.dtype != jnp.float64 or their_total.dtype != jnp.float64:
        raise AssertionError(f"not in float64: our loss is {total.dtype}, theirs {their_total.dtype}")
    gaps = [difference(total, their_total)]
    for name, others in TERMS.items():
        gaps += [difference(info[name], their_info[other]) for other in others if name in info and other in their_info]
    slow = [name for name in their_gradient if parity_weights.SLOW in name]
    if any(jnp.abs(leaf).max() > 0 for leaf in jax.tree.leaves([their_gradient[name] for name in slow])):
        raise AssertionError("their target networks receive gradients")
    return float(np.max(gaps)), by_module(parity_weights.modules(agent, gradient), their_gradient) or 0.0


def compare_actions(case: Case, agent: Agent, state: Any, theirs: Any, batch: Batch) -> float:
    """What both do at temperature 0; actions that are numbers must be equal."""
    goals = batch.draws[agent.draw_of["high" if case.algo == "hiql" else "actor"]].g
    if isinstance(agent.algo, OnRawGoals):
        ours = agent.algo.act_towards(state.params.algo, batch.s, goals, random.key(0), agent.algo_spec)
    else:
        ours = jax.jit(agent.act)(state.params, batch.s, goals, random.key(0))
    others = theirs.sample_actions(batch.s, goals, seed=random.key(0), temperature=0.0)
    return float((ours != others).any()) if case.discrete else difference(ours, others)


def run(cases: list[Case], seed: int = 0) -> Iterator[tuple[Case, dict[str, float | None]]]:
    """Compare one case after the other; their modules must be importable."""
    encoders = importlib.import_module("utils.encoders")
    encoders.jnp = Wide()
    for case in cases:
        yield case, compare(case, seed)

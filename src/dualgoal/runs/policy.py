"""What a user loads from a run: a goal-conditioned policy that acts, encodes goals and measures distances.

NumPy in, NumPy out, one row or many, no environment needed. Loading executes nothing from the run directory: the
configuration is JSON, the arrays are checked against the shapes it implies before they are read.
"""

import dataclasses
import functools
import hashlib
import math
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
import safetensors
from jax import Array, random

from dualgoal import files, imports, jsons, machine, trials
from dualgoal.agent import Agent
from dualgoal.compatibility import is_ours, pair_of_rows
from dualgoal.data.goals import join
from dualgoal.data.standard import Standard
from dualgoal.envs.own import channels_last
from dualgoal.envs.task_env import TaskEnv
from dualgoal.errors import UserError, check_range, number_of
from dualgoal.interface import Spec
from dualgoal.loop import TrainingLoop
from dualgoal.options import whole
from dualgoal.runs import checkpoint, config, directory, environment, episodes, export_arrays, precomputed, trees
from dualgoal.runs.episodes import Episode
from dualgoal.runs.facts import RunFacts, Sizes
from dualgoal.streams import Transitions

EXPORTED = "dualgoal-policy-1"  # the format of exported files
MOST_BYTES = 1 << 34  # of such a file


def agent_for(run: config.Run, sizes: Sizes) -> Agent:
    """The agent of a run on data of these sizes."""
    spec = Spec(
        observation_shape=sizes.observation_shape,
        action_dim=sizes.action_dim,
        discrete=sizes.discrete,
        discount=run.discount,
        batch_size=run.batch_size,
        lr=run.lr,
        tau=run.tau,
        ema_before_update=run.ema_before_update,
        augment=run.augment,
        reached_by=run.reached_by,
        precision=machine.arithmetic(run.precision),
        goal_shape=sizes.goal_shape,
        goals_as_states=not sizes.goal_shape,
    )
    return Agent(run.rep, run.algo, spec, frozen=run.frozen_rep is not None)


def load(path: str | Path, seed: int | None = None, step: int | None = None, verify: bool = True) -> "Policy":
    """The policy of one seed of a run directory, at `step` (default: the newest checkpoint that is intact), or the one
    in a file that `dualgoal export` made (*.safetensors).

    >>> policy = dualgoal.load("runs/small", seed=0)
    >>> policy.step
    20
    """
    path, seed, step = Path(path), whole("seed", seed), whole("step", step)
    if path.suffix == ".safetensors":
        return _load_export(path, seed, step)
    run, facts = directory.read(path)
    (seed,) = directory.choose_seeds(path, run, None if seed is None else (seed,))[:1]
    step = directory.choose_step(path, step) if verify or step is None else step
    agent = agent_for(run, facts.sizes)
    params = read_params(directory.checkpoint_path(path, step), agent, run.seeds.index(seed), len(run.seeds))
    return Policy(agent, params, run, facts, seed=seed, step=step)


def _load_export(file: Path, seed: int | None, step: int | None) -> "Policy":
    """The policy in an exported file, which its JSON file must describe, every bit of it."""
    about = file.with_suffix(".json")
    try:
        known = jsons.read(about, follow=True)
        content = files.read_bytes(file, MOST_BYTES, follow=True)
    except FileNotFoundError as problem:
        both = "an export is a safetensors file and a JSON file"
        raise UserError(f"{problem.filename}: no such file; {both}") from problem
    if not isinstance(known, dict) or known.get("format") != EXPORTED or not {"run", "facts"} <= set(known):
        raise UserError(f"{about}: does not describe an export that can be loaded; export the run again")
    named = {name: jsons.typed(known.get(name), int, f"{about}: {name}") for name in ("seed", "step")}
    if hashlib.sha256(content).hexdigest() != known.get("sha256"):
        raise UserError(f"{file}: is not the file that {about.name} describes; export the run again")
    for name, asked in (("seed", seed), ("step", step)):
        if asked not in (None, named[name]):
            raise UserError(f"{file}: holds {name} {named[name]}, not {asked}; load the run directory for others")
    run, facts = config.from_dict(known["run"], f"{about}: run"), RunFacts.from_json(known["facts"], f"{about}: facts")
    agent = agent_for(run, facts.sizes)
    arrays = checkpoint.arrays_in(content, file)
    other = frozenset(part for part in ("goal", "policy") if known.get(part) == {"kind": "other"})
    params = export_arrays.unflatten(run.rep, run.algo, _template(agent).params, arrays, str(file), other)
    return Policy(agent, params, run, facts, **named, only_acts=True)


Owner = Literal["rep", "algo"]  # of a value


@functools.lru_cache(maxsize=8)
def _template(agent: Agent) -> Any:
    return jax.eval_shape(agent.init, random.key(0))


def in_float32(loaded: "Policy") -> tuple[Agent, Any]:
    """The agent and its parameters with products in full precision, whatever it was trained with."""
    agent = dataclasses.replace(loaded.agent, spec=dataclasses.replace(loaded.agent.spec, precision="float32"))
    structure = jax.tree.structure(_template(agent).params, is_leaf=lambda x: x is None)
    return agent, jax.tree.unflatten(structure, jax.tree.leaves(loaded.params, is_leaf=lambda x: x is None))


def own_parts(run: config.Run) -> AbstractContextManager[None]:
    """Around the first use of networks and losses: what those of another package raise becomes one line."""
    theirs = [part for part in (run.rep, run.algo) if not is_ours(part)]
    return imports.calling(" + ".join(type(part).__name__ for part in theirs)) if theirs else nullcontext()


def try_out(loop: TrainingLoop, data: Transitions) -> None:
    """Let parts of another package learn and act on shapes, so that what is wrong with them is found before a run
    begins, and not by its first step or its first evaluation."""
    agent = loop.agent
    if is_ours(agent.rep) and is_ours(agent.algo):
        return
    if not is_ours(agent.rep):
        made = agent.rep, agent.rep.init(random.key(0), agent.rep_spec), agent.rep_spec
        trials.check_rows_alone(*made)
        if agent.algo.needs_factors:
            trials.check_factors(*made)
    loop.trace(data)
    ask = lambda method: jax.eval_shape(method, _template(agent).params, *pair_of_rows(agent.spec), random.key(0))
    if not is_ours(agent.algo):
        ask(agent.act)
    if agent.has_rep_value or agent.algo.learns_value:
        ask(agent.value)


def read_params(file: Path, agent: Agent, index: int, seeds: int) -> Any:
    """The parameters of one seed, read without its optimiser state and without the other seeds."""
    template = _template(agent)
    expected = {n: s._replace(shape=(seeds, *s.shape)) for n, s in trees.shapes(template).items()}
    checkpoint.fits(file, expected)
    wanted = [n for n in trees.named(template) if n.startswith("params/")]
    with safetensors.safe_open(str(file), framework="numpy") as arrays:
        found = {name.removeprefix("params/"): np.array(arrays.get_slice(name)[index]) for name in wanted}
    return trees.fill(template.params, found)


class Policy:
    """A trained agent of one seed: NumPy in, NumPy out, one row or many.

    >>> policy = dualgoal.load("runs/small")
    >>> policy.act([1.0, 2.0], [5.0, 6.0]).shape, policy.encode([[5.0, 6.0], [7.0, 8.0]]).shape
    ((2,), (2, 4))
    >>> float(policy.distance([1.0, 2.0], [5.0, 6.0])) >= 0
    True
    """

    def __init__(
        self,
        agent: Agent,
        params: Any,
        run: config.Run,
        facts: RunFacts,
        seed: int = 0,
        step: int = 0,
        only_acts: bool = False,  # without the networks that only values and distances need
    ):
        self.agent, self.run, self.facts, self.seed, self.step = agent, run, facts, seed, step
        self.only_acts = only_acts
        self.params = jax.tree.map(jax.numpy.asarray, params)
        self._draws = 0
        compiled = lambda function, **options: jax.jit(functools.partial(self._by_row, function), **options)
        self._act = compiled(agent.act, static_argnums=5)
        self._encode = compiled(lambda params, s, g, key: agent.encode(params, g, key, s))
        self._distance, self._value = (compiled(f, static_argnums=5) for f in (agent.distance, agent.value))
        self._stages = functools.cache(self._act_in_stages)

    def __repr__(self) -> str:
        sizes, run = self.facts.sizes, self.run
        actions = number_of(sizes.action_dim, "discrete action") if sizes.discrete else f"actions ({sizes.action_dim},)"
        return (
            f"Policy: {run.task}, {' + '.join(run.names)}, seed {self.seed}, step {self.step:,}; "
            f"observations {sizes.observation_shape}, goals {sizes.goal}, {actions}"
        )

    def switch_to(self, other: "Policy") -> None:
        """Become `other`, another seed or checkpoint of the same run, and keep what has been compiled."""
        if other.agent != self.agent:
            raise ValueError("a policy can only switch to one of the same run")
        self.params, self.seed, self.step = other.params, other.seed, other.step

    def act(self, obs: Any, goal: Any, temperature: float = 0.0, draw: int | None = None) -> np.ndarray:
        """Actions towards `goal`, one or one per observation, in the units of the recorded data. Random parts (VIB,
        flows) differ from call to call unless `draw` names one."""
        check_range("temperature", temperature, 0)
        out, units = self._answer(self._act, obs, goal, draw, float(temperature)), self.facts.dataset.action_range
        return out if units is None else units.in_units(out)

    def encode(self, goal: Any, obs: Any = None, draw: int | None = None) -> np.ndarray:
        """What the algorithm reads instead of the goal, as seen from `obs`; most representations need no `obs`."""
        if obs is None and self.run.rep.looks_at_state:
            raise UserError(f"{type(self.run.rep).__name__} looks at the state; give encode(goal, obs) the observation")
        if obs is None:  # anything of the right shape: it is not looked at
            obs = np.zeros(self.facts.sizes.observation_shape) if self.facts.sizes.goal_shape else goal
        return self._answer(self._encode, obs, goal, draw)

    def distance(self, obs: Any, goal: Any, of: Owner | None = None) -> np.ndarray:
        """Learned temporal distance from observations to goals, in environment steps, by the `value` of that part."""
        return self._measured(self._distance, obs, goal, of)

    def value(self, obs: Any, goal: Any, of: Owner | None = None) -> np.ndarray:
        """Learned value of observations under a reward of -1 in each step until the goal is reached: that of the
        representation ("rep") or of the algorithm ("algo"), by default the first of them that has one."""
        return self._measured(self._value, obs, goal, of)

    def _measured(self, function: Any, obs: Any, goal: Any, of: Owner | None) -> np.ndarray:
        if self.only_acts:
            raise UserError(
                "an exported policy acts and encodes goals; for values and distances load the run directory"
            )
        return self._answer(function, obs, goal, None, of)

    def rollout(self, env: Any = None, goal: Any = 1, seed: int = 0) -> Episode:
        """One episode to evaluation goal number `goal`, or to a goal that `act` takes (coordinates, or a dict), in the
        run's environment or in `env`: one that `make_env` gave, wrapped or not, or any Gymnasium environment with such
        observations."""
        ready = env is not None and isinstance(getattr(env, "unwrapped", None), TaskEnv)
        facts, number = self.facts, 1
        if isinstance(goal, int | np.integer):
            number = int(goal)
        else:
            if ready:
                raise UserError("environments of make_env have numbered goals; give rollout your own, or none")
            place, _ = self._as_rows("goal", goal, facts.sizes.goal)
            if len(place) != 1:
                raise UserError(f"rollout goes to a single goal, but was given {len(place)} rows; give one of them")
            facts = dataclasses.replace(facts, goal_list=(tuple(place[0].tolist()),))
        env = env if ready else environment.make(self.run, facts, env)
        units = facts.dataset.action_range
        return episodes.play([env], self.towards, number, first=seed, count=1, units=units)[0]

    def make_env(self, env: Any = None) -> TaskEnv:
        """The run's environment as a `gymnasium.Env`, or `env` as one with such observations, goals and tasks."""
        return environment.make(self.run, self.facts, env)

    def towards(self, goal: np.ndarray, ids: np.ndarray) -> episodes.Act:
        """How several episodes act in lockstep, each towards its goal: a function of their observations and the step.
        Actions are in [-1, 1] if they are continuous; what is random depends on an episode's id and its step only."""
        act, (of_obs, of_goal) = self._stages(len(ids)), self.facts.dataset.standards
        stored = act.first(self.params, self._read(goal, of_goal), ids)
        return lambda obs, step: np.asarray(act.second(stored, self._read(obs, of_obs), np.uint32(step)))

    def _act_in_stages(self, rows: int) -> precomputed.Stages:
        """Acting in so many rows, in two stages: what follows from parameters, goals and ids alone comes first."""
        act = lambda params, goal, ids, obs, step: self._by_row(self.agent.act, params, obs, goal, ids, step, 0.0)
        shaped, sizes = jax.ShapeDtypeStruct, self.facts.sizes
        obs, goal = (shaped((rows, *shape), self._kind) for shape in (sizes.observation_shape, sizes.goal))
        ids, step = shaped((rows,), np.uint32), shaped((), np.uint32)
        return precomputed.split(act, (self.params, goal, ids), (obs, step))

    def _by_row(
        self, function: Any, params: Any, obs: Array, goal: Array, ids: Array, draw: Array, *more: Any
    ) -> Array:
        """`function(params, s, g, key, ...)` of each row alone, with a key of its own."""
        one = lambda o, g, i: function(params, o[None], g[None], self.key(i, draw), *more)[0]
        return jax.vmap(one)(obs, goal, ids)

    def key(self, row: Array | int, draw: Array | int) -> Array:
        """The source of everything random in a row of a call."""
        return random.fold_in(random.fold_in(random.key(0), row), draw)

    def _answer(self, function: Any, obs: Any, goal: Any, draw: int | None, *more: Any) -> np.ndarray:
        """What `function` gives for every row, or for the only one; without `draw`, every call is another draw."""
        check_range("draw", draw, 0)
        obs, goal, one = self._rows(obs, goal)
        self._draws += 1
        number = np.uint32(self._draws if draw is None else draw)
        out = self._padded(function, obs, goal, np.arange(len(obs), dtype=np.uint32), number, *more)
        return out[0] if one else out

    def _rows(self, obs: Any, goal: Any) -> tuple[np.ndarray, np.ndarray, bool]:
        """Both as rows; a single goal serves all observations and the other way round."""
        obs, one_obs = self._as_rows("observation", obs, self.facts.sizes.observation_shape)
        goal, one_goal = self._as_rows("goal", goal, self.facts.sizes.goal)
        if len(obs) != len(goal) and 1 not in (len(obs), len(goal)):
            found = f"{number_of(len(obs), 'observation')} and {number_of(len(goal), 'goal')}"
            raise UserError(f"{found}; give as many of both, or one of either")
        rows = max(len(obs), len(goal)) if min(len(obs), len(goal)) else 0
        read = map(self._read, (obs, goal), self.facts.dataset.standards)
        obs, goal = (np.broadcast_to(v, (rows, *v.shape[1:])) for v in read)
        return obs, goal, one_obs and one_goal

    def _as_rows(self, name: str, value: Any, shape: tuple[int, ...]) -> tuple[np.ndarray, bool]:
        """As rows of this shape, and whether it was a single one."""
        try:
            value = np.asarray(self._joined(name, value, math.prod(shape)) if isinstance(value, Mapping) else value)
        except UserError:
            raise
        except ValueError as problem:  # rows of different lengths
            raise UserError(f"{name} is no array ({problem})") from problem
        if value.dtype.kind not in "biuf":
            raise UserError(f"{name} is of type {value.dtype}; this policy takes numbers")
        value = channels_last(value, shape)
        if value.shape != shape and value.shape[1:] != shape:
            many = ", ".join(map(str, ("rows", *shape)))
            raise UserError(f"{name} has shape {value.shape}; this policy takes {shape} or ({many})")
        self._require_numbers(name, value)
        return (value[None], True) if value.shape == shape else (value, False)

    def _require_numbers(self, name: str, value: np.ndarray) -> None:
        """Raise if networks would read something else than was meant, and answer with numbers all the same."""
        if self.facts.sizes.pixels and value.dtype != np.uint8:
            if not ((value >= 0) & (value <= 255) & (value == np.rint(value))).all():
                raise UserError(f"{name} is {value.dtype}; this policy takes images of whole numbers from 0 to 255")
        elif not np.isfinite(value).all():
            raise UserError(f"{name} has nan or infinity in it; this policy takes finite numbers")

    def _joined(self, name: str, parts: Mapping[str, Any], size: int) -> np.ndarray:
        """A dict observation or goal, or rows of them, as one vector each of this size: joined as the data were."""
        space = self.facts.dataset.goal_space if name == "goal" else None
        if space is not None and not space.keys:  # a goal is made of an observation, so that is what the parts make
            rows, one = self._as_rows("observation", parts, self.facts.sizes.observation_shape)
            made = space.of(self.run.task, rows)
            if made is not None:
                return made[0] if one else made
        keys = (space.keys if space else ()) or self.facts.dataset.observation_keys or ("observation",)
        found = {key: np.asarray(parts[key]) for key in keys if key in parts}
        sizes, axes = [part.size for part in found.values()], [part.ndim for part in found.values()]
        if len(keys) == 1 or sum(sizes) != size or max(axes) > 1:
            return join(self.run.task, f"{name}s", parts, keys)
        (row,) = join(self.run.task, f"{name}s", {key: part[None] for key, part in found.items()}, keys)
        return row

    def _read(self, rows: np.ndarray, standard: Standard | None) -> np.ndarray:
        """Rows of observations or goals as the networks read them."""
        rows = rows.astype(self._kind, copy=False)
        return rows if standard is None else standard(rows)

    @property
    def _kind(self) -> type:
        return np.uint8 if self.facts.sizes.pixels else np.float32

    def _padded(self, function: Any, *args: Any) -> np.ndarray:
        """Call with the rows filled up to a power of two, so that few sizes are ever compiled."""
        rows = len(args[0])
        size = 1 << max(rows - 1, 0).bit_length()
        fill = lambda a: np.concatenate([a, np.zeros((size - rows, *a.shape[1:]), a.dtype)]) if np.ndim(a) else a
        return np.asarray(function(self.params, *map(fill, args)))[:rows]

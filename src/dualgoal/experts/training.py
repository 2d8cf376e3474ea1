"""Training a walking policy: simulation on the cores and updates on the device at the same time, resumable.

While the device learns from one round of simulation, a thread plays the next one with the policy as it was before. The
order of both is fixed, so the result does not depend on how long either takes, and a run that was stopped goes on
exactly: its checkpoint holds networks, optimiser, replay, simulations and the round that waits to be learned from. The
networks alone, a small file, can be the beginning of another run.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from dualgoal import jsons, machine, progress
from dualgoal.collect.experts import ACTOR, SKILLS, NumpyMLP, gelu, has, load, require_shipped, turned
from dualgoal.errors import UserError, check_range, require_known
from dualgoal.experts.bodies import BODIES
from dualgoal.experts.recipe import FOR_SOME, Recipe, changed
from dualgoal.experts.rounds import Round, Simulator, Tally
from dualgoal.experts.sac import SAC, SquashedGaussian
from dualgoal.files import cache_folder, locked, make_folder, os_errors_in_one_line, sha256
from dualgoal.loop import compile_loop
from dualgoal.runs import checkpoint, directory, trees
from dualgoal.runs.checkpoint import Arrays, Damaged
from dualgoal.runs.interruption import Interruption

Say = Callable[[str], None]
CONFIG, METRICS, NETWORKS = "config.json", "metrics.jsonl", "networks.safetensors"
GIVEN_STD = 0.45  # before tanh, of a policy whose file has none: about the entropy that training aims for


@os_errors_in_one_line
def train(
    recipe: Recipe,
    out: str | Path,
    *,
    threads: int | None = None,
    log_every: int = 10_000,
    save_every: int | None = None,
    quiet: bool = False,
    start: str | Path | None = None,
) -> Path:
    """Train by `recipe` into the folder `out`, or go on there, and return the file of the policy.

    `log_every` and `save_every` (default: a tenth of all) count control steps. `start` is the folder of an earlier
    training of the same body, its file networks.safetensors, or a policy alone (a file, or the name of a body whose
    policy comes with the package): a new run then begins with it, and its first `random_steps` are played by that
    policy. Critics that a policy alone lacks are new; they learn first, for `actor_waits` gradient steps.
    """
    require_known("body", recipe.body, BODIES)
    fitting = BODIES[recipe.body].settings()
    if unfit := [name for name in FOR_SOME if getattr(recipe, name) and name not in fitting]:
        raise UserError(f"{unfit[0]} is for the humanoid; leave it out for {recipe.body}")
    for name, value in (("threads", threads), ("log_every", log_every), ("save_every", save_every)):
        check_range(name, value, 1)
    networks = None if start is None else _networks(Path(start).expanduser())
    if networks is not None:
        recipe = dataclasses.replace(recipe, begins_with=sha256(networks))
    machine.ask_determinism()
    machine.keep_compiled(cache_folder() / "compiled")
    folder = make_folder(Path(out).expanduser())
    make_folder(folder / directory.CHECKPOINTS)
    with ExitStack() as stack:
        stack.enter_context(locked(folder / "lock"))
        _refuse_another(folder, recipe)
        session = Session(recipe, folder, threads or machine.cores())
        stack.callback(session.close)
        if networks is not None:
            session.begin_with(networks)
        jsons.write(folder / CONFIG, dataclasses.asdict(recipe))
        session.resume()
        display = progress.display(f"{recipe.body} expert", session.step, recipe.rounds * recipe.round, quiet)
        stack.callback(display.close)
        say = (lambda text: None) if quiet else display.say
        session.finish(display, say, log_every, save_every or max(1, recipe.steps // 10))
    return folder / ACTOR


def _networks(given: Path) -> Path:
    """The file that --start names; that of all networks where a folder has both."""
    if not given.exists() and str(given) in SKILLS:
        return require_shipped(str(given))
    files = [given / NETWORKS, given / ACTOR] if given.is_dir() else [given]
    if found := [file for file in files if file.is_file()]:
        return found[0]
    raise UserError(
        f"{files[0]}: no such file; --start takes the folder of an earlier training, its {NETWORKS}, a policy, "
        "or the name of one that comes with the package"
    )


def _refuse_another(folder: Path, recipe: Recipe) -> None:
    """A run that is there already must have the same recipe, but may go on for longer."""
    target = folder / CONFIG
    if target.exists():
        before = jsons.read_as(Recipe, target)
        names = [f.name for f in dataclasses.fields(Recipe) if f.name != "steps"]
        if other := [name for name in names if getattr(before, name) != getattr(recipe, name)]:
            raise UserError(
                f"{folder}: holds a run with another {other[0]} ({getattr(before, other[0])}, "
                f"now {getattr(recipe, other[0])}); choose another --out"
            )


class Session:
    """One process's share of a run."""

    def __init__(self, recipe: Recipe, folder: Path, threads: int):
        self.recipe, self.folder = recipe, folder
        self.body = BODIES[recipe.body]()
        self.turns = self.body.turns if recipe.command_frame else ()
        self.scale = np.where(recipe.command_frame, self.body.scale(), np.float32(1))[:, None]
        view = [self._view] if recipe.command_frame else []
        self.sac = SAC(recipe, self.body.observation_size, self.body.action_size, *view)
        self.simulator = Simulator(recipe, self.body, threads)
        self.journal: jsons.Journal[jsons.Row] = jsons.Journal(folder / METRICS, jsons.json_object, dict)
        self.key = jax.random.key(recipe.seed)
        self.state = jax.jit(self.sac.init)(self.key)
        self.replay = jnp.zeros((recipe.capacity, self.sac.row))
        self.number = 0  # rounds that were learned from
        self.tally = np.zeros(len(Tally._fields))  # since the last row of the journal
        self.waiting: Round | None = None  # played, not yet learned from
        self.info: dict[str, Any] = {}
        self.seconds = 0.0  # of earlier processes
        self._made_by = {
            "recipe": dataclasses.asdict(recipe), "differs_from_official": changed(recipe),
            "versions": machine.versions(), "git": machine.commit(),
            "hardware": dataclasses.asdict(machine.Hardware.here("float32")),
        }  # fmt: skip
        self._programs: dict[int, Any] = {}  # compiled, by the number of updates
        self._thread = ThreadPoolExecutor(1)
        self._began = time.monotonic()

    def close(self) -> None:
        self._thread.shutdown()
        self.simulator.simulations.close()
        self.journal.close()

    def _view(self, observation: Array) -> Array:
        return turned(observation, self.turns, jnp) * self.scale.T

    @property
    def _policy_on_host(self) -> NumpyMLP:
        return host_policy(self.state.params.policy, self.scale, self.turns)

    @property
    def _skill(self) -> str:
        return SKILLS[self.recipe.body].name if self.recipe.body in SKILLS else "walk"

    @property
    def step(self) -> int:
        return self.number * self.recipe.round

    @property
    def updates(self) -> int:
        """Gradient steps so far."""
        quiet = -(-self.recipe.random_steps // self.recipe.round) - 1  # rounds that only fill the replay
        return max(0, self.number - max(0, quiet)) * self.recipe.updates

    @property
    def elapsed(self) -> float:
        return self.seconds + time.monotonic() - self._began

    def finish(self, display: progress.Display, say: Say, log_every: int, save_every: int) -> None:
        """Play and learn until all rounds are done."""
        recipe = self.recipe
        if self.number >= recipe.rounds:
            return
        due = lambda every: self.step // every > (self.step - recipe.round) // every
        with Interruption() as interruption:
            playing = self._play_ahead()
            while self.number < recipe.rounds:
                fresh = playing.result()
                self.number, self.waiting = self.number + 1, None
                last = self.number == recipe.rounds
                policy = self._policy_on_host  # waits for the updates of the round before
                if not last:
                    playing = self._thread.submit(self.simulator.play, self.number, policy)
                self._learn(fresh)
                if due(log_every) or last:
                    self._log(say)
                display.advance(self.step)
                stop = interruption.requested and not last
                if due(save_every) or last or stop:
                    self.waiting = None if last else playing.result()
                    self._save()
                if stop:
                    kept = f"step {self.step:,} is saved in {self.folder}"
                    raise interruption.error(f"interrupted; {kept}. To resume, run the same command again")

    def _play_ahead(self) -> "Future[Round]":
        """The round that comes next: the one that a checkpoint held, else played now."""
        if self.waiting is not None:
            done: Future[Round] = Future()
            done.set_result(self.waiting)
            return done
        return self._thread.submit(self.simulator.play, self.number, self._policy_on_host)

    def _learn(self, fresh: Round) -> None:
        """Start the updates on the device, without waiting for them."""
        at = self.step - self.recipe.round
        updates = self.recipe.updates if self.step >= self.recipe.random_steps else 0
        key = jax.random.fold_in(self.key, self.number)
        arguments = (self.state, self.replay, fresh.rows, np.int32(at), key)
        if updates not in self._programs:
            self._programs[updates] = compile_loop(SAC.learn.lower(self.sac, *arguments, updates))
        self.state, self.replay, info = self._programs[updates](*arguments)
        self.info = info or self.info
        self.tally += fresh.tally

    def _log(self, say: Say) -> None:
        losses = {name: float(value) for name, value in self.info.items()}
        if broken := [name for name, value in losses.items() if not np.isfinite(value)]:
            raise UserError(f"{self.folder}: {broken[0]} is not finite at step {self.step}; try a smaller --lr")
        row = Tally(*self.tally).row(self.body.seconds)
        self.tally = np.zeros_like(self.tally)
        self.journal.append([{"step": self.step, "updates": self.updates, **row, **losses, "seconds": self.elapsed}])
        self._write_policy()
        reward = "no episode ended" if row["return"] is None else f"return {row['return']:.4g}"
        say(
            f"step {self.step:,}  {reward}  {row['metres_per_second']:.3f} m/s along the command  "
            f"{row['falls_per_1000_steps']:.2f} falls per 1,000 steps  {self.elapsed:.0f} s"
        )

    def _write_policy(self) -> None:
        """The policy as a file for `data generate --expert`, and how it was made; all networks, for another run."""
        skill = self._skill
        arrays: Arrays = {}
        for k, layer in enumerate(self.state.params.policy.layers):
            weight = np.array(layer.w) * (1 if k else self.scale)  # the file's inputs are not scaled
            arrays |= {f"{skill}.layers.{k}.weight": weight, f"{skill}.layers.{k}.bias": np.array(layer.b)}
        meta = {"turns": " ".join(map(str, self.turns))} if self.turns else None
        checkpoint.write(
            self.folder / ACTOR, arrays, sealed=False, meta=meta, body=self.recipe.body, steps=self.step,
            updates=self.updates, seconds=round(self.elapsed, 1), **self._made_by,
        )  # fmt: skip
        networks = trees.to_host(self.state.params)
        checkpoint.write(self.folder / NETWORKS, networks, body=self.recipe.body, steps=self.step)

    def begin_with(self, file: Path) -> None:
        """Take over the networks in `file`; the optimiser and the replay begin anew."""
        params = self.state.params
        if any(has(file, skill.name) for skill in SKILLS.values()):
            params = params._replace(policy=self._policy(file))
        else:
            try:
                params = trees.fill(params, checkpoint.read(file, trees.shapes(params)))
            except Damaged as damage:
                raise UserError(f"{file.parent}: {damage}") from damage
        params = jax.device_put(params)
        self.state = self.state._replace(params=params, target=jax.tree.map(jnp.copy, params.critic))

    def _policy(self, file: Path) -> SquashedGaussian:
        """A policy of which the file has only the mean action; its samples get the same spread in all states."""
        mean = load(file, self._skill, (self.body.observation_size, self.body.action_size))
        if not self.recipe.actor_waits:
            raise UserError(
                f"{file.name}: a policy without critics; say how many gradient steps they learn before it "
                "moves, for example --actor-waits 100000"
            )
        policy = self.state.params.policy
        widths = tuple(len(bias) for _, bias in mean.layers[:-1])
        if widths != self.recipe.policy_hidden or (mean.activation, mean.squash) != (gelu, np.tanh):
            raise UserError(
                f"{file.name}: its hidden layers are {widths}; expected policy_hidden {self.recipe.policy_hidden} "
                "with GELU, and tanh at the end"
            )
        if mean.turns != self.turns:
            needed = "--command-frame" if mean.turns else "--no-command-frame"
            raise UserError(f"{file.name}: was not trained with this frame of reference; give {needed}")
        spread = jnp.zeros_like(policy.log_std.w), jnp.full_like(policy.log_std.b, math.log(GIVEN_STD))
        fresh = [array for layer in mean.layers for array in layer]
        fresh[0] = fresh[0] / self.scale
        at = lambda p: [*(array for layer in p.layers for array in (layer.w, layer.b)), p.log_std.w, p.log_std.b]
        return eqx.tree_at(at, policy, [*map(jnp.asarray, fresh), *spread])

    def _arrays(self) -> Arrays:
        """Everything that the rest of the run depends on."""
        filled = min(self.step, self.recipe.capacity)
        arrays = {f"state/{name}": leaf for name, leaf in trees.to_host(self.state).items()}
        arrays |= {f"simulator/{name}": value for name, value in self.simulator.save().items()}
        if self.waiting is not None:
            arrays |= {f"waiting/{name}": value for name, value in self.waiting._asdict().items()}
        return arrays | {"replay": np.array(self.replay[:filled]), "tally": self.tally}

    def _save(self) -> None:
        """Write a checkpoint, then remove the older ones."""
        self.journal.sync()
        if self.step not in directory.steps(self.folder):
            file = directory.checkpoint_path(self.folder, self.step)
            checkpoint.write(file, self._arrays(), step=self.step, seconds=self.elapsed)
        for step in directory.steps(self.folder)[:-1]:
            directory.remove_checkpoint(self.folder, step)

    def resume(self) -> None:
        """Go on from the newest intact checkpoint, if there is one."""
        for step in reversed(directory.steps(self.folder)):
            path = directory.checkpoint_path(self.folder, step)
            try:
                arrays, facts = checkpoint.read(path), checkpoint.facts(path)
            except Damaged as damage:
                print(f"{self.folder}: checkpoint {damage}; it is not used", flush=True)
                continue
            self._fill(step, arrays, path)
            self.seconds = float(facts.get("seconds", 0.0))
            break
        self.journal.keep(lambda row: row["step"] <= self.step)

    def _fill(self, step: int, arrays: Arrays, path: Path) -> None:
        def part(prefix: str) -> Arrays:
            return {n.removeprefix(prefix): value for n, value in arrays.items() if n.startswith(prefix)}

        try:
            self.state = jax.device_put(trees.fill(self.state, part("state/")))
            self.replay = self.replay.at[: len(arrays["replay"])].set(arrays["replay"])
            self.simulator.restore(part("simulator/"))
            self.tally, self.number = arrays["tally"], step // self.recipe.round
            waiting = part("waiting/")
            self.waiting = Round(**waiting) if waiting else None
        except (KeyError, TypeError, ValueError, IndexError) as problem:
            raise UserError(f"{path}: does not fit this run ({problem}); choose another --out") from problem


def host_policy(policy: SquashedGaussian, scale: np.ndarray, turns: Sequence[int]) -> NumpyMLP:
    """The policy in NumPy, for the simulation: mean and log standard deviation side by side, before tanh.

    Its inputs are turned, but not scaled: the first layer's weights are, instead.
    """
    layers = [(np.array(layer.w), np.array(layer.b)) for layer in policy.trunk.layers]
    layers[0] = (layers[0][0] * scale, layers[0][1])
    heads = [[np.array(head.w), np.array(head.b)] for head in (policy.mean, policy.log_std)]
    weight, bias = (np.concatenate(pair, axis=-1) for pair in zip(*heads, strict=True))
    return NumpyMLP([*layers, (weight, bias)], "gelu", "none", turns=turns)

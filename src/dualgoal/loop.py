"""The compiled part of a run: one program that takes any number of gradient steps, for all seeds at once.

The number of steps is an argument of the program, because a loop of static length 1 is inlined and rounds differently.
So it does not matter how a run is cut into chunks, where it was interrupted or how often metrics were logged. Seeds are
a mapped axis that is spread over the local devices; each seed's key is key(seed), so a seed trains the same alone and
with others. On a CPU (where every core is a device) and with image encoders for which this package has no kernels, the
seeds of one device take turns instead of being batched: batched matrix products are slow on a CPU, and a convolution
with weights per seed becomes a grouped convolution, which is slow everywhere.
"""

import functools
import warnings
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dualgoal.agent import Agent, State
from dualgoal.errors import UserError
from dualgoal.fast.trunk import ops_for
from dualgoal.interface import Batch, Info
from dualgoal.streams import Transitions

NEVER = np.iinfo(np.int32).max
PARAMETER = "a parameter"
Shapes = tuple[tuple[int, ...], ...]
Broken = dict[str, Array]  # by loss: the first step at which it was not finite, or NEVER


def quick_compile_options() -> dict[str, Any] | None:
    """Compiler options for what runs once: on a CPU, optimising it takes longer than the first thousand steps."""
    if jax.default_backend() != "cpu":
        return None
    return {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


GPU_OPTIONS = {
    # Run independent kernels of a step concurrently: one seed leaves most of a large GPU idle.
    "xla_gpu_command_buffer_scheduling_mode": "CONCURRENT",
    # Do not merge products that share weights: joining and splitting their rows costs more than it saves.
    "xla_gpu_dot_merger_threshold_mb": 0,
}
# Repeat the step inside one CUDA graph, without returning to the host each time: XLA's default list plus WHILE.
ONE_GRAPH = {
    "xla_gpu_enable_command_buffer": "CONDITIONAL,CUBLAS,CUBLASLT,CUDNN,CUSTOM_CALL,DYNAMIC_SLICE_FUSION,FUSION,WHILE"
}


def compile_loop(lowered: Any, *, traced: bool = False) -> Any:
    """Compile a loop of training steps with the options above, or without those that the compiler refuses. With
    `traced` it is not a single graph, so that a profiler sees every kernel."""
    if jax.default_backend() == "gpu":
        for options in ([] if traced else [GPU_OPTIONS | ONE_GRAPH]) + [GPU_OPTIONS]:
            try:
                return lowered.compile(compiler_options=options)
            except (jax.errors.JaxRuntimeError, ValueError, TypeError) as error:
                warnings.warn(f"training is compiled without {', '.join(options)}: {error}", stacklevel=2)
    return lowered.compile()


def seeds_take_turns(agent: Agent) -> bool:
    """Whether several seeds of one device are faster one after the other."""
    if jax.default_backend() == "cpu":
        return True
    spec = agent.spec
    *sides, channels = spec.observation_shape
    widest = channels * (2 if agent.rep_spec.fusion == "early" else 1)
    return spec.pixels and ops_for([(spec.batch_size, *sides, widest)], spec.precision == "bf16") is None


def devices_used(seeds: int, devices: int) -> int:
    """How many devices to use: the largest number that divides the seeds evenly."""
    return max(n for n in range(1, min(seeds, devices) + 1) if seeds % n == 0)


class TrainingLoop:
    """An agent's training, compiled for a set of seeds."""

    def __init__(self, agent: Agent, seeds: tuple[int, ...]) -> None:
        if max(seeds) >= 2**32:
            raise UserError(f"seed {max(seeds)} is too large; expected one below 2^32")
        self.agent, self.seeds = agent, seeds
        devices = jax.local_devices()[: devices_used(len(seeds), jax.local_device_count())]
        self.mesh = Mesh(np.array(devices), ("seed",))
        self.by_seed = NamedSharding(self.mesh, PartitionSpec("seed"))
        self.everywhere = NamedSharding(self.mesh, PartitionSpec())
        self.keys = jax.device_put(jax.vmap(jax.random.key)(jnp.array(seeds, jnp.uint32)), self.by_seed)
        self._init = jax.jit(jax.vmap(agent.init), out_shardings=self.by_seed, compiler_options=quick_compile_options())
        # Without explicit shardings, the program's own output would be an input of another type and compile it again.
        self._chunk = jax.jit(self.for_each_seed(self._steps), donate_argnums=0, out_shardings=self.by_seed)
        self._compiled: dict[Shapes, Any] = {}  # `_chunk`, by the data's shapes
        self._measure = jax.jit(self.for_each_seed(self._losses))
        self._prepared: dict[Shapes, Future[Any]] = {}  # `_measure` compiled, by the data's shapes
        self._copy = jax.jit(lambda tree: jax.tree.map(jnp.copy, tree), out_shardings=self.by_seed)

    def for_each_seed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Extend `function(state, data, key, ...)` of one seed to all seeds: every device takes its share of them,
        batched, or one after the other where that is faster."""
        each, all_ = PartitionSpec("seed"), PartitionSpec()

        def share(state: State, data: Transitions, keys: Array, *rest: Array) -> Any:
            one = lambda state, key: function(state, data, key, *rest)
            if seeds_take_turns(self.agent):
                return jax.lax.map(lambda seed: one(*seed), (state, keys))
            return jax.vmap(one)(state, keys)

        def all_seeds(state: State, data: Transitions, keys: Array, *rest: Array) -> Any:
            given = (each, all_, each, *(all_ for _ in rest))
            mapped = jax.shard_map(share, mesh=self.mesh, in_specs=given, out_specs=each, check_vma=False)
            return mapped(state, data, keys, *rest)

        return all_seeds

    @functools.cached_property
    def template(self) -> State:
        """The state's shapes, without allocating it."""
        return jax.eval_shape(jax.vmap(self.agent.init), self.keys)

    def init(self) -> State:
        """The state before the first step."""
        return self._init(self.keys)

    def place(self, state: Any) -> State:
        """A state read from disk, copied to the devices (a copy, so that it can be donated)."""
        return self._copy(state)

    def place_data(self, data: Transitions) -> Transitions:
        """The dataset on every device that trains. The devices of a CPU share one copy in the memory they share."""
        if jax.default_backend() != "cpu":
            return jax.device_put(data, self.everywhere)
        return jax.tree.map(lambda array: jax.device_put(np.asarray(array), self.everywhere, may_alias=True), data)

    def trace(self, data: Transitions) -> None:
        """Trace the training loop on shapes alone, so that a part's errors are raised before anything is allocated,
        compiled or written. Compiling reuses this trace."""
        self._chunk.trace(*self._on_shapes(data), self.keys, jnp.int32(1))

    def _on_shapes(self, data: Transitions) -> tuple[Any, Any]:
        """A state and data of these shapes, without their arrays."""
        held = lambda tree, where: jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where), tree)
        return held(self.template, self.by_seed), held(data, self.everywhere)

    def advance(self, state: State, data: Transitions, steps: int) -> tuple[State, Broken]:
        """Take `steps` gradient steps. The given state is consumed."""
        return self.compile(state, data)(state, data, self.keys, jnp.int32(steps))

    def compile(self, state: State, data: Transitions) -> Any:
        """The training loop, compiled once for data of these shapes."""
        shapes = _shapes(data)
        if shapes not in self._compiled:
            self._compiled[shapes] = compile_loop(self.lower(state, data))
        return self._compiled[shapes]

    def lower(self, state: State, data: Transitions) -> Any:
        return self._chunk.lower(state, data, self.keys, jnp.int32(1))

    def measure(self, state: State, data: Transitions) -> dict[str, np.ndarray]:
        """Everything worth logging on the next batch of `data`, per seed. It is a separate program, so that how often
        it is called cannot change training."""
        prepared = self._prepared.get(_shapes(data))
        measure = self._measure if prepared is None else prepared.result()
        return {name: np.asarray(value) for name, value in measure(state, data, self.keys).items()}

    def prepare_measure(self, *splits: Transitions) -> None:
        """Compile `measure` for data of these shapes in a thread, so that training need not wait for it."""
        pool = ThreadPoolExecutor(1, "compiling")
        compiled = lambda given: self._measure.lower(*given, self.keys).compile()
        for data in splits:
            self._prepared[_shapes(data)] = pool.submit(compiled, self._on_shapes(data))
        pool.shutdown(wait=False)

    def _steps(self, state: State, data: Transitions, key: Array, count: Array) -> tuple[State, Broken]:
        """`count` steps of one seed. A step draws the next batch while it learns from this one, because drawing is many
        small kernels that would otherwise keep a GPU waiting."""

        @functools.partial(jax.jit, inline=True)  # traced once for both uses
        def learn(state: State, batch: Batch) -> tuple[State, Info]:
            return self.agent.update_on(state, batch, key)

        @functools.partial(jax.jit, inline=True)
        def draw(step: Array) -> Batch:
            return self.agent.sample(data, key, step)

        def body(_: Array, carry: tuple[State, Batch, Broken]) -> tuple[State, Batch, Broken]:
            state, batch, broken = carry
            following = draw(state.step + 1)
            state, info = learn(state, batch)
            first = {n: jnp.where(jnp.isfinite(info[n]), NEVER, state.step) for n in broken}
            return state, following, {n: jnp.minimum(broken[n], first[n]) for n in broken}

        batch = draw(state.step)
        _, info = jax.eval_shape(learn, state, batch)
        broken = {name: jnp.int32(NEVER) for name in info if name.endswith("/loss")}
        state, _, broken = jax.lax.fori_loop(0, count, body, (state, batch, broken))
        finite = jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(state.params)]).all()
        return state, {**broken, PARAMETER: jnp.where(finite, NEVER, state.step)}

    def _losses(self, state: State, data: Transitions, key: Array) -> Info:
        batch = self.agent.sample(data, key, state.step)
        k_losses = self.agent.keys(key, state.step)[1]
        total, info = self.agent.losses(state.params, state.targets, batch, k_losses)
        return {**info, "total/loss": total}


def _shapes(data: Transitions) -> Shapes:
    return tuple(leaf.shape for leaf in jax.tree.leaves(data))


def first_broken(broken: Broken, seeds: tuple[int, ...]) -> tuple[int, str, int] | None:
    """(step, loss, seed) of the first value that was not finite, if any. Within one step, a loss is reported rather
    than the parameters that it corrupted."""
    found = [(int(when), name, seeds[i]) for name, steps in broken.items() for i, when in enumerate(np.asarray(steps))]
    earliest = min(found, key=lambda f: (f[0], f[1] == PARAMETER, f))
    return earliest if earliest[0] < NEVER else None

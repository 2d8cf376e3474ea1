"""Strict numerics for every test: shapes are checked at run time, silent rank promotion is an error, and in the tests
of the core every warning is one too.

Compiled programs are kept in pytest's cache: the workers, their subprocesses and the next run share them.
`quick_compile` switches XLA's optimisations off for tests that compile many programs once. Tests of bit-equality do
without it. It is a property of compilation, not of a process, so both kinds can share a worker.
"""

import os
import sys
from pathlib import Path

CACHE = Path(__file__).parent.parent / ".pytest_cache"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE / "compiled"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.02")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

if sys.dont_write_bytecode:  # where Python may keep none, every subprocess would compile the source of JAX anew: 2 s
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # `python -B` sets none
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = str(CACHE / "bytecode")
    sys.dont_write_bytecode = False

import jax
import pytest
from hypothesis import settings
from jaxtyping import install_import_hook

CHECKED = ["losses", "fast", "nets", "sampler", "agent", "reps", "algos"]
install_import_hook([f"dualgoal.{name}" for name in CHECKED], "beartype.beartype")

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_num_cpu_devices", 1)  # whichever test trains first; subprocesses have a device per core

# The same examples on every machine; `--hypothesis-profile default` looks for new ones.
settings.register_profile("same", derandomize=True)
settings.load_profile("same")

STRICT = [*CHECKED, "encoders", "pooling", "augment", "pairs", "seeds", "parity", "grid", "new_representation"]
LONGEST = [
    "pairs",
    "train",
    "ray",
    "grid",
    "seeds",
    "agent",
    "readme",
    "bench",
    "evaluate",
    "lightsout_experiment",
    "tutorial",
    "public",
    "preemption",
    "slurm",
]


def pytest_collection_modifyitems(items):
    """Files are run whole by one worker, which compiles and prepares once what they share; long ones first, so that no
    worker is left alone with one at the end."""
    name = lambda item: item.path.stem.removeprefix("test_")
    for item in items:
        if name(item) in STRICT:
            item.add_marker(pytest.mark.filterwarnings("error"))
    items.sort(key=lambda item: LONGEST.index(name(item)) if name(item) in LONGEST else len(LONGEST))


@pytest.fixture(scope="module")
def quick_compile():
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)

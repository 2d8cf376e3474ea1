"""Strict numerics for every test: shapes are checked at run time, silent rank promotion is an error, and in the tests
of the core every warning is one too.

`quick_compile` switches XLA's optimisations off for tests that compile many programs once. Tests of bit-equality do
without it. It is a property of compilation, not of a process, so both kinds can share a worker.
"""

import jax
import pytest
from jaxtyping import install_import_hook

CHECKED = ["losses", "nets", "encoders", "sampler", "agent", "reps", "algos"]
install_import_hook([f"dualgoal.{name}" for name in CHECKED], "beartype.beartype")

jax.config.update("jax_numpy_rank_promotion", "raise")

STRICT = [*CHECKED, "pairs", "seeds", "parity", "grid", "new_representation"]
LONGEST = ["pairs", "train", "grid", "seeds", "agent", "readme", "bench", "evaluate", "lightsout_experiment"]


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

"""Strict numerics for every test: shapes are checked at run time, silent rank promotion is an error, and in the tests
of the core every warning is one too.

Most of the time goes into compiling programs that run once. So XLA optimises nothing unless a test asks for it with
`small.OPTIMISED`, as the tests do that compare what optimisation could change; and compiled programs are kept in
pytest's cache, where the workers, their subprocesses and the next run find them. For that a subprocess has one device
as the workers have, unless its test is about devices.
"""

import functools
import gc
import os
import sys
from importlib import metadata
from pathlib import Path

gc.set_threshold(20_000, 20, 20)  # seldom, and while everything is loaded hardly ever
CACHE = Path(__file__).parent.parent / ".pytest_cache"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE / "compiled"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
os.environ.setdefault("JAX_NUM_CPU_DEVICES", "1")
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
if metadata.version("jaxlib").startswith("0.10."):  # a flag that XLA does not know ends the process
    os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_cpu_use_fusion_emitters=false"  # half the time

if sys.dont_write_bytecode:  # where Python may keep none, every subprocess would compile the source of JAX anew: 2 s
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # `python -B` sets none
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = str(CACHE / "bytecode")
    sys.dont_write_bytecode = False

import jax  # noqa: E402
import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402
from jaxtyping import install_import_hook  # noqa: E402

CHECKED = ["losses", "fast", "nets", "sampler", "agent", "reps", "algos"]
install_import_hook([f"dualgoal.{name}" for name in CHECKED], "beartype.beartype")

jax.config.update("jax_numpy_rank_promotion", "raise")

# The same examples on every machine; `--hypothesis-profile default` looks for new ones.
settings.register_profile("same", derandomize=True)
settings.load_profile("same")

STRICT = [*CHECKED, "encoders", "pooling", "augment", "pairs", "seeds", "parity", "grid", "new_representation"]
LONGEST = """
ray pairs train seeds lightsout_experiment grid offline_bundle readme outside_parts python public evaluate envs agent
tutorial collect reps trunk cli goal_spaces new_algorithm campaign demo slurm preemption your_world tabular
activations
"""


def pytest_collection_modifyitems(items):
    """Files are run whole by one worker, which compiles and prepares once what they share; long ones first, so that no
    worker is left alone with one at the end."""
    name, longest = lambda item: item.path.stem.removeprefix("test_"), LONGEST.split()
    for item in items:
        if name(item) in STRICT:
            item.add_marker(pytest.mark.filterwarnings("error"))
    items.sort(key=lambda item: longest.index(name(item)) if name(item) in longest else len(longest))


def pytest_collection_finish():
    """What is loaded by now stays: to look through it for garbage again and again takes a twentieth of the time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The data of tiny runs."""
    import tiny

    return tiny.make_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def one_program():
    """Runs of one agent on one dataset share a compiled program, as processes do that find it in the cache: to load it
    anew takes a second each time."""
    from dualgoal.runs import preparation

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(preparation, "TrainingLoop", functools.cache(preparation.TrainingLoop))
        yield


@pytest.fixture(scope="module")
def evaluated_here():
    """Evaluation plays short episodes, and without worker processes, each of which takes seconds to start: for tests of
    what is around it. test_evaluate and test_cli use workers."""
    import tiny

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dualgoal.runs.evaluation.Pool", tiny.here)
        short = property(lambda _: 20, lambda *_: None)
        patch.setattr("dualgoal.envs.ogbench.SeededEnv.max_steps", short, raising=False)
        yield


@pytest.fixture(autouse=True)
def short_walks(request, monkeypatch):
    """A report of a point maze walks hundreds of paths. test_explorer and test_demo are about them; elsewhere a few
    steps of each will do."""
    if request.path.stem not in ("test_explorer", "test_demo"):
        monkeypatch.setattr("dualgoal.report.paths.STEPS", 4)

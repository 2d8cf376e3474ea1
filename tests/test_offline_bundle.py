"""The offline bundle, installed without an index beside a bare jax, trains and evaluates."""

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tiny import flags, make_data, tiny_run

TOOL = Path(__file__).parent.parent / "tools" / "offline_bundle"
HOST = (
    "jax",
    "jaxlib",
    "numpy",
    "numpy.libs",
    "scipy",
    "scipy.libs",
    "ml_dtypes",
    "opt_einsum",
)  # what is there before


def call(words, **environment):
    return subprocess.run(words, capture_output=True, text=True, env={**os.environ, **environment})


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bundle")
    done = call([sys.executable, str(TOOL), "--out", str(folder), "--python", "{}.{}".format(*sys.version_info)])
    if done.returncode:
        pytest.skip("the wheels of the bundle cannot be downloaded here: " + done.stderr.strip().splitlines()[-1])
    return folder


def test_it_is_small_and_leaves_jax_and_drawing_to_others(bundle):
    names = {wheel.name.split("-")[0] for wheel in bundle.glob("*.whl")}
    assert {"dualgoal", "equinox", "mujoco", "ogbench", "dm_control"} <= names
    assert not names & {"jax", "jaxlib", "numpy", "scipy", "matplotlib", "imageio_ffmpeg"}
    assert sum(file.stat().st_size for file in bundle.iterdir()) < 50e6


def test_it_trains_and_evaluates_where_there_is_nothing_but_jax(bundle, tmp_path):
    here, host, target = Path(sysconfig.get_path("purelib")), tmp_path / "host", tmp_path / "lib"
    host.mkdir()
    for name in HOST:
        if (here / name).exists():
            (host / name).symlink_to(here / name)
        for facts in here.glob(f"{name}-*.dist-info"):
            (host / facts.name).symlink_to(facts)
    done = call([sys.executable, str(bundle / "install"), "--target", str(target)], PIP_NO_INDEX="1")
    assert done.returncode == 0, done.stderr
    data = make_data(tmp_path / "data")
    train = [*flags(tiny_run(steps=4, eval_every=4, save_every=4, log_every=4)), "--data", str(data), "--out", "run"]
    evaluate = ["eval", "run", "--episodes", "1", "--workers", "1", "--json"]
    script = (
        "import sys, dualgoal, jax, json; from dualgoal.cli.main import main\n"
        f"assert main({train!r}) == 0 and main({evaluate!r}) == 0\n"
        "print(json.dumps([dualgoal.__file__, jax.__file__, 'matplotlib' in sys.modules]))"
    )
    paths = f"{target}{os.pathsep}{host}"
    words = [sys.executable, "-S", "-c", script]  # -S: without the packages of this environment
    done = subprocess.run(
        words, capture_output=True, text=True, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": paths, "DUALGOAL_CACHE": str(tmp_path / "cache")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    ours, theirs, drew = json.loads(done.stdout.splitlines()[-1])
    assert ours.startswith(str(target)) and theirs.startswith(str(host)) and not drew
    assert done.stdout.count('"successes"') == 5 * len(tiny_run().seeds), "five tasks for each seed"

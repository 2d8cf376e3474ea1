"""Cores: a device each for training; with `--separate-cores`, every thread on its half before JAX starts."""

import json
import os
import subprocess
import sys
import textwrap
from types import SimpleNamespace

import jax
import pytest

from dualgoal import machine
from dualgoal.runs import training

FREE = {name: value for name, value in os.environ.items() if name != "JAX_NUM_CPU_DEVICES"}  # to choose its devices
two_cores = pytest.mark.skipif(sys.platform != "linux" or machine.cores() < 2, reason="needs Linux and two cores")


@two_cores
def test_pinned_training_binds_all_threads_before_jax_starts_its_own():
    code = """
        import json, os, sys, threading
        from jax._src import xla_bridge
        from dualgoal.cli import main as cli
        from dualgoal.runs import training

        def look(*_):
            early = xla_bridge.backends_are_initialized()
            import jax.numpy as jnp
            jnp.ones(3).sum().block_until_ready()
            bound = [sorted(os.sched_getaffinity(int(t))) for t in os.listdir("/proc/self/task")]
            print(json.dumps({"early": early, "bound": bound}))
            sys.exit()

        threading.Thread(target=threading.Event().wait, daemon=True).start()
        training.load_data = look
        cli.main(["train", "pointmaze-medium-navigate-v0", "--separate-cores", "--episodes", "0"])
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True)
    found = json.loads(done.stdout)
    cores = sorted(os.sched_getaffinity(0))
    assert not found["early"], "JAX starts a thread per core that it may use"
    assert len(found["bound"]) > 2 and all(cpus == cores[: len(cores) // 2] for cpus in found["bound"])


def test_as_many_workers_as_cores_are_left_for_them(monkeypatch):
    monkeypatch.setattr(machine, "cores", lambda: 8)
    assert training.default_workers("cpu", None) == 4 and training.default_workers("gpu", None) == 7
    assert training.default_workers("cpu", list(range(8, 16))) == 8 == training.default_workers("gpu", list(range(8)))
    monkeypatch.setattr(machine, "cores", lambda: 1)
    assert training.default_workers("cpu", None) == training.default_workers("gpu", None) == 1


@pytest.mark.parametrize(
    ("given", "first", "devices"),
    [
        ({}, "pass", machine.cores()),
        ({"XLA_FLAGS": "--xla_force_host_platform_device_count=3"}, "pass", 3),
        ({"JAX_NUM_CPU_DEVICES": "3"}, "pass", 3),
        ({}, "jax.devices()", 1),
    ],
    ids=["a device per core", "XLA's flag", "JAX's variable", "too late"],
)
def test_every_core_is_a_device_unless_somebody_said_otherwise(given, first, devices):
    code = f"import jax; from dualgoal import machine; {first}; machine.a_device_per_core(); print(jax.device_count())"
    env = {**FREE, "JAX_PLATFORMS": "cpu", **given}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert (done.stdout, done.returncode) == (f"{devices}\n", 0), done.stderr


def test_seeds_of_lights_out_have_a_core_each_too(tmp_path):
    code = f"""
        import jax
        from dualgoal.paper import lightsout
        small = dict(seeds=(0, 1), steps=1, batch_size=8, hidden=(8,), trajectories=20)
        lightsout.Experiment("3x3", "orig", **small).train({str(tmp_path)!r} + "/run", quiet=True)
        print(jax.device_count())
    """
    env = {**FREE, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], env=env, capture_output=True, text=True)
    assert done.stdout.split()[-1:] == [str(machine.cores())], done.stderr


@pytest.mark.parametrize(
    ("generation", "meaning"),
    [("9.0", "bf16"), ("8.0", "bf16"), ("7.5", "float32"), ("gfx942", "float32"), (None, "float32")],
)
def test_auto_is_bf16_where_a_gpu_computes_in_it(monkeypatch, generation, meaning):
    device = SimpleNamespace(**({} if generation is None else {"compute_capability": generation}))
    monkeypatch.setattr(jax, "local_devices", lambda: [device])
    assert machine.arithmetic("auto") == meaning
    for asked in ("float32", "tf32", "bf16"):
        assert machine.arithmetic(asked) == asked

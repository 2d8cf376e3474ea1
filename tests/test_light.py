"""Without a simulator: import, training, labels and export work, and what needs more says how to get it.

`tools/light_install` runs every command in a real installation without extras.
"""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import dualgoal.collect
import dualgoal.envs  # noqa: F401
from dualgoal import imports
from dualgoal.cli import doctor
from dualgoal.cli.main import main
from dualgoal.envs import versions
from dualgoal.errors import UserError

ABSENT = ("mujoco", "ogbench", "dm_control", "gymnasium_robotics", "imageio", "imageio_ffmpeg", "onnx", "pyarrow")
OURS = ("dualgoal.envs.ogbench", "dualgoal.collect.behaviours", "dualgoal.collect.generate")


@pytest.fixture
def light(tmp_path, monkeypatch):
    """An installation without extras, as far as imports show: these modules cannot be imported, nor has anyone yet."""
    for name in list(sys.modules):
        if name.split(".")[0] in ABSENT or name in OURS:
            monkeypatch.delitem(sys.modules, name)
    for name in ABSENT:
        monkeypatch.setitem(sys.modules, name, None)
    for package, _, name in (module.rpartition(".") for module in OURS):  # packages remember their modules, too
        monkeypatch.delitem(vars(sys.modules[package]), name, raising=False)  # without asking for it, which imports it
    monkeypatch.setattr(versions, "SIMULATORS", ("no-such-simulator",))
    monkeypatch.setenv("DUALGOAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def record():
    rng = np.random.default_rng(0)
    rows = {"observations": rng.normal(size=(60, 2)), "actions": rng.uniform(-3, 3, (60, 2))}
    np.savez("own.npz", **rows, terminals=np.arange(60) % 15 == 14)


def test_own_data_need_no_simulator(light, capsys):
    record()
    small = "--steps 4 --batch-size 8 --save-every 4 --log-every 4 --seeds 0 --algo.hidden 8"
    for line in (
        "data import own.npz --out data --scale-actions --quiet",
        "data info data",
        f"train own --data data --rep orig --algo gcivl {small} --quiet --out run",
        "label run --data data --out labels.npz --quiet",
        "export run --out own.safetensors",
        "list tasks",
    ):
        assert main(line.split()) == 0, (line, capsys.readouterr().err)
    assert np.isfinite(np.load("labels.npz")["distance"]).all()
    assert json.loads(Path("own.json").read_text())["action_dim"] == 2
    assert not [name for name in sys.modules if name.split(".")[0] in ABSENT and sys.modules[name] is not None]


@pytest.mark.parametrize(
    ("line", "extra"),
    [
        ("train cube-single-play-v0 --data data --out run", "ogbench"),
        ("data generate pointmaze-medium-navigate-v0 --episodes 2 --out data", "ogbench"),
        ("export run --out x.onnx", "onnx"),
        ("label run --data data --out x.parquet", "parquet"),
        ("data import lerobot --out data", "lerobot"),
        ("data import minari:x/y-v0 --out data", "minari"),
        ("data import own.hdf5 --out data", "hdf5"),
    ],
)
def test_what_is_missing_is_said_in_one_line(light, monkeypatch, tmp_path, capsys, line, extra):
    for name in ("onnxruntime", "minari", "h5py"):
        monkeypatch.setitem(sys.modules, name, None)
    (tmp_path / "lerobot" / "meta").mkdir(parents=True)
    (tmp_path / "lerobot" / "meta" / "info.json").write_text("{}")
    (tmp_path / "own.hdf5").write_bytes(b"\x89HDF\r\n\x1a\n")
    make = tmp_path / "data"
    make.mkdir()
    rows = {"observations": np.zeros((6, 28), np.float32), "actions": np.zeros((6, 5), np.float32)}
    np.savez(make / "cube-single-play-v0.npz", **rows, terminals=np.arange(6) % 3 == 2)
    assert main(line.split()) == 2
    said = capsys.readouterr().err
    assert f"pip install 'dualgoal[{extra}]'" in said and said.count("\n") == 1


def test_the_doctor_says_that_there_is_no_simulator(monkeypatch):
    monkeypatch.setattr(doctor.machine, "version", lambda name: None if name in ("mujoco", "ogbench") else "1.0")
    found = doctor.examine()
    assert found["rendering"]["backends"] == {"mujoco": "missing"}
    assert any("your own data need none" in line and "dualgoal[ogbench]" in line for line in found["advice"])
    assert not any("libegl1" in line for line in found["advice"])


def test_a_package_that_is_there_but_broken_is_not_called_missing(tmp_path, monkeypatch):
    (tmp_path / "halfway.py").write_text("import numpy.no_such_part\n")
    monkeypatch.syspath_prepend(tmp_path)
    broken = "^a film needs halfway, which is installed but cannot be imported .*no_such_part"
    with pytest.raises(UserError, match=broken):
        imports.optional("halfway", "video", "a film")
    with pytest.raises(UserError, match="^a film needs nowhere_at_all, which is not installed: pip install"):
        imports.optional("nowhere_at_all", "video", "a film")

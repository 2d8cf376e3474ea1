"""Expert files: what is read from them, and that a damaged or unfit one is named in one line."""

import json
import struct

import numpy as np
import pytest
from safetensors.numpy import save_file

from dualgoal.collect import experts, generate
from dualgoal.data import dataset
from dualgoal.errors import UserError

RNG = np.random.default_rng(0)
WALK = {
    "walk.layers.0.weight": RNG.normal(size=(29, 16)).astype(np.float32) * 0.1,
    "walk.layers.0.bias": np.zeros(16, np.float32),
    "walk.layers.1.weight": RNG.normal(size=(16, 8)).astype(np.float32) * 0.1,
    "walk.layers.1.bias": np.full(8, 0.3, np.float32),
}


def test_a_file_acts_as_its_perceptron(tmp_path):
    save_file(WALK, tmp_path / "e.safetensors", metadata={"activation": "relu", "squash": "tanh"})
    policy = experts.load(tmp_path / "e.safetensors", {"walk": (29, 8)})["walk"]
    x = RNG.normal(size=29).astype(np.float32)
    hidden = np.maximum(x @ WALK["walk.layers.0.weight"], 0)
    assert np.allclose(policy(x), np.tanh(hidden @ WALK["walk.layers.1.weight"] + 0.3), atol=1e-6)


def test_gelu_matches_jax():
    jax = pytest.importorskip("jax")
    x = np.linspace(-4, 4, 50, dtype=np.float32)
    assert np.allclose(experts.gelu(x), jax.nn.gelu(x), atol=1e-6)


def test_a_file_collects_and_is_recorded(tmp_path):
    file = tmp_path / "e.safetensors"
    save_file(WALK, file)
    generate.generate_dataset(
        "antmaze-medium-navigate-v0", 1, tmp_path / "d", workers=1, progress=False, rows=5, expert=file
    )
    plan = dataset.load(tmp_path / "d").provenance["plan"]
    assert len(plan["expert"]) == 64


@pytest.mark.parametrize(
    ("change", "meta", "message"),
    [
        ({"walk.layers.0.weight": None}, {}, "no skill 'walk'"),
        ({"walk.layers.1.bias": None}, {}, "'walk.layers.1' must be a weight"),
        ({"walk.layers.0.weight": np.zeros((27, 16), np.float32)}, {}, "'walk.layers.0' must be a weight .29"),
        ({"walk.layers.1.bias": np.full(8, np.nan, np.float32)}, {}, "NaN"),
        ({}, {"activation": "swish"}, "activation 'swish' is not one of"),
        (
            {"walk.layers.1.weight": np.zeros((16, 4), np.float32), "walk.layers.1.bias": np.zeros(4, np.float32)},
            {},
            "gives 4 numbers but actions have 8",
        ),
    ],
)
def test_unfit_files_are_one_line(tmp_path, change, meta, message):
    tensors = {k: v for k, v in {**WALK, **change}.items() if v is not None}
    save_file(tensors, tmp_path / "e.safetensors", metadata=meta)
    with pytest.raises(UserError, match=message) as caught:
        experts.load(tmp_path / "e.safetensors", {"walk": (29, 8)})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("kind", "size"), [("BF16", 2), ("F8_E5M2", 1)])
def test_types_that_numpy_does_not_have_are_one_line(tmp_path, kind, size):
    header = {"walk.layers.0.weight": {"dtype": kind, "shape": [2, 2], "data_offsets": [0, 4 * size]}}
    text = json.dumps(header).encode()
    (tmp_path / "e.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(4 * size))
    with pytest.raises(UserError, match="not a readable safetensors file|must be a weight"):  # JAX brings some types
        experts.load(tmp_path / "e.safetensors", {"walk": (2, 2)})


def test_a_damaged_file_is_one_line(tmp_path):
    (tmp_path / "e.safetensors").write_bytes(b"not tensors")
    with pytest.raises(UserError, match="not a readable safetensors"):
        experts.load(tmp_path / "e.safetensors", {"walk": (29, 8)})
    with pytest.raises(UserError, match="no such expert file"):
        experts.load(tmp_path / "none.safetensors", {"walk": (29, 8)})

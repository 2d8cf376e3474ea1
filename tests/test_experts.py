"""Expert files: what is read from them, and that a damaged or unfit one is named in one line."""

import json
import struct

import numpy as np
import pytest
from safetensors.numpy import save_file

from dualgoal.cli.main import main
from dualgoal.collect import experts, generate
from dualgoal.data import dataset
from dualgoal.errors import UserError
from dualgoal.files import sha256

RNG = np.random.default_rng(0)
WALK = {
    "walk.layers.0.weight": RNG.normal(size=(29, 16)).astype(np.float32) * 0.1,
    "walk.layers.0.bias": np.zeros(16, np.float32),
    "walk.layers.1.weight": RNG.normal(size=(16, 8)).astype(np.float32) * 0.1,
    "walk.layers.1.bias": np.full(8, 0.3, np.float32),
}


def test_a_file_acts_as_its_perceptron(tmp_path):
    save_file(WALK, tmp_path / "e.safetensors", metadata={"activation": "relu", "squash": "tanh"})
    policy = experts.load(tmp_path / "e.safetensors", "walk", (29, 8))
    x = RNG.normal(size=29).astype(np.float32)
    hidden = np.maximum(x @ WALK["walk.layers.0.weight"], 0)
    assert np.allclose(policy(x), np.tanh(hidden @ WALK["walk.layers.1.weight"] + 0.3), atol=1e-6)


def test_an_aim_scales_the_way_to_go(tmp_path):
    plain, aimed = tmp_path / "plain.safetensors", tmp_path / "aimed.safetensors"
    save_file(WALK, plain)
    save_file(WALK, aimed, metadata={"aim": "6"})
    x = RNG.normal(size=(3, 29)).astype(np.float32)
    scaled = x.copy()
    scaled[:, -2:] *= 6 / np.linalg.norm(x[:, -2:], axis=1, keepdims=True)
    scaled[2, -2:] = x[2, -2:] = 0.0  # no way to go
    found = experts.load(aimed, "walk", (29, 8))(x)
    assert found.dtype == np.float32 and np.allclose(found, experts.load(plain, "walk", (29, 8))(scaled), atol=1e-5)


def test_eval_takes_another_aim_than_the_file(monkeypatch, capsys):
    from dualgoal.experts import evaluation

    monkeypatch.setattr(evaluation, "evaluate", lambda body, policy, **_: {"0": {"aim": policy.aim}})
    for given, used in (([], 8.0), (["--aim", "0"], 0.0), (["--aim", "5.5"], 5.5)):
        assert main(["expert", "eval", "antball", "--json", *given]) == 0
        assert json.loads(capsys.readouterr().out) == {"0": {"aim": used}}
    assert main(["expert", "eval", "antball", "--aim", "-1"]) == 2
    assert "aim is -1.0; expected at least 0" in capsys.readouterr().err


def test_gelu_matches_jax():
    jax = pytest.importorskip("jax")
    x = np.linspace(-4, 4, 50, dtype=np.float32)
    assert np.allclose(experts.gelu(x), jax.nn.gelu(x), atol=1e-6)


def test_a_file_collects_and_is_recorded(tmp_path):
    file = tmp_path / "e.safetensors"
    save_file(WALK, file)
    generate.generate_dataset(
        "antmaze-medium-navigate-v0", 1, tmp_path / "d", workers=1, quiet=True, rows=5, expert=file
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
        ({}, {"aim": "far"}, "aim 'far' is not a length in metres"),
        ({}, {"turns": "3 4"}, "turns '3 4' are not columns where pairs of inputs begin"),
        ({}, {"turns": "26"}, "turns '26' are not columns"),
        ({}, {"turns": "-4"}, "turns '-4' are not columns"),
        ({}, {"aim": "-1"}, "aim '-1' is not a length in metres"),
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
        experts.load(tmp_path / "e.safetensors", "walk", (29, 8))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("kind", "size"), [("BF16", 2), ("F8_E5M2", 1)])
def test_types_that_numpy_does_not_have_are_one_line(tmp_path, kind, size):
    header = {"walk.layers.0.weight": {"dtype": kind, "shape": [2, 2], "data_offsets": [0, 4 * size]}}
    text = json.dumps(header).encode()
    (tmp_path / "e.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(4 * size))
    with pytest.raises(UserError, match="not a readable safetensors file|must be a weight"):  # JAX brings some types
        experts.load(tmp_path / "e.safetensors", "walk", (2, 2))


def test_a_damaged_file_is_one_line(tmp_path):
    (tmp_path / "e.safetensors").write_bytes(b"not tensors")
    with pytest.raises(UserError, match="not a readable safetensors"):
        experts.load(tmp_path / "e.safetensors", "walk", (29, 8))
    with pytest.raises(UserError, match="no such expert file"):
        experts.load(tmp_path / "none.safetensors", "walk", (29, 8))


@pytest.mark.parametrize("body", experts.SKILLS)
def test_a_policy_that_comes_with_the_package_walks(body):
    file = experts.shipped(body)
    if file is None:
        pytest.skip(f"no policy for {body} comes with this version")
    from dualgoal.experts.bodies import BODIES
    from dualgoal.experts.simulations import Simulations

    record = json.loads(file.with_suffix(".json").read_text())
    assert (record["body"], record["sha256"], record["bytes"]) == (body, sha256(file), file.stat().st_size)
    policy, rng = experts.of_body(body, file), np.random.default_rng(0)
    simulations = Simulations(BODIES[body](), 4, 1)
    simulations.start(rng)
    steps = [simulations.step(policy(simulations.observation.astype(np.float32)), rng) for _ in range(100)]
    simulations.close()
    assert np.mean([step.progress for step in steps]) > {"ant": 0.1, "antball": 0.02, "humanoid": 0.0}[body]
    assert sum(step.fallen.sum() for step in steps) <= 1


def test_files_are_searched_for_skills_and_folders_stand_for_their_training(tmp_path):
    save_file(WALK, tmp_path / "walk.safetensors")
    dribble = {name.replace("walk", "dribble"): value for name, value in WALK.items()}
    dribble["dribble.layers.0.weight"] = np.zeros((42, 16), np.float32)
    (tmp_path / "ball").mkdir()
    save_file(dribble, tmp_path / "ball" / experts.ACTOR)
    given = [tmp_path / "walk.safetensors", tmp_path / "ball"]
    assert experts.holding(given, "dribble") == tmp_path / "ball" / experts.ACTOR
    assert np.allclose(experts.of_body("antball", tmp_path / "ball")(np.zeros(42, np.float32)), np.tanh(0.3))
    generate.generate_dataset(
        "antsoccer-arena-navigate-v0", 1, tmp_path / "d", workers=1, quiet=True, rows=3, expert=given
    )
    assert len(dataset.load(tmp_path / "d").provenance["plan"]["expert"]) == 64 + 2 + 64


def test_a_policy_that_comes_with_the_package_is_used_unless_another_is_given(tmp_path, monkeypatch):
    monkeypatch.setattr(experts, "SHIPPED", tmp_path)
    with pytest.raises(UserError, match="needs a policy that walks .ant., and none comes with this version"):
        generate.generate_dataset("antmaze-medium-navigate-v0", 1, tmp_path / "d", rows=3)
    with pytest.raises(UserError, match="dualgoal expert train ant"):
        experts.require_shipped("ant")
    save_file(WALK, tmp_path / "ant.safetensors")
    generate.generate_dataset("antmaze-medium-navigate-v0", 1, tmp_path / "d", workers=1, quiet=True, rows=3)
    assert dataset.load(tmp_path / "d").provenance["plan"]["expert"] == sha256(tmp_path / "ant.safetensors")


def test_the_ant_of_the_package_walks_through_a_maze_without_being_named(tmp_path):
    generate.generate_dataset("antmaze-medium-navigate-v0", 2, tmp_path, workers=1, quiet=True, rows=80)
    data = dataset.load(tmp_path)
    assert data.provenance["plan"]["expert"] == sha256(experts.require_shipped("ant"))
    places = data.observations.reshape(2, 80, 29)[:, :, :2]
    assert (np.linalg.norm(np.diff(places, axis=1), axis=2).sum(axis=1) > 8).all()  # metres, in eight seconds

"""Ways out of the package: policies as ONNX and as exported files, rows with their learned distances."""

import dataclasses
import json
import re
from typing import Literal, get_args, get_origin, get_type_hints

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export as jax_export
from jax import lax, random

from dualgoal.algos import ALGOS
from dualgoal.cli.main import main
from dualgoal.data import dataset
from dualgoal.data.origin import ActionRange
from dualgoal.data.standard import Standard
from dualgoal.errors import UserError
from dualgoal.machine import Hardware
from dualgoal.reps import REPS
from dualgoal.runs import export, export_arrays, export_check, facts, onnx_export, policy
from dualgoal.runs.config import Run
from test_policy import page
from tiny import TASK, make_data, untrained

UNITS = ActionRange((-3.0, -2.0, 0.0), (3.0, 2.0, 9.0))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_data(tmp_path_factory.mktemp("data"), episodes=3, length=9)


@pytest.fixture(scope="module")
def run(folder, tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "run"
    untrained(path, folder, "dual", "gcivl")
    return path


def make_policy(rep, algo, shape=(4,), discrete=False, goal_shape=(), **options):
    """A policy that nobody trained, of a pair on observations of this shape. `options` are the representation's."""
    small = ({} if rep == "orig" else {"hidden": (8, 8), "dim": 8}) | options
    few = {"flow_steps": 2} if algo == "gcfbc" else {}
    made = Run(task="x", rep=REPS[rep](**small), algo=ALGOS[algo](hidden=(8, 8), **few))
    data = facts.DataFacts(1, 1, action_range=None if discrete else UNITS)
    if goal_shape:
        units = [Standard((3.0,) * own[0], (0.5,) * own[0]) for own in (shape, goal_shape)]
        data = dataclasses.replace(data, observation_standard=units[0], goal_standard=units[1])
    about = facts.RunFacts(facts.Sizes(shape, 3, discrete, goal_shape), data, {}, Hardware.here("float32"))
    agent = policy.agent_for(made, about.sizes)
    rng = np.random.default_rng(1)  # filled by NumPy, because JAX would compile a program for each layer
    shapes = jax.eval_shape(agent.init, random.key(1)).params
    params = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape, scale=0.2).astype(np.float32), shapes)
    return policy.Policy(agent, params, made, about)


# ONNX -----------------------------------------------------------------------------------------------------------------

PAIRS = [
    ("dual", "gcivl", (4,), False, (2,)),  # goals that are not observations
    ("vib", "gcfbc", (4,), False, ()),  # both draw noise
    ("hiql_phi", "hiql", (4,), False, ()),  # z looks at the state; two policies
    ("orig", "dqn", (4,), True, ()),  # discrete actions
    ("dual", "gcivl", (8, 8, 3), False, ()),  # images: encoders that all networks share
    ("orig", "gcbc", (9, 8, 1), True, ()),  # images stacked, an odd side
]


@pytest.mark.parametrize(("rep", "algo", "shape", "discrete", "goal"), PAIRS)
def test_onnx_computes_what_the_policy_does(tmp_path, rep, algo, shape, discrete, goal):
    onnxruntime = pytest.importorskip("onnxruntime", reason="pip install 'dualgoal[onnx]'")
    pytest.importorskip("onnx", reason="pip install 'dualgoal[onnx]'")
    made = make_policy(rep, algo, shape, discrete, goal)
    parts = onnx_export.parts_of(made, tmp_path / "x.onnx")
    assert [part.output for part in parts] == ["action", "z"][: 1 + REPS[rep]().learned]
    for part in parts:
        content, line = onnx_export.checked(part, made, onnxruntime)
        assert f"-> {part.output} (rows" in line and "largest difference" in line
        session = onnxruntime.InferenceSession(content)
        noise = [i.name for i in session.get_inputs() if i.name.startswith("noise")]
        assert len(noise) == (("vib" in rep) + (algo == "gcfbc" and part.output == "action"))
        rng, rows = np.random.default_rng(5), 7  # another number of rows than it was compared with
        values = {i.name: rng.normal(size=(rows, *i.shape[1:])) * 9 for i in session.get_inputs()}
        kind = np.uint8 if len(shape) == 3 else np.float32
        values = {n: np.abs(v).astype(kind) if n not in noise else v.astype(np.float32) for n, v in values.items()}
        (found,) = session.run(None, values)
        if not noise:
            given = [values[name] for name in part.inputs]
            np.testing.assert_allclose(found, part.original(*given, 0), atol=2e-4, rtol=1e-4)
        if part.output == "action" and not discrete:
            assert (found >= np.array(UNITS.low) - 1e-5).all() and (found <= np.array(UNITS.high) + 1e-5).all()


def test_the_command_writes_both_files_and_prints_the_difference(run, tmp_path, capsys):
    onnx = pytest.importorskip("onnx", reason="pip install 'dualgoal[onnx]'")
    pytest.importorskip("onnxruntime", reason="pip install 'dualgoal[onnx]'")
    words = ["export", str(run), "--out", str(tmp_path / "p.onnx")]
    assert main(words) == 0
    policy_line, goal_line = capsys.readouterr().out.splitlines()
    assert "observation (rows, 2), goal (rows, 2) -> action (rows, 2); largest difference" in policy_line
    assert goal_line.startswith(str(tmp_path / "p-goal.onnx")) and "goal (rows, 2) -> z (rows, 4)" in goal_line
    model = onnx.load(tmp_path / "p.onnx")
    assert {p.key: p.value for p in model.metadata_props}["algo"] == "gcivl" and model.opset_import[0].version == 17
    before = (tmp_path / "p.onnx").read_bytes()
    assert main(words) == 0 and (tmp_path / "p.onnx").read_bytes() == before, "an export may replace an export"
    (tmp_path / "p-goal.onnx").write_text("notes")
    assert main(words) == 2 and "would be replaced" in capsys.readouterr().err


def test_what_differs_is_not_written(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime", reason="pip install 'dualgoal[onnx]'")
    made = make_policy("orig", "gcbc")
    (part,) = onnx_export.parts_of(made, tmp_path / "x.onnx")
    wrong = part._replace(original=lambda *x: part.original(*x) + 0.01)
    with pytest.raises(UserError, match="onnxruntime's action differs from the original by 0.01"):
        onnx_export.checked(wrong, made, onnxruntime)
    strange = part._replace(function=lambda key, s, g: jax.numpy.sort(s, axis=1))
    with pytest.raises(UserError, match="does not know the operation 'sort'; export as safetensors"):
        onnx_export.checked(strange, made, onnxruntime)
    mixing = part._replace(function=lambda key, s, g: s - s.mean(axis=0, keepdims=True))
    with pytest.raises(UserError, match="does not know what depends on the number of rows, such as a mean over them"):
        onnx_export.checked(mixing, made, onnxruntime)


# What no pair above uses, but parts from other packages may: the operation, and how it is made of rows of numbers.
OPERATIONS = {
    "abs": lambda s, g: jnp.abs(s),
    "copy": lambda s, g: jnp.array(s, copy=True) + g,
    "dot_general": lambda s, g: jnp.einsum("ri,ri->r", s, g)[:, None],  # of two tensors: Einsum instead of MatMul
    "eq": lambda s, g: ((s > 0) == (g > 0)).astype(jnp.float32),
    "erf": lambda s, g: lax.erf(s),
    "gather": lambda s, g: s[:, 1:3] - g[:, 3][:, None],
    "ge": lambda s, g: (s >= g).astype(jnp.float32),
    "gt": lambda s, g: (s > g).astype(jnp.float32),
    "le": lambda s, g: (s <= g).astype(jnp.float32),
    "log": lambda s, g: jnp.log(jnp.abs(s)),
    "log1p": lambda s, g: jnp.log1p(jnp.abs(s)),
    "logistic": lambda s, g: jax.nn.sigmoid(s),
    "lt": lambda s, g: (s < g).astype(jnp.float32),
    "pow": lambda s, g: jnp.abs(s) ** g,
    "reduce_max": lambda s, g: s.max(axis=1, keepdims=True) - g,
    "reduce_min": lambda s, g: s.min(axis=1, keepdims=True) - g,
    "select_n": lambda s, g: jnp.where(s > 0, s, g),
    "slice": lambda s, g: lax.slice_in_dim(s, 1, 4, 2, axis=1),
    "split": lambda s, g: jnp.subtract(*jnp.split(s, [2], axis=1)),
    "square": lambda s, g: jnp.square(s),
    "stop_gradient": lambda s, g: lax.stop_gradient(s),
    "transpose": lambda s, g: s.reshape(-1, 2, 2).transpose(0, 2, 1).reshape(-1, 4),
}


@pytest.fixture(scope="module")
def any_policy():
    return make_policy("orig", "gcbc")


@pytest.mark.parametrize("operation", OPERATIONS)
def test_onnx_knows_the_operations_of_other_parts(any_policy, tmp_path, operation):
    onnxruntime = pytest.importorskip("onnxruntime", reason="pip install 'dualgoal[onnx]'")
    onnx = pytest.importorskip("onnx", reason="pip install 'dualgoal[onnx]'")
    function = OPERATIONS[operation]
    rows = jax.ShapeDtypeStruct((*jax_export.symbolic_shape("rows"), 4), np.float32)
    assert re.search(rf"= {operation}\b", str(jax.make_jaxpr(function)(rows, rows))), "the rule must be reached"
    (part,) = onnx_export.parts_of(any_policy, tmp_path / "x.onnx")
    part = part._replace(function=lambda key, s, g: function(s, g), original=lambda s, g, draw: function(s, g))
    content, _ = onnx_export.checked(part, any_policy, onnxruntime)  # which raises where the results differ
    if operation == "dot_general":
        assert "Einsum" in {node.op_type for node in onnx.load_from_string(content).graph.node}


# Exported files -------------------------------------------------------------------------------------------------------


def test_an_exported_file_loads_as_a_policy(run, tmp_path):
    original = policy.load(run, seed=3)
    loaded = policy.load(export.export_policy(run, tmp_path / "p.safetensors", seed=3))
    observations = np.random.default_rng(0).normal(size=(4, 2))
    np.testing.assert_array_equal(loaded.act(observations, [1.0, 2.0]), original.act(observations, [1.0, 2.0]))
    np.testing.assert_array_equal(loaded.encode([1.0, 2.0]), original.encode([1.0, 2.0]))
    assert (loaded.seed, loaded.step, loaded.run) == (3, original.step, original.run)
    with pytest.raises(UserError, match="for values and distances load the run directory"):
        loaded.distance(observations, [1.0, 2.0])
    with pytest.raises(UserError, match="holds seed 3, not 0"):
        policy.load(tmp_path / "p.safetensors", seed=0)


@pytest.mark.parametrize("pair", [("vib", "gcfbc"), ("orig", "gcbc"), ("hiql_phi", "hiql"), ("dual_pair", "gciql")])
@pytest.mark.parametrize("shape", [(4,), (8, 8, 3)])
def test_flat_arrays_can_be_put_back(pair, shape):
    made = make_policy(*pair, shape)
    arrays, _, _ = export_arrays.flatten(made.run.rep, made.run.algo, made.params)
    params = export_arrays.unflatten(made.run.rep, made.run.algo, made.params, arrays, "x")
    again, _, _ = export_arrays.flatten(made.run.rep, made.run.algo, params)
    assert list(again) == list(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(again[name], array)
    with pytest.raises(UserError, match="made by another version"):
        export_arrays.unflatten(made.run.rep, made.run.algo, made.params, {**arrays, "more": np.zeros(1)}, "x")


def options_of(rep):
    """Every option of a representation that has choices, with each of them; the first is the default."""
    for name, kind in get_type_hints(rep).items():
        default = getattr(rep, name, None)
        choices = (True, False) if kind is bool else get_args(kind) if get_origin(kind) is Literal else ()
        yield from ({name: choice} for choice in choices if choice != default and name in rep.__dataclass_fields__)


DUAL = [{}, *options_of(REPS["dual"]), {"continuity": 0.5}, {"hard_goals": 0.5}, {"normalize": True, "learner": "ivl"}]


@pytest.mark.parametrize("options", DUAL, ids=str)
def test_the_reader_on_the_page_knows_every_option_of_dual(options):
    made, reader = make_policy("dual", "gcivl", **options), {}
    exec(page(), reader)
    arrays, about = export.describe(made)
    states, goals = np.random.default_rng(0).normal(size=(2, 9, 4), scale=3)
    np.testing.assert_allclose(reader["encode"](arrays, about, goals), made.encode(goals), atol=1e-5)
    np.testing.assert_allclose(reader["act"](arrays, about, states, goals), made.act(states, goals), atol=1e-4)


KINDS = {  # of the two networks; whatever is not here is "other"
    "orig": "identity", "dual": "mlp", "vip": "mlp", "tra": "mlp", "byol": "mlp", "vib": "bottleneck",
    **dict.fromkeys(("gcivl", "crl", "gciql", "gcbc", "trl", "daf"), "gaussian"), "gcfbc": "flow",
}  # fmt: skip


@pytest.mark.parametrize("shape", [(4,), (8, 8, 3)])
@pytest.mark.parametrize(
    "rep, algo", [*((rep, "gcbc") for rep in REPS), *(("dual" if algo == "daf" else "vib", algo) for algo in ALGOS)]
)
def test_every_part_is_what_its_export_says(rep, algo, shape):
    if algo == "none" or (len(shape) == 3 and rep != "vib" and rep in REPS and rep not in ("orig", "dual")):
        return
    made = make_policy(rep, algo, shape, discrete=algo == "dqn")
    _, goal, actor = export_check.arrays_and_kinds(made)
    assert (goal["kind"], actor["kind"]) == (KINDS.get(rep, "other"), KINDS.get(algo, "other"))


def test_an_embedding_with_eyes_of_its_own_is_kept_whole(monkeypatch):
    monkeypatch.setitem(REPS, "eyes", type("Eyes", (REPS["dual"],), {"fusion": "late"}))
    made = make_policy("eyes", "gcbc", (8, 8, 3))
    arrays, goal, actor = export_check.arrays_and_kinds(made)
    assert (goal, actor["kind"]) == ({"kind": "other"}, "gaussian")
    assert any(name.startswith("goal/phi/encoder/") for name in arrays)
    params = export_arrays.unflatten(made.run.rep, made.run.algo, made.params, arrays, "x", {"goal"})
    assert jax.tree.structure(params) == jax.tree.structure(made.params)


def test_a_damaged_export_is_one_line(run, tmp_path, capsys):
    file = export.export_policy(run, tmp_path / "p.safetensors")
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(UserError, match="is not the file that p.json describes"):
        policy.load(file)
    (tmp_path / "p.json").write_text("{}")
    with pytest.raises(UserError, match="does not describe an export"):
        policy.load(file)
    (tmp_path / "p.json").unlink()
    with pytest.raises(UserError, match="an export is a safetensors file and a JSON file"):
        policy.load(file)
    about = json.loads((export.export_policy(run, tmp_path / "q.safetensors").with_suffix(".json")).read_text())
    assert about["facts"]["dataset"]["file"] is None, "no path of this machine"


# Labels ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["npz", "parquet"])
def test_rows_get_their_distance_and_advantage(run, folder, tmp_path, kind, monkeypatch):
    monkeypatch.setattr("dualgoal.runs.labels.BATCH", 10)  # several batches, across ends of episodes
    out = tmp_path / f"labels.{kind}"
    if kind == "parquet":
        table = pytest.importorskip("pyarrow.parquet", reason="pip install 'dualgoal[parquet]'")
    assert main(["label", str(run), "--data", str(folder), "--out", str(out), "--quiet"]) == 0
    found = table.read_table(out).to_pydict() if kind == "parquet" else dict(np.load(out))
    columns = {name: np.asarray(column) for name, column in found.items()}
    rows, loaded = dataset.load(folder, TASK), policy.load(run)
    assert list(columns) == ["episode", "step", "distance", "advantage"]
    assert columns["episode"].tolist() == [0] * 9 + [1] * 9 + [2] * 9
    assert columns["step"].tolist() == list(range(9)) * 3
    goals = rows.observations[rows.ends[columns["episode"]]]
    np.testing.assert_allclose(columns["distance"], loaded.distance(rows.observations, goals), rtol=1e-3, atol=1e-3)
    gain = loaded.value(rows.observations[1:], goals[:-1]) - loaded.value(rows.observations[:-1], goals[:-1])
    inside = ~rows.terminals[:-1]
    np.testing.assert_allclose(columns["advantage"][:-1][inside], gain[inside], atol=1e-5)
    assert np.isnan(columns["advantage"][rows.terminals]).all()
    facts = json.loads(out.with_suffix(".json").read_text())
    assert facts["data_sha256"] == rows.provenance["sha256"] and facts["run_id"] == loaded.run.id
    assert set(facts["columns"]) == set(columns) and facts["goal"] == "the last row of the episode"


def test_rows_can_have_one_goal(run, folder, tmp_path, capsys):
    out = tmp_path / "one.npz"
    words = ["label", str(run), "--data", str(folder), "--quiet", "--split", "val"]
    assert main([*words, "--out", str(out), "--goal", "3", "4.5"]) == 0
    rows, loaded = dataset.load(folder, TASK, "val"), policy.load(run)
    wanted = loaded.distance(rows.observations, [3.0, 4.5])
    np.testing.assert_allclose(np.load(out)["distance"], wanted, rtol=1e-3, atol=1e-3)
    np.save(tmp_path / "goal.npy", np.array([3.0, 4.5], np.float32))
    (tmp_path / "goal.json").write_text("[3, 4.5]")
    (tmp_path / "goal.txt").write_text("3, 4.5\n")
    again = tmp_path / "two.npz"
    for name in ("goal.npy", "goal.json", "goal.txt"):
        assert main([*words, "--out", str(again), "--goal", str(tmp_path / name)]) == 0
        np.testing.assert_array_equal(np.load(again)["distance"], np.load(out)["distance"])
    before = out.read_bytes()
    out.unlink()  # as a process leaves it that is killed between the two files
    for _ in range(2):
        assert main([*words, "--out", str(out), "--goal", "3", "4.5"]) == 0 and out.read_bytes() == before
    capsys.readouterr()
    np.save(tmp_path / "goals.npy", rows.observations)
    (tmp_path / "goal.npz").write_bytes(b"")
    (tmp_path / "mine.json").write_text("{}")
    for more, message in (
        (["--out", str(tmp_path / "goal.npz")], "is not labels"),
        (["--out", str(tmp_path / "mine.npz")], "is not labels"),
        (["--out", str(tmp_path / "x.csv")], "expected a name that ends in .npz or .parquet"),
        (["--out", str(tmp_path / "x.npz"), "--goal", "1", "2", "3"], "goal has shape (3,)"),
        (["--out", str(tmp_path / "x.npz"), "--goal", str(tmp_path / "goals.npy")], "one for all rows, of shape (2,)"),
        (["--out", str(tmp_path / "x.npz"), "--goal", "1", "nan"], "a number is not finite"),
        (["--out", str(tmp_path / "x.npz"), "--goal", "there"], "expected numbers, or a file"),
        (["--out", str(tmp_path / "x.npz"), "--goal", str(tmp_path / "mine.json")], "mine.json: no list of goals"),
    ):
        assert main([*words, *more]) == 2
        line = capsys.readouterr().err
        assert message in line and line.count("\n") == 1


def test_labels_need_rows_of_the_same_kind(run, tmp_path):
    np.savez(tmp_path / "other.npz", observations=np.zeros((6, 3), np.float32), actions=np.zeros((6, 2), np.float32),
             terminals=np.arange(6) % 3 == 2)  # fmt: skip
    from dualgoal.runs import labels

    with pytest.raises(UserError, match=r"observations have shape \(3,\), but the run was trained on \(2,\)"):
        labels.write_labels(run, tmp_path / "other.npz", tmp_path / "x.npz")
    assert not (tmp_path / "x.npz").exists()

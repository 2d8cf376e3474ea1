"""Own data: other names, other layouts, other libraries, all ending in the same two files."""

import json
import subprocess
import sys

import numpy as np
import pytest

from dualgoal import files
from dualgoal.cli.main import main
from dualgoal.data import dataset, importing, info
from dualgoal.errors import UserError

LENGTHS = (4, 6, 3, 5)


def episodes(dim=3, lengths=LENGTHS, extra=0):
    rng = np.random.default_rng(0)
    return [
        (rng.normal(size=(n + extra, dim)).astype(np.float32), rng.uniform(-1, 1, (n, 2)).astype(np.float32))
        for n in lengths
    ]


def flat(made, **names):
    ends = np.concatenate([np.arange(len(actions)) == len(actions) - 1 for _, actions in made])
    content = {
        "observations": np.concatenate([o for o, _ in made]), "actions": np.concatenate([a for _, a in made]),
        "terminals": ends,
    }  # fmt: skip
    return {names.get(key, key): value for key, value in content.items()}


def both(folder, name="own"):
    return dataset.load(folder, name), dataset.load(folder, name, split="val")


def test_other_key_names_are_recognised(tmp_path):
    made = episodes()
    np.savez(tmp_path / "own.npz", **flat(made, observations="obs", actions="Action", terminals="dones"))
    file = importing.import_dataset(tmp_path / "own.npz", tmp_path / "out")
    train, val = both(tmp_path / "out")
    assert file == tmp_path / "out" / "own.npz" and (train.episodes, val.episodes) == (3, 1)
    assert np.array_equal(train.observations, np.concatenate([o for o, _ in made[:3]]))
    assert np.array_equal(val.actions, made[3][1])
    record = json.loads((tmp_path / "out" / "own.json").read_text())
    assert record["source"] == "imported" and record["keys"]["observations"] == "obs"


def test_strange_names_are_given_by_hand(tmp_path):
    np.savez(tmp_path / "own.npz", **flat(episodes(), observations="x", terminals="stop"))
    with pytest.raises(UserError, match=r"own.npz: no array looks like observations .*--key observations=NAME"):
        importing.import_dataset(tmp_path / "own.npz", tmp_path / "out")
    with pytest.raises(UserError, match="no array 'y' to use as observations"):
        importing.import_dataset(tmp_path / "own.npz", tmp_path / "out", keys={"observations": "y"})
    with pytest.raises(UserError, match="no key is called 'rewards'"):
        importing.import_dataset(tmp_path / "own.npz", tmp_path / "out", keys={"rewards": "y"})
    with pytest.raises(UserError, match="'observations' is not a pair"):
        importing.import_dataset(tmp_path / "own.npz", tmp_path / "out", keys=["observations"])
    keys = ["observations=x", "terminals=stop"]
    importing.import_dataset(tmp_path / "own.npz", tmp_path / "out", keys=keys, task="mine")
    assert both(tmp_path / "out", "mine")[0].rows == sum(LENGTHS[:3])


def test_episodes_end_where_any_of_three_arrays_says_so(tmp_path, capsys):
    content = flat(episodes(), observations="x")
    ends, numbers = content.pop("terminals"), np.repeat([7, 3, 9, 1], LENGTHS)
    given = {"timeouts": {"timeouts": ends}, "numbers": {"episode_index": numbers, "terminals": np.zeros(18)}}
    given |= {"named": {"terminals": np.arange(18) == 1, "n": numbers[:, None]}, "nothing": {}}
    words = {"named": ["--key", "episodes=n"]}
    for name, arrays in given.items():
        np.savez(tmp_path / f"{name}.npz", **content, **arrays)
        words_of = ["data", "import", str(tmp_path / f"{name}.npz"), "--out", str(tmp_path / "out"), "--quiet"]
        status = main([*words_of, "--key", "observations=x", *words.get(name, [])])  # given twice: both count
        said = capsys.readouterr().err
        assert status == (2 if name == "nothing" else 0), said
        if status == 0:
            assert np.array_equal(both(tmp_path / "out", name)[0].terminals, ends[: sum(LENGTHS[:3])])
    assert "nothing.npz: nothing says where episodes end (it holds x, actions); name it: --key terminals=NAME" in said


def test_single_numbers_are_vectors_of_length_one(tmp_path):
    content = flat(episodes())
    content |= {"height": content["observations"][:, 1], "actions": content["actions"][:, 0]}
    np.savez(tmp_path / "own.npz", **content)
    importing.import_dataset(tmp_path / "own.npz", tmp_path / "out", observation_keys=["height"], goal_keys=["height"])
    train, _ = both(tmp_path / "out")
    assert (train.observation_shape, train.goal_shape, train.action_dim, train.discrete) == ((1,), (1,), 1, False)
    assert np.array_equal(train.actions[:, 0], content["actions"][:13]) and np.array_equal(
        train.goals, train.observations
    )


@pytest.mark.parametrize("kind", [np.uint8, np.bool_])
def test_flags_and_counts_are_vectors_of_numbers(tmp_path, kind):
    rng = np.random.default_rng(0)
    flags = [rng.integers(0, 2, (5, 3)).astype(kind) for _ in range(3)]
    made = [{"observations": rows, "actions": np.zeros((5, 2)), "goals": rows[:, :2]} for rows in flags]
    (tmp_path / "own").mkdir()
    for k, episode in enumerate(made):
        np.savez(tmp_path / "own" / f"{k}.npz", **episode)
    importing.import_dataset(tmp_path / "own", tmp_path / "out", standardize=True)
    train, _ = both(tmp_path / "out")
    in_memory = dataset.Dataset.from_episodes(made, standardize=True)
    for found, expected in ((train, np.concatenate(flags[:2])), (in_memory, np.concatenate(flags))):
        assert found.observations.dtype == found.goals.dtype == np.float32
        assert np.array_equal(found.observations, expected) and np.array_equal(found.goals, expected[:, :2])


@pytest.mark.filterwarnings("ignore:observations, coordinate 1. float32:UserWarning")
def test_standards_are_recorded_and_rows_stay_as_they_are(tmp_path):
    made = episodes()
    np.savez(tmp_path / "own.npz", **flat(made))
    plain = importing.import_dataset(tmp_path / "own.npz", tmp_path / "plain", goal_dims=(2, 0))
    again = [
        importing.import_dataset(tmp_path / "own.npz", tmp_path / "out", goal_dims=(2, 0), standardize=True)
        for _ in range(2)  # the second time, it is there already
    ]
    assert again[0].read_bytes() == again[1].read_bytes() == plain.read_bytes()
    assert "standardized" in (shown := info.text(info.summarize(tmp_path / "out"))) and "action_range" not in shown
    known, rows = both(tmp_path / "out")[0].provenance, np.concatenate([o for o, _ in made]).astype(float)
    for standard, expected in ((known["observation_standard"], rows), (known["goal_standard"], rows[:, [2, 0]])):
        np.testing.assert_allclose([standard["mean"], standard["std"]], [expected.mean(0), expected.std(0)])
    given = [{"observations": o, "actions": a} for o, a in made]
    here = dataset.Dataset.from_episodes(given, goal_dims=(2, 0), standardize=True).provenance
    assert here["observation_standard"] == known["observation_standard"]
    with pytest.raises(UserError, match="already there"):
        importing.import_dataset(tmp_path / "own.npz", tmp_path / "out", goal_dims=(2, 0))
    still = [{"observations": np.ones((3, 2)), "actions": np.zeros((3, 1))}] * 2
    assert dataset.Dataset.from_episodes(still, standardize=True).provenance["observation_standard"]["std"] == [1, 1]
    for number in (36.6, 0.1, 5000.7, 1.7e9 + 0.3):  # whose mean is rounded, and one float32 next to it
        almost = np.float32(number) + np.spacing(np.float32(number))
        for last in (number, almost):
            columns = np.column_stack([rows[:, 0], np.full(len(rows), number)])
            columns[-1, 1] = last
            held = [{"observations": part, "actions": np.zeros((len(part), 1))} for part in (columns[:9], columns[9:])]
            found = dataset.Dataset.from_episodes(held, standardize=True).provenance["observation_standard"]["std"]
            assert found[1] == 1 != found[0], (number, last)
    images = [{"observations": np.zeros((3, 8, 8, 3), np.uint8), "actions": np.zeros((3, 1))}] * 2
    with pytest.raises(UserError, match="--standardize is for vectors"):
        dataset.Dataset.from_episodes(images, standardize=True)


def test_what_float32_cannot_tell_apart_is_said(recwarn):
    def stored(*columns, kind=np.float64):
        rows = np.column_stack(columns).astype(kind)
        dataset.Dataset.from_episodes([{"observations": rows, "actions": np.zeros((len(rows), 1))}] * 2)
        return [str(warning.message) for warning in recwarn.list[-1:]]

    walk = np.cumsum(np.random.default_rng(0).normal(size=200)) / 100
    assert not stored(walk, walk + 50, np.full(200, 5.4e6 + 0.3)), "small, or always the same"
    assert not stored(36.6 + 1e-14 * walk), "the same but for what computing it adds"
    assert not stored(5.4e6 + walk, kind=np.float32), "lost before, so that nobody knows"
    with pytest.warns(UserWarning, match=r"observations, coordinate 1 \(and 1 other\): float32.*subtract a constant"):
        stored(walk, 5.4e6 + walk, 5e5 + walk)
    with pytest.warns(UserWarning, match="coordinate 0: float32.* is off by up to 64, but rows differ by only 1 on"):
        stored(1_700_000_000 + np.arange(200), kind=np.int64)


def test_transitions_get_their_last_state_back(tmp_path):
    made = episodes(extra=1)
    content = {
        "observations": np.concatenate([o[:-1] for o, _ in made]),
        "next_observations": np.concatenate([o[1:] for o, _ in made]),
        "actions": np.concatenate([a for _, a in made]),
        "terminals": np.zeros(sum(LENGTHS), bool),
        "timeouts": np.concatenate([np.arange(n) == n - 1 for n in LENGTHS]),
    }
    np.savez(tmp_path / "own.npz", **content)
    importing.import_dataset(tmp_path / "own.npz", tmp_path / "out")
    train, val = both(tmp_path / "out")
    assert np.array_equal(train.observations, np.concatenate([o for o, _ in made[:3]]))
    assert np.array_equal(val.actions[:-1], made[3][1]) and not val.actions[-1].any()


def test_a_folder_of_episodes(tmp_path):
    made = episodes(extra=1, lengths=(5,) * 23)
    (tmp_path / "own").mkdir()
    for k, (observations, actions) in enumerate(made):
        np.savez(tmp_path / "own" / f"{k:03d}.npz", state=observations, action=actions)
    importing.import_dataset(tmp_path / "own", tmp_path / "out")
    train, val = both(tmp_path / "out")
    assert (train.episodes, val.episodes, train.rows) == (21, 2, 126)
    assert np.array_equal(val.observations, np.concatenate([made[9][0], made[19][0]])), "every tenth is held out"


@pytest.mark.parametrize("channels", [3, 9])
def test_images_keep_their_bytes_and_get_channels_last(channels, tmp_path):
    pictures = np.random.default_rng(0).integers(0, 256, (2, 5, channels, 8, 8)).astype(np.uint8)
    (tmp_path / "own").mkdir()
    for k in range(2):
        np.savez(tmp_path / "own" / f"{k}.npz", images=pictures[k], goals=pictures[k], actions=np.zeros((4, 2)))
    importing.import_dataset(tmp_path / "own", tmp_path / "out")
    train = dataset.load(tmp_path / "out")
    assert train.pixels and train.observation_shape == train.goal_shape == (8, 8, channels)
    assert np.array_equal(train.observations, np.moveaxis(pictures[0], 1, -1))


def test_actions_are_scaled_only_when_asked(tmp_path):
    content = flat(episodes())
    content["actions"] = content["actions"] * [4.0, 0.0] + [1.0, 2.0]
    np.savez(tmp_path / "own.npz", **content)
    with pytest.raises(UserError, match=r"outside \[-1, 1\]; rescale them .*--scale-actions"):
        importing.import_dataset(tmp_path / "own.npz", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    importing.import_dataset(tmp_path / "own.npz", tmp_path / "out", scale_actions=True)
    train, val = both(tmp_path / "out")
    scale = train.provenance["action_range"]
    low, high = np.array(scale["low"]), np.array(scale["high"])
    restored = (np.concatenate([train.actions, val.actions])[:, 0] + 1) / 2 * (high - low)[0] + low[0]
    inside = (content["actions"][:, 0] >= low[0]) & (content["actions"][:, 0] <= high[0])
    assert np.allclose(restored[inside], content["actions"][inside, 0], atol=1e-4) and inside.mean() > 0.8
    assert (train.actions[:, 1] == -1).all(), "a coordinate that never changes"


@pytest.mark.parametrize(
    ("observations", "actions", "problem"),
    [
        (5.0, np.zeros((3, 2)), "'actions' has 3 rows but 'observations' has 1"),
        (np.zeros((3, 2)), 5.0, "'actions' has 1 rows but 'observations' has 3"),
        ([[1.0, 2.0], [3.0]], np.zeros((2, 2)), "not an episode .*inhomogeneous.*; give a dictionary with arrays"),
        ({}, np.zeros((2, 2)), "not an episode"),
        ({"a": np.zeros((4, 1)), "b": np.zeros((5, 2))}, np.zeros((5, 2)), r"numbers of rows \(a 4, b 5\)"),
    ],
)
def test_episodes_in_memory_that_are_none_are_one_line(observations, actions, problem):
    with pytest.raises(UserError, match=f"episode 0: .*{problem}"):
        dataset.Dataset.from_episodes([{"observations": observations, "actions": actions}])


@pytest.mark.parametrize("shape", [(18, 0), (18, 2)])
def test_numbers_of_episodes_are_one_column(tmp_path, shape):
    np.savez(tmp_path / "own.npz", **flat(episodes(), terminals="x"), episode_index=np.zeros(shape))
    with pytest.raises(UserError, match=r"numbers of episodes have shape \(18, \d\); expected \(T,\)"):
        importing.import_dataset(tmp_path / "own.npz", tmp_path / "out")


def test_a_folder_of_single_numbers_is_one_line(tmp_path):
    (tmp_path / "own").mkdir()
    for k in range(2):
        np.savez(tmp_path / "own" / f"{k}.npz", observations=np.float64(3), actions=np.zeros((3, 2)))
    with pytest.raises(UserError, match=r"0.npz: 'actions' has 3 rows but 'observations' has 1"):
        importing.import_dataset(tmp_path / "own", tmp_path / "out")


@pytest.mark.parametrize(
    ("row", "where"), [(5, r"episode 1, from row 4\): 'actions' is nan in row 1"), (3, "episode 0.*row 3")]
)
def test_actions_that_cannot_be_scaled_are_found_where_they_are(tmp_path, row, where):
    content = flat(episodes())
    content["actions"][row] = np.nan  # row 3 is the last of its episode, whose action nobody uses but every file holds
    np.savez(tmp_path / "own.npz", **content)
    with pytest.raises(UserError, match=where):
        importing.import_dataset(tmp_path / "own.npz", tmp_path / "out", scale_actions=True)


def test_actions_are_counted_over_both_files(tmp_path):
    content = flat(episodes())
    content["actions"] = np.arange(sum(LENGTHS)) // 4  # the largest is in the validation file alone
    np.savez(tmp_path / "own.npz", **content)
    importing.import_dataset(tmp_path / "own.npz", tmp_path / "out")
    train, val = both(tmp_path / "out")
    assert train.actions.max() < val.actions.max() == 4 and train.action_dim == val.action_dim == 5


def test_bytes_as_actions_are_scaled_too(tmp_path):
    content = flat(episodes())
    content["actions"] = np.linspace(0, 250, 2 * sum(LENGTHS)).reshape(-1, 2).astype(np.uint8)
    np.savez(tmp_path / "own.npz", **content)
    importing.import_dataset(tmp_path / "own.npz", tmp_path / "out", scale_actions=True)
    train, val = both(tmp_path / "out")
    scaled = np.concatenate([train.actions, val.actions])[:, 0]
    assert scaled.dtype == np.float32 and (np.diff(scaled) >= 0).all()
    assert scaled.min() == -1 and 0.9 < scaled.max() <= 1


def test_scaling_does_not_hide_an_episode_of_one_row(tmp_path):
    np.savez(tmp_path / "own.npz", **(flat(episodes()) | {"terminals": np.ones(18)}))
    with pytest.raises(UserError, match="episode of one row"):
        importing.import_dataset(tmp_path / "own.npz", tmp_path / "out", scale_actions=True)


def test_discrete_actions_with_a_column_become_flat(tmp_path, capsys):
    content = flat(episodes()) | {"actions": (np.arange(sum(LENGTHS)) % 4)[:, None]}
    np.savez(tmp_path / "own.npz", **content)
    with pytest.raises(UserError, match="--scale-actions is for vectors, and these actions are discrete"):
        importing.import_dataset(tmp_path / "own.npz", tmp_path / "out", scale_actions=True)
    importing.import_dataset(tmp_path / "own.npz", tmp_path / "out")
    assert dataset.load(tmp_path / "out").discrete
    assert "own.npz: 4 discrete actions, as actions are single whole numbers; save" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"actions": np.zeros((5, 2))}, "arrays of different lengths .observations 18, actions 5"),
        ({"terminals": np.zeros((18, 3))}, r"'terminals' has shape \(18, 3\)"),
        (
            {"observations": np.full((18, 3), np.nan)},
            r"own.npz \(episode 0, from row 0\): .observations. is nan in row 0",
        ),
        ({"observations": np.zeros((18, 4, 4), np.uint8)}, "no image"),
        ({"terminals": np.ones(18)}, "episode of one row"),
        ({"terminals": np.array(True)}, r"'terminals' has shape \(\)"),
        ({"terminals": np.where(np.arange(18) == 7, np.nan, 0)}, "'terminals' is nan in row 7; expected 0 or 1"),
        ({"terminals": np.where(np.arange(18) == 7, 0.5, 0)}, "'terminals' is 0.5 in row 7; expected 0 or 1"),
        ({"timeouts": np.full(18, 2)}, "'timeouts' is 2 in row 0; expected 0 or 1"),
        ({"next_observations": np.zeros((17, 3))}, "arrays of different lengths .*next_observations 17"),
        ({"terminals": np.zeros(18)}, r"no row ends an episode \(terminals are false everywhere\); mark the last row"),
        ({"terminals": np.arange(18) == 17}, "holds 1 episode; at least 2"),
        (
            {"observations": np.where(np.arange(18)[:, None] == 8, np.nan, 0)},
            "episode 1, from row 4.*nan in row 4, col",
        ),
    ],
)
def test_what_cannot_be_imported_is_one_line_and_writes_nothing(tmp_path, change, message):
    np.savez(tmp_path / "own.npz", **(flat(episodes()) | change))
    with pytest.raises(UserError, match=message) as caught:
        importing.import_dataset(tmp_path / "own.npz", tmp_path / "out")
    assert "\n" not in str(caught.value) and not (tmp_path / "out").exists()


def test_episodes_must_agree_and_targets_be_free(tmp_path):
    (tmp_path / "own").mkdir()
    for k, dim in enumerate((3, 4)):
        np.savez(tmp_path / "own" / f"{k}.npz", obs=np.zeros((5, dim)), actions=np.zeros((4, 2)))
    with pytest.raises(UserError, match=r"1.npz: rows of shapes observations \(4,\), .* but earlier episodes"):
        importing.import_dataset(tmp_path / "own", tmp_path / "out")
    np.savez(tmp_path / "own" / "1.npz", obs=np.zeros((5, 3)), actions=np.zeros((4, 2)))
    made = importing.import_dataset(tmp_path / "own", tmp_path / "out")
    assert importing.import_dataset(tmp_path / "own", tmp_path / "out") == made, "the same again is done already"
    np.savez(tmp_path / "own" / "1.npz", obs=np.ones((5, 3)), actions=np.zeros((4, 2)))
    with pytest.raises(UserError, match="already there, and not from this import"):
        importing.import_dataset(tmp_path / "own", tmp_path / "out")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="holds no npz or HDF5 file"):
        importing.import_dataset(tmp_path / "empty", tmp_path / "out")
    with pytest.raises(UserError, match="no such file"):
        importing.import_dataset(tmp_path / "nothing.npz", tmp_path / "out")


@pytest.mark.parametrize("folder", [True, False])
@pytest.mark.parametrize("other", [{"goal_dims": [0]}, {"keys": {"observations": "more"}}])
def test_other_options_are_another_import(tmp_path, folder, other):
    rows = [{"obs": np.zeros((5, 3)), "more": np.ones((5, 3)), "actions": np.zeros((5, 2))} for _ in range(2)]
    if folder:
        (tmp_path / "own").mkdir()
        for k, episode in enumerate(rows):
            np.savez(tmp_path / "own" / f"{k}.npz", **episode)
    else:
        np.savez(tmp_path / "own.npz", **{key: np.concatenate([r[key] for r in rows]) for key in rows[0]},
                 terminals=np.arange(10) % 5 == 4)  # fmt: skip
    source = tmp_path / ("own" if folder else "own.npz")
    importing.import_dataset(source, tmp_path / "out")
    with pytest.raises(UserError, match="already there, and not from this import"):
        importing.import_dataset(source, tmp_path / "out", **other)


def test_where_nothing_can_be_written_or_another_process_writes(tmp_path):
    np.savez(tmp_path / "own.npz", **flat(episodes()))
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UserError, match="file: cannot be made a folder .file exists."):
        importing.import_dataset(tmp_path / "own.npz", tmp_path / "file")
    files.make_folder(tmp_path / "out")
    with files.locked(tmp_path / "out" / ".own.lock"), pytest.raises(UserError, match="in use by process"):
        importing.import_dataset(tmp_path / "own.npz", tmp_path / "out")
    importing.import_dataset(tmp_path / "own.npz", tmp_path / "out")
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["own-val.npz", "own.json", "own.npz"]


@pytest.mark.filterwarnings("ignore::UserWarning")  # Minari about data without an environment
def test_minari_datasets(tmp_path, monkeypatch):
    minari = pytest.importorskip("minari")
    from gymnasium import spaces
    from minari.data_collector import EpisodeBuffer

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    made = episodes(extra=1)
    buffers = [
        EpisodeBuffer(
            id=k, observations={"position": o, "goal": o[:, :1] * 2}, actions=list(a), rewards=[0.0] * len(a),
            terminations=[False] * len(a), truncations=[False] * (len(a) - 1) + [True], infos={},
        )
        for k, (o, a) in enumerate(made)
    ]  # fmt: skip
    minari.create_dataset_from_buffers(
        dataset_id="own/test-v0", buffer=buffers, algorithm_name="test", author="us", author_email="us@example.org",
        code_permalink="https://example.org", description="test",
        observation_space=spaces.Dict(
            position=spaces.Box(-9, 9, (3,), np.float32), goal=spaces.Box(-9, 9, (1,), np.float32)
        ),
        action_space=spaces.Box(-1, 1, (2,), np.float32),
    )  # fmt: skip
    with pytest.raises(UserError, match=r"observations are dicts \(.*position \(3,\).*--observation-keys"):
        importing.import_dataset("minari:own/test-v0", tmp_path / "out")
    with pytest.raises(UserError, match="no part 'speed'"):
        importing.import_dataset("minari:own/test-v0", tmp_path / "out", observation_keys=["speed"])
    with pytest.raises(UserError, match="--image-size is for LeRobot's frames"):
        importing.import_dataset("minari:own/test-v0", tmp_path / "out", image_size=(8, 8))
    with pytest.raises(UserError, match="--key is for npz, HDF5 and LeRobot"):
        importing.import_dataset("minari:own/test-v0", tmp_path / "out", keys={"observations": "position"})
    importing.import_dataset("minari:own/test-v0", tmp_path / "out", observation_keys=["position", "goal"])
    train, val = both(tmp_path / "out", "test-v0")
    assert train.observation_shape == (4,) and (train.episodes, val.episodes) == (3, 1)
    assert np.array_equal(train.observations[:5, :3], made[0][0])
    assert np.array_equal(train.actions[:4], made[0][1]) and not train.actions[4].any()
    importing.import_dataset(
        tmp_path / "minari" / "own" / "test-v0", tmp_path / "out", observation_keys=["position"], task="again"
    )
    assert dataset.load(tmp_path / "out", "again").observation_shape == (3,)
    options = {"observation_keys": ["position"], "task": "fewer", "skip_episodes": [1]}
    importing.import_dataset("minari:own/test-v0", tmp_path / "out", **options)
    assert np.array_equal(dataset.load(tmp_path / "out", "fewer").observations[5:], made[2][0])
    with pytest.raises(UserError, match="Minari cannot open it|total_episodes is None"):
        importing.import_dataset(tmp_path_with_broken_minari(tmp_path), tmp_path / "out")


def tmp_path_with_broken_minari(tmp_path):
    (tmp_path / "broken" / "data").mkdir(parents=True)
    (tmp_path / "broken" / "data" / "metadata.json").write_text("{}")
    return tmp_path / "broken"


STOP = """
import os, sys
from dualgoal import files
from dualgoal.cli.main import main
from dualgoal.data import importing
move, left = files.move_into_place, int(sys.argv[1])

def moved(temporary, path):
    global left
    if not left:
        os.kill(os.getpid(), 9)
    left -= 1
    move(temporary, path)

files.move_into_place = moved
importing.import_dataset(sys.argv[2], sys.argv[3])
"""


@pytest.mark.parametrize("moves", [0, 1, 2, 3])
def test_an_import_killed_anywhere_is_completed_by_the_same_command(tmp_path, moves):
    source = tmp_path / "mine.npz"
    np.savez(source, **flat(episodes()))
    whole = importing.import_dataset(source, tmp_path / "whole")
    out = tmp_path / "out"
    done = subprocess.run([sys.executable, "-c", STOP, str(moves), str(source), str(out)], capture_output=True)
    assert done.returncode == -9, done.stderr
    again = importing.import_dataset(source, out)
    assert {p.name: p.read_bytes() for p in out.iterdir()} == {p.name: p.read_bytes() for p in whole.parent.iterdir()}
    assert importing.import_dataset(source, out) == again, "a finished import is not an error"
    for other in ({"scale_actions": True}, {"keys": {"actions": "observations"}}):
        with pytest.raises(UserError, match="already there"):
            importing.import_dataset(source, out, **other)


def test_a_truncated_minari_dataset_is_one_line(tmp_path, monkeypatch):
    pytest.importorskip("minari")
    h5py = pytest.importorskip("h5py")
    folder = tmp_path / "mine" / "data"
    folder.mkdir(parents=True)
    (folder / "metadata.json").write_text('{"total_episodes": 1}')
    with h5py.File(folder / "main_data.hdf5", "w") as file:
        file.create_dataset("episode_0/actions", data=np.zeros((200, 2)))
    whole = (folder / "main_data.hdf5").read_bytes()
    for size in (0, 100, len(whole) // 2, len(whole) - 1):
        (folder / "main_data.hdf5").write_bytes(whole[:size])
        with pytest.raises(UserError, match="Minari cannot open it"):
            importing.import_dataset(folder.parent, tmp_path / "out")
    with h5py.File(folder / "main_data.hdf5", "w") as file:
        file.create_dataset("episode_0/actions", (10,), "u1", external=[("/etc/passwd", 0, 10)])
    with pytest.raises(UserError, match="'episode_0/actions' is kept in another file, which is not opened"):
        importing.import_dataset(folder.parent, tmp_path / "out")
    with h5py.File(folder / "main_data.hdf5", "w") as file:
        file.create_dataset("episode_0/actions", data=np.zeros((200, 2)))
    (folder / "metadata.json").write_text('{"total_episodes": 2147483648}')
    with pytest.raises(UserError, match="total_episodes is 2147483648; expected at most"):
        importing.import_dataset(folder.parent, tmp_path / "out")


def test_episodes_in_memory_give_the_arrays_of_an_import(tmp_path):
    """The same episodes from a folder and from memory, scaled, with goals: the same numbers and the same record."""
    made = [(o, 3 * a) for o, a in episodes(extra=1, lengths=(5, 4, 6))]
    (tmp_path / "own").mkdir()
    for k, (observations, actions) in enumerate(made):
        np.savez(tmp_path / "own" / f"{k}.npz", observations=observations, actions=actions)
    options = {"scale_actions": True, "goal_dims": (2, 0)}
    importing.import_dataset(tmp_path / "own", tmp_path / "out", **options)
    train, val = both(tmp_path / "out")
    data = dataset.Dataset.from_episodes([{"observations": o, "actions": a} for o, a in made], "own", **options)
    for name in ("observations", "actions", "terminals", "goals"):
        expected = np.concatenate([getattr(train, name), getattr(val, name)])
        found = getattr(data, name)
        assert np.array_equal(found, expected) and found.dtype == expected.dtype, name
    assert all(data.provenance[key] == train.provenance[key] for key in ("action_range", "goal_space"))


def test_episodes_in_memory_may_have_parts(tmp_path):
    rng = np.random.default_rng(0)
    parts = {"observation": rng.normal(size=(6, 3)), "achieved_goal": rng.normal(size=(6, 2))}
    episode = {"observations": parts, "actions": np.zeros(5, int)}
    data = dataset.Dataset.from_episodes([episode], observation_keys=["observation"], goal_keys=["achieved_goal"])
    assert data.discrete and data.observation_shape == (3,) and data.goal_shape == (2,)
    assert np.array_equal(data.goals, parts["achieved_goal"].astype(np.float32))
    at_last = {"observations": dict(reversed(parts.items())), "actions": np.zeros(5, int)}
    for given in ([episode, at_last], [at_last, episode]):
        whole, names = dataset.Dataset.from_episodes(given), list(given[0]["observations"])
        assert whole.provenance["observation_keys"] == names, "policies join the parts of a dict by this"
        expected = np.concatenate([parts[name] for name in names], axis=1).astype(np.float32)
        assert np.array_equal(whole.observations, np.concatenate([expected, expected])), "in one order for all episodes"
    for wrong, message in (
        ([], "no episodes"),
        (episode, "episodes are a single dictionary; give a list"),
        ([np.zeros((3, 2))], "episode 0: is an ndarray; give a dictionary"),
        ([{"observations": np.zeros((3, 2))}], "episode 0: 'actions' is missing"),
        ([{"observations": np.zeros((3, 2)), "actions": np.full((3, 1), 5.0)}], r"outside \[-1, 1\]"),
        ([{"observations": np.zeros((3, 2)), "actions": np.zeros((7, 1))}], "'actions' has 7 rows"),
    ):
        with pytest.raises(UserError, match=message):
            dataset.Dataset.from_episodes(wrong)


def test_arrays_that_nobody_asked_for_may_hold_objects(tmp_path):
    arrays = flat(episodes()) | {"infos": np.array([{"a": 1}] * 18, dtype=object)}
    np.savez(tmp_path / "own.npz", **arrays)
    importing.import_dataset(tmp_path / "own.npz", tmp_path / "out")
    for options in ({"observation_keys": ["infos"]}, {"keys": {"goals": "infos"}}):
        with pytest.raises(UserError, match="own.npz: 'infos' holds pickled Python objects, which are never loaded"):
            importing.import_dataset(tmp_path / "own.npz", tmp_path / "b", **options)


def test_what_is_not_made_of_numbers_or_no_vector_cannot_be_joined(tmp_path):
    more = {
        "time": np.arange(18).astype("datetime64[s]"),
        "matrix": np.zeros((18, 2, 2)),
        "name": np.full(18, "a"),
    }
    np.savez(tmp_path / "own.npz", **flat(episodes()), **more)
    for name, message in (
        ("time", r"'time' is of type datetime64\[s\]; observations are made of numbers"),
        ("name", r"'name' is of type <U1; observations are made of numbers"),
        ("matrix", r"'matrix' has shape \(4, 2, 2\), and only vectors can be joined; flatten its rows"),
    ):
        with pytest.raises(UserError, match=message) as caught:
            importing.import_dataset(tmp_path / "own.npz", tmp_path / "out", observation_keys=["observations", name])
        assert "images" not in str(caught.value)

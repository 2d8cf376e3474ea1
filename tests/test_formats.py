"""Formats of recordings: the same episodes give the same arrays from each, and what is damaged is one line."""

import json

import numpy as np
import pytest

from dualgoal.cli.main import main
from dualgoal.data import dataset, importing
from dualgoal.errors import UserError

LENGTHS = (4, 6, 3, 5)
FORMATS = ["npz", "folder", "hdf5", "groups", "files", "lerobot"]


@pytest.fixture(scope="module")
def made():
    """Episodes with two parts of an observation, actions in other units than [-1, 1] and a place."""
    rng = np.random.default_rng(0)
    widths = {"observation.joints": 3, "observation.speeds": 2, "action": 2, "place": 2}
    return [{k: 3 * rng.normal(size=(n, w)).astype(np.float32) for k, w in widths.items()} for n in LENGTHS]


def store(kind, folder, made):
    """The episodes in one of the formats; returns what an import is given."""
    joined = {name: np.concatenate([episode[name] for episode in made]) for name in made[0]}
    ends = np.concatenate([np.arange(n) == n - 1 for n in map(len, (e["action"] for e in made))])
    if kind == "npz":
        np.savez(folder / "own.npz", **joined, terminals=ends)
        return folder / "own.npz"
    if kind == "folder":
        (folder / "own").mkdir()
        for k, episode in enumerate(made):
            np.savez(folder / "own" / f"{k}.npz", **episode)
        return folder / "own"
    h5py = None if kind == "lerobot" else pytest.importorskip("h5py", reason="pip install 'dualgoal[hdf5]'")
    if kind == "groups":  # robomimic's: a group for each episode, numbered without leading zeros
        with h5py.File(folder / "own.hdf5", "w") as file:
            file["mask/train"], file["data/total"] = [b"demo_0"], 9
            for k, episode in enumerate(made):
                for name, array in (episode | {"dones": np.zeros(len(episode["action"]))}).items():
                    file[f"data/demo_{k + 9}/{name}"] = array
        return folder / "own.hdf5"
    if kind == "files":  # ALOHA's: a file for each episode
        (folder / "own").mkdir()
        for k, episode in enumerate(made):
            with h5py.File(folder / "own" / f"episode_{k}.hdf5", "w") as file:
                for name, array in episode.items():
                    file[name] = array
        return folder / "own"
    if kind == "hdf5":
        with h5py.File(folder / "own.hdf5", "w") as file:  # D4RL's: all rows, timeouts where episodes were cut
            for name, array in joined.items():
                file[name] = array
            file["terminals"], file["timeouts"] = ends & (np.arange(len(ends)) < 8), ends
            file["infos/qpos"], file["metadata/name"] = np.zeros((len(ends), 4)), "arm"
        return folder / "own.hdf5"
    pytest.importorskip("pyarrow", reason="pip install 'dualgoal[lerobot]'")
    import lerobot_folder

    return lerobot_folder.write(folder / "own", made)


def bring(source, out, **options):
    options = {"observation_keys": ["observation.joints", "observation.speeds"], "goal_keys": ["place"]} | options
    importing.import_dataset(source, out, scale_actions=True, **options)
    return dataset.load(out, "own"), dataset.load(out, "own", split="val")


@pytest.mark.parametrize("kind", FORMATS)
def test_the_same_episodes_give_the_same_arrays(kind, made, tmp_path, monkeypatch):
    monkeypatch.setattr("dualgoal.data.tables.IN_MEMORY", 100 if kind == "npz" else 1 << 20)  # npz by temporary files
    source = store(kind, tmp_path, made)
    train, val = bring(source, tmp_path / "out")
    names = ("observation.joints", "observation.speeds")
    episodes = [{"observations": {n: e[n] for n in names}, "actions": e["action"], "goals": e["place"]} for e in made]
    whole = dataset.Dataset.from_episodes(episodes, observation_keys=names, scale_actions=True)
    for name in ("observations", "actions", "terminals", "goals"):
        found = np.concatenate([getattr(train, name), getattr(val, name)])
        assert np.array_equal(found, getattr(whole, name)) and found.dtype == getattr(whole, name).dtype, name
    record = json.loads((tmp_path / "out" / "own.json").read_text())
    assert len(record["imported_sha256"]) == 64 and record["observation_keys"] == list(names)
    assert record["action_range"] == whole.provenance["action_range"] and record["goal_space"]["keys"] == ["place"]
    assert main(["data", "import", str(source), "--out", str(tmp_path / "out"), "--scale-actions", "--quiet",
                 "--observation-keys", *names, "--goal-keys", "place"]) == 0, "done already"  # fmt: skip


@pytest.mark.parametrize("kind", ["npz", "groups", "lerobot"])
def test_arrays_are_named_by_hand(kind, made, tmp_path):
    keys = {"observations": "observation.speeds", "goals": "place"}
    train, val = bring(store(kind, tmp_path, made), tmp_path / "out", keys=keys, observation_keys=(), goal_keys=())
    for name, key in keys.items():
        found = np.concatenate([getattr(train, name), getattr(val, name)])
        assert np.array_equal(found, np.concatenate([episode[key] for episode in made])), name
    if kind == "lerobot":
        with pytest.raises(UserError, match="--key terminals=NAME is for npz and HDF5 files"):
            bring(tmp_path / "own", tmp_path / "other", keys={"terminals": "place"})


@pytest.mark.parametrize("kind", FORMATS)
def test_a_bad_episode_is_left_out_by_the_number_that_its_message_names(kind, made, tmp_path, capsys):
    bad = {name: array.copy() for name, array in made[1].items()}
    bad["observation.joints"][2, 1] = np.nan
    source = store(kind, tmp_path, [made[0], bad, *made[2:]])
    words = ["data", "import", str(source), "--out", str(tmp_path / "out"), "--scale-actions", "--quiet"]
    words += ["--observation-keys", "observation.joints", "--goal-keys", "place"]
    assert main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "'observations' is nan in row 2, column 1" in line
    assert line.endswith("(--skip-episodes 1 leaves this episode out)") and not (tmp_path / "out").exists()
    for _ in range(2):  # the second finds it done
        assert main([*words, "--skip-episodes", "1"]) == 0
    train, val = dataset.load(tmp_path / "out", "own"), dataset.load(tmp_path / "out", "own", split="val")
    kept = [made[k]["observation.joints"] for k in (0, 2, 3)]
    assert np.array_equal(train.observations, np.concatenate(kept[:2])) and np.array_equal(val.observations, kept[2])
    assert json.loads((tmp_path / "out" / "own.json").read_text())["skipped_episodes"] == [1]
    capsys.readouterr()
    assert main([*words, "--skip-episodes", "1,3"]) == 2
    assert "already there, and not from this import" in capsys.readouterr().err
    assert main(["data", "info", str(tmp_path / "out")]) == 0
    assert "skipped_episodes" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("skip", "words"),
    [
        (["x"], "--skip-episodes is 'x'; expected a whole number"),
        (["1.5"], "--skip-episodes is '1.5'; expected a whole number"),
        (["3-1"], "--skip-episodes: the range 3-1 is empty"),
        (["0", "4"], "own.npz: no episode 4 to skip; it holds 4, counted from 0"),
        (["-1"], "own.npz: no episode -1 to skip; it holds 4, counted from 0"),
        (["0-3"], "own.npz: holds 4 episodes, and --skip-episodes leaves none; at least 2 are needed"),
        (["0", "0-2"], "own.npz: holds 4 episodes, and --skip-episodes leaves 1; at least 2 are needed"),
    ],
)
def test_episodes_that_cannot_be_left_out_are_one_line(skip, words, made, tmp_path, capsys):
    source = store("npz", tmp_path, made)
    options = ["--observation-keys", "observation.joints", "--scale-actions", "--quiet", "--skip-episodes", *skip]
    assert main(["data", "import", str(source), "--out", str(tmp_path / "out"), *options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line and not (tmp_path / "out").exists()


def test_the_number_of_an_episode_is_that_in_the_source_also_behind_one_that_is_left_out(made, tmp_path):
    bad = made[3] | {"action": np.full_like(made[3]["action"], np.inf)}
    source = store("folder", tmp_path, [*made[:3], bad, made[0]])
    with pytest.raises(UserError, match=r"^3.npz: 'actions' is inf in row 0.* \(--skip-episodes 3 leaves this"):
        bring(source, tmp_path / "out", skip_episodes=[0, 1])
    with pytest.raises(UserError, match=r"^0.npz: 'actions' is .*, outside \[-1, 1\]; rescale them .* in Python\)$"):
        importing.import_dataset(source, tmp_path / "out", keys={"observations": "place"})  # wrong with all of them
    train, val = bring(source, tmp_path / "out", skip_episodes=np.array([3, 0]))
    assert (train.rows, val.rows) == (6 + 3, 4)
    assert train.provenance["skipped_episodes"] == [0, 3]


@pytest.mark.parametrize("kind", ["folder", "files", "npz"])
def test_all_bad_episodes_are_named_at_once(kind, made, tmp_path, capsys):
    inf, nan = ({**made[2], name: np.full_like(made[2][name], bad)} for name, bad in
                (("action", np.inf), ("observation.joints", np.nan)))  # fmt: skip
    source = store(kind, tmp_path, [*made, made[0], inf, made[2], nan])
    words = r"is inf in row .* \(1 other episode cannot be used either; --skip-episodes 5 7 leaves all of them out\)$"
    with pytest.raises(UserError, match=words):
        bring(source, tmp_path / "out")
    train, val = bring(source, tmp_path / "out", skip_episodes=(5, 7))
    assert train.episodes + val.episodes == 6


def test_progress_is_shown_unless_it_is_unwanted(made, tmp_path, capsys):
    source = store("npz", tmp_path, made)
    for quiet in (True, False):
        out = tmp_path / str(quiet)
        importing.import_dataset(source, out, observation_keys=["observation.joints"], scale_actions=True, quiet=quiet)
        said = capsys.readouterr().out
        assert said == "" if quiet else all(f"{word} " in said for word in ("checking", "own.npz", "own-val.npz")), said


def test_parts_of_different_lengths_are_one_line(tmp_path):
    ends = np.arange(8) % 4 == 3
    np.savez(tmp_path / "own.npz", a=np.zeros((5, 2)), b=np.zeros((8, 1)), actions=np.zeros((8, 2)), terminals=ends)
    with pytest.raises(UserError, match=r"own.npz: arrays of different lengths \(actions 8, a 5, b 8, terminals 8\)"):
        importing.import_dataset(tmp_path / "own.npz", tmp_path / "out", observation_keys=["a", "b"])


@pytest.mark.parametrize("kind", FORMATS)
def test_what_is_damaged_or_missing_is_one_line(kind, made, tmp_path, capsys):
    source = store(kind, tmp_path, made)
    with pytest.raises(UserError, match=r"'nothing'"):
        bring(source, tmp_path / "out", observation_keys=["nothing"])
    files = [source] if source.is_file() else sorted(f for f in source.rglob("*") if f.is_file())
    for file in files:
        content = file.read_bytes()
        for broken in (content[: len(content) // 2], b"", content[:40] + bytes(len(content) - 40)):
            file.write_bytes(broken)
            status = main(["data", "import", str(source), "--out", str(tmp_path / "out"), "--task", "own", "--quiet",
                           "--observation-keys", "observation.joints", "--scale-actions"])  # fmt: skip
            lines = capsys.readouterr().err.splitlines()
            assert status == 2 and len(lines) == 1 and "Traceback" not in lines[0], (file.name, lines)
            assert not (tmp_path / "out" / "own.npz").exists()
        file.write_bytes(content)


def test_frames_of_videos(tmp_path):
    pytest.importorskip("pyarrow", reason="pip install 'dualgoal[lerobot]'")
    pytest.importorskip("imageio_ffmpeg", reason="pip install 'dualgoal[lerobot]'")
    import lerobot_folder

    rng = np.random.default_rng(0)
    shade = lambda n: np.kron(rng.integers(0, 256, (n, 2, 2, 3), np.uint8), np.ones((1, 8, 8, 1), np.uint8))
    made = [{"observation.images.top": shade(n), "action": rng.uniform(-1, 1, (n, 2))} for n in (5, 7, 4)]
    source = lerobot_folder.write(tmp_path / "own", made)
    importing.import_dataset(source, tmp_path / "out", task="own")  # the only observation needs no name
    train, val = dataset.load(tmp_path / "out", "own"), dataset.load(tmp_path / "out", "own", split="val")
    frames = np.concatenate([train.observations, val.observations])
    assert frames.dtype == np.uint8 and np.array_equal(
        frames, np.concatenate([e["observation.images.top"] for e in made])
    )
    importing.import_dataset(source, tmp_path / "small", task="own", image_size=(8, 4))
    assert dataset.load(tmp_path / "small", "own").observation_shape == (8, 4, 3)
    with pytest.raises(UserError, match="--image-size 8: expected height and width"):
        importing.import_dataset(source, tmp_path / "x", image_size=(8,))
    (video,) = (source / "videos").glob("*/*/file-001.mp4")
    video.write_bytes(video.read_bytes()[:200])
    with pytest.raises(UserError, match="cannot be decoded"):
        importing.import_dataset(source, tmp_path / "x")
    video.unlink()
    with pytest.raises(UserError, match=r"file-001.mp4: no such file; copy the folder with its videos"):
        importing.import_dataset(source, tmp_path / "x")


def test_older_lerobot_folders_and_other_files_get_an_answer_that_fits(tmp_path, made, capsys):
    pytest.importorskip("pyarrow", reason="pip install 'dualgoal[lerobot]'")
    source = store("lerobot", tmp_path, made)
    table = next((source / "data").glob("*/*.parquet"))
    with pytest.raises(UserError, match="not a readable npz.*Parquet; a LeRobot dataset is a folder"):
        importing.import_dataset(table, tmp_path / "out")
    info = source / "meta" / "info.json"
    info.write_text(info.read_text().replace("v3.0", "v2.1"))
    with pytest.raises(UserError, match=r"LeRobot format v2.1; convert it to v3.0"):
        importing.import_dataset(source, tmp_path / "out")
    h5py = pytest.importorskip("h5py", reason="pip install 'dualgoal[hdf5]'")
    with h5py.File(tmp_path / "x.hdf5", "w") as file:
        file["data/demo_0/obs"], file["data/demo_0/actions"] = np.zeros((4, 2)), np.zeros((4, 2))
    with pytest.raises(UserError, match=r"x.hdf5: not a readable npz .* HDF5; convert it with 'dualgoal data import'"):
        dataset.load(tmp_path / "x.hdf5")
    with pytest.raises(UserError, match=r"no array looks like observations .*data/demo_0/obs.*--observation-keys"):
        importing.import_dataset(tmp_path / "x.hdf5", tmp_path / "out")  # a single group may hold all episodes
    with h5py.File(tmp_path / "x.hdf5", "a") as file:
        file["data/demo_1/obs/q"], file["data/demo_1/actions"] = np.zeros((4, 2)), np.zeros((4, 2))
    with pytest.raises(
        UserError, match=r"x.hdf5 \(data/demo_1\): does not say which .* observations \(it holds obs/q\)"
    ):
        importing.import_dataset(tmp_path / "x.hdf5", tmp_path / "out")
    with h5py.File(tmp_path / "y.hdf5", "w") as file:
        file["observations"] = h5py.ExternalLink(tmp_path / "x.hdf5", "data/demo_0/obs")
    with pytest.raises(UserError, match="kept in another file, which is not opened"):
        importing.import_dataset(tmp_path / "y.hdf5", tmp_path / "out")


def test_data_in_other_files_is_not_read_however_deep(tmp_path):
    h5py = pytest.importorskip("h5py", reason="pip install 'dualgoal[hdf5]'")
    (tmp_path / "secret").write_bytes(bytes(96))
    name = "/".join("abcdefghijklmno")
    with h5py.File(tmp_path / "z.hdf5", "w") as file:
        file.create_dataset(name, (8, 3), "f4", external=[(str(tmp_path / "secret"), 0, 96)])
        file["actions"], file["terminals"] = np.zeros((8, 2)), np.arange(8) % 4 == 3
        file["nowhere"] = h5py.SoftLink("/missing")
    with pytest.raises(UserError, match=f"'{name}' is kept in another file, which is not opened"):
        importing.import_dataset(tmp_path / "z.hdf5", tmp_path / "out", keys={"observations": name})

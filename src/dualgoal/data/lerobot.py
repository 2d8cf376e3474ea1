"""Episodes out of a LeRobot v3 folder, for `dualgoal data import FOLDER`; without lerobot, by pyarrow and ffmpeg.

    meta/info.json                                what is recorded: names, types and shapes, frames per second
    meta/episodes/chunk-000/file-000.parquet      for each episode its length and where its rows and frames are
    data/chunk-000/file-000.parquet               the rows of many episodes
    videos/CAMERA/chunk-000/file-000.mp4          their frames, one after the other

Rows are read file by file and frames episode by episode.
"""

import io
import subprocess
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from dualgoal import imports, jsons
from dualgoal.data import goals
from dualgoal.data.contents import Parts
from dualgoal.data.origin import Origin, digest
from dualgoal.data.sources import Episode, Rows, Source
from dualgoal.errors import UserError, one_line

DATA = "data/chunk-{:03d}/file-{:03d}.parquet"
VIDEO = "videos/{}/chunk-{:03d}/file-{:03d}.mp4"
EXTRA = "lerobot"
NOT_WHOLE = "it is not a whole LeRobot v3 folder"
MOST_EPISODES = 1_000_000
LARGEST = 1 << 20  # of one axis


def is_lerobot(folder: Path) -> bool:
    return (folder / "meta" / "info.json").is_file()


def open_folder(folder: Path, parts: Parts, image_size: tuple[int, int] | None = None) -> Source:
    """All episodes of a LeRobot folder. Frames are scaled to `image_size` (height, width) if one is given."""
    recording = Recording(folder, image_size)
    keys = {"actions": "action"} | {key: name for key, name in parts.keys.items() if name}
    if unused := [key for key in keys if key not in ("observations", "actions", "goals")]:
        raise UserError(f"{folder.name}: --key {unused[0]}=NAME is for npz and HDF5 files; LeRobot's say it themselves")
    if "observations" not in keys and not parts.observation:
        keys["observations"] = recording.usual_observation()
    joined = {key: (name,) for key, name in keys.items()} | parts.joined
    for names in joined.values():
        for name in names:
            recording.check(name)

    def read(row: dict[str, int]) -> Rows:
        where = recording.place(row)
        join = lambda what: goals.join(where, what, {n: recording.read(n, row) for n in joined[what]}, joined[what])
        return Rows(join("observations"), join("actions"), join("goals") if "goals" in joined else None)

    return Source(
        [Episode(recording.place(row), partial(read, row)) for row in recording.episodes()],
        Origin(
            source="imported", imported_from=folder.name, imported_sha256=digest(folder, recording.files(joined)),
            keys={key: name for key, name in keys.items() if key not in ("observations", *parts.joined)},
            observation_keys=joined["observations"], image_size=image_size or (),
        ),
    )  # fmt: skip


class Recording:
    """A LeRobot folder: what its info file says, and columns of single episodes."""

    def __init__(self, folder: Path, image_size: tuple[int, int] | None):
        self.folder, self.image_size = folder, image_size
        self._parquet = imports.optional("pyarrow.parquet", EXTRA, f"{folder.name}: reading a LeRobot folder")
        info = jsons.json_object(
            jsons.read(folder / "meta" / "info.json", follow=True), f"{folder.name}/meta/info.json:"
        )
        version = str(info.get("codebase_version"))
        if not version.startswith("v3"):
            raise UserError(f"{folder.name}: LeRobot format {version}; convert it to v3.0 with lerobot, then import it")
        features, fps = info.get("features"), info.get("fps")
        if not isinstance(features, dict) or not isinstance(fps, int | float) or not fps > 0:
            raise UserError(f"{folder.name}/meta/info.json: no 'features' and 'fps' in it; restore the file")
        self.fps = float(fps)
        self.features = {name: about for name, about in features.items() if isinstance(about, dict)}
        self._table = lru_cache(maxsize=1)(self._read_table)

    def usual_observation(self) -> str:
        """The name of what robots call their state, or of the only observation."""
        names = [name for name in self.features if name.startswith("observation")]
        if "observation.state" in names:
            return "observation.state"
        if len(names) != 1:
            there = ", ".join(names) or "none"
            raise UserError(f"{self.folder.name}: observations are {there}; choose with --observation-keys")
        return names[0]

    def place(self, row: dict[str, int]) -> str:
        """What an episode is called in messages."""
        return f"{self.folder.name} (episode {row['episode_index']})"

    def check(self, name: str) -> None:
        if name not in self.features or {"..", ""} & set(name.split("/")):
            raise UserError(f"{self.folder.name}: records no '{name}' (it has {', '.join(self.features)})")

    def kind(self, name: str) -> str:
        return str(self.features[name].get("dtype"))

    def episodes(self) -> list[dict[str, int]]:
        """For each episode where its rows and frames are, in order."""
        files = sorted((self.folder / "meta" / "episodes").glob("*/*.parquet"))
        if not files:
            raise UserError(f"{self.folder.name}: meta/episodes holds no parquet file; {NOT_WHOLE}")
        needed = ["episode_index", "length", "data/chunk_index", "data/file_index"]
        rows: list[dict[str, int]] = []
        for file in files:
            with one_line(file.name):
                names = self._parquet.ParquetFile(file).schema_arrow.names
                if missing := [name for name in needed if name not in names]:
                    raise UserError(f"{file.name}: has no column '{missing[0]}'; {NOT_WHOLE}")
                videos = [n for n in names if n.startswith("videos/")]
                rows += self._parquet.read_table(file, columns=needed + videos).to_pylist()
        if len(rows) > MOST_EPISODES:
            raise UserError(f"{self.folder.name}: claims {len(rows):,} episodes; expected at most {MOST_EPISODES:,}")
        for row in rows:
            if wrong := [name for name in needed if not isinstance(row[name], int) or row[name] < 0]:
                raise UserError(f"{self.folder.name}: an episode's '{wrong[0]}' is {row[wrong[0]]}; {NOT_WHOLE}")
        return sorted(rows, key=lambda row: row["episode_index"])

    def files(self, joined: dict[str, tuple[str, ...]]) -> list[Path]:
        """The files that an import of these columns reads."""
        cameras = {name for names in joined.values() for name in names if self.kind(name) == "video"}
        found = [self.folder / "meta" / "info.json", *self.folder.glob("meta/episodes/*/*.parquet")]
        found += self.folder.glob("data/*/*.parquet")
        return sorted(found + [f for camera in cameras for f in (self.folder / "videos" / camera).glob("*/*.mp4")])

    def read(self, name: str, row: dict[str, int]) -> np.ndarray:
        """One column of one episode, with a row for each frame."""
        array = self._frames(name, row) if self.kind(name) == "video" else self._column(name, row)
        if len(array) != row["length"]:
            where = self.place(row)
            raise UserError(f"{where}: '{name}' has {len(array)} rows, expected {row['length']}; a file is truncated")
        return array

    def _read_table(self, file: str) -> Any:
        with one_line(file):
            return self._parquet.read_table(self.folder / file)

    def _column(self, name: str, row: dict[str, int]) -> np.ndarray:
        file = DATA.format(int(row["data/chunk_index"]), int(row["data/file_index"]))
        table = self._table(file)
        with one_line(file):
            mine = np.asarray(table.column("episode_index")) == row["episode_index"]
            column = table.column(name).filter(mine).combine_chunks()
            if self.kind(name) == "image":
                return np.stack([self._picture(cell["bytes"]) for cell in column.to_pylist()])
            if column.null_count:
                raise ValueError(f"'{name}' has empty cells")
            single_numbers = not hasattr(column, "value_lengths")
            while hasattr(column, "value_lengths"):  # lists, perhaps of lists
                column = column.flatten()
            values = np.asarray(column)
            return values if single_numbers else values.reshape(int(mine.sum()), *self._shape(name))

    def _shape(self, name: str) -> tuple[int, ...]:
        shape = self.features[name].get("shape")
        if not isinstance(shape, list) or not all(isinstance(n, int) and 0 < n <= LARGEST for n in shape):
            raise UserError(f"{self.folder.name}/meta/info.json: '{name}' has shape {shape}; restore the file")
        return tuple(shape)

    def _picture(self, content: bytes) -> np.ndarray:
        pillow = imports.optional("PIL.Image", EXTRA, f"{self.folder.name}: reading images")
        picture = pillow.open(io.BytesIO(content)).convert("RGB")
        if self.image_size is not None:
            picture = picture.resize(self.image_size[::-1], pillow.Resampling.BOX)
        return np.asarray(picture)

    def _frames(self, name: str, row: dict[str, int]) -> np.ndarray:
        """The frames of one episode, decoded by ffmpeg, which finds the first one by its time."""
        ffmpeg = imports.optional("imageio_ffmpeg", EXTRA, f"{self.folder.name}: reading videos").get_ffmpeg_exe()
        at: dict[str, Any] = {
            key: row.get(f"videos/{name}/{key}") for key in ("chunk_index", "file_index", "from_timestamp")
        }
        if missing := [key for key, value in at.items() if value is None]:
            raise UserError(f"{self.folder.name}: meta/episodes has no 'videos/{name}/{missing[0]}'")
        file = self.folder / VIDEO.format(name, int(at["chunk_index"]), int(at["file_index"]))
        if not file.is_file():
            raise UserError(f"{file}: no such file; copy the folder with its videos")
        height, width = self.image_size or self._video_size(name)
        early = max(0.0, float(at["from_timestamp"]) - 0.5 / self.fps)  # half a frame, as times are rounded
        command = [ffmpeg, "-loglevel", "error", "-protocol_whitelist", "file", "-f", "mov", "-ss", f"{early:.6f}"]
        command += ["-i", str(file.absolute()), "-frames:v", str(row["length"]), "-fps_mode", "passthrough"]
        command += [] if self.image_size is None else ["-vf", f"scale={width}:{height}:flags=area"]
        command += ["-f", "rawvideo", "-pix_fmt", "rgb24", "pipe:1"]
        done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL)
        if done.returncode or len(done.stdout) % (height * width * 3):
            reason = " ".join(done.stderr.decode(errors="replace").split())[-120:] or "frames of another size"
            raise UserError(f"{file}: cannot be decoded ({reason}); the file is damaged")
        return np.frombuffer(done.stdout, np.uint8).reshape(-1, height, width, 3)

    def _video_size(self, name: str) -> tuple[int, int]:
        """Height and width; info files have channels first or last, and say which."""
        shape, names = self._shape(name), self.features[name].get("names") or []
        if len(shape) != 3:
            raise UserError(
                f"{self.folder.name}: frames of '{name}' have shape {shape}; expected height, width, channels"
            )
        first = str(names[0]) if isinstance(names, list) and names else ""
        channels_first = first.startswith("c") or (not first and shape[0] in (1, 3))
        return (shape[1], shape[2]) if channels_first else (shape[0], shape[1])

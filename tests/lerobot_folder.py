"""A tiny writer of LeRobot v3 folders, after the layout in LeRobot's documentation, to test the importer with."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

FPS = 10
INFO = {
    "codebase_version": "v3.0", "robot_type": None, "total_tasks": 1, "chunks_size": 1000, "fps": FPS,
    "data_files_size_in_mb": 100, "video_files_size_in_mb": 200,
    "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
    "video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
}  # fmt: skip


def write(folder: Path, episodes: list[dict[str, np.ndarray]], per_file: int = 2) -> Path:
    """Episodes of columns by name; (T, H, W, 3) uint8 become a video without loss. `per_file` episodes share a file."""
    videos = [name for name, column in episodes[0].items() if column.ndim == 4]
    known, index = [], 0
    for number in range(0, len(episodes), per_file):
        at, rows = number // per_file, []
        seconds = 0.0
        for k, episode in enumerate(episodes[number : number + per_file], number):
            length = len(next(iter(episode.values())))
            entry = {"episode_index": k, "length": length, "tasks": ["reach"], "data/chunk_index": 0}
            entry |= {"data/file_index": at, "dataset_from_index": index, "dataset_to_index": index + length}
            for name in videos:
                ends = {"from_timestamp": seconds, "to_timestamp": seconds + length / FPS}
                entry |= {f"videos/{name}/{key}": value for key, value in ends.items()}
                entry |= {f"videos/{name}/chunk_index": 0, f"videos/{name}/file_index": at}
            seconds += length / FPS
            columns = {name: column for name, column in episode.items() if name not in videos}
            for n in range(length):
                cells = {name: column[n].tolist() for name, column in columns.items()}
                times = {"timestamp": n / FPS, "frame_index": n, "episode_index": k, "index": index + n}
                rows.append({**cells, **times, "task_index": 0})
            index += length
            known.append(entry)
        types = {name: pa.list_(pa.float32()) for name in columns}
        fields = [
            pa.field(name, types.get(name, pa.float32() if name == "timestamp" else pa.int64())) for name in rows[0]
        ]
        _table(folder / f"data/chunk-000/file-{at:03d}.parquet", pa.Table.from_pylist(rows, pa.schema(fields)))
        for name in videos:
            frames = np.concatenate([e[name] for e in episodes[number : number + per_file]])
            _video(folder / f"videos/{name}/chunk-000/file-{at:03d}.mp4", frames)
    _table(folder / "meta/episodes/chunk-000/file-000.parquet", pa.Table.from_pylist(known))
    features = {
        name: {"dtype": "video" if name in videos else "float32", "shape": list(column.shape[1:]),
               "names": ["height", "width", "channels"] if name in videos else None}
        for name, column in episodes[0].items()
    }  # fmt: skip
    counts = {"total_episodes": len(episodes), "total_frames": index, "splits": {"train": f"0:{len(episodes)}"}}
    (folder / "meta" / "info.json").write_text(json.dumps({**INFO, **counts, "features": features}))
    return folder


def _table(file: Path, table: pa.Table) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, file)


def _video(file: Path, frames: np.ndarray) -> None:
    import imageio_ffmpeg

    file.parent.mkdir(parents=True, exist_ok=True)
    size = f"{frames.shape[2]}x{frames.shape[1]}"
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-y", "-loglevel", "error", "-f", "rawvideo", "-pix_fmt", "rgb24"]
    command += ["-s", size, "-r", str(FPS), "-i", "-", "-c:v", "libx264rgb", "-qp", "0", "-g", "4", str(file)]
    subprocess.run(command, input=frames.tobytes(), check=True)

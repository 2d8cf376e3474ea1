"""Small datasets, as arrays and as files."""

import numpy as np


def arrays(lengths=(4, 3, 5), dim=3, seed=0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    rows = sum(lengths)
    terminals = np.zeros(rows, bool)
    terminals[np.cumsum(lengths) - 1] = True
    return {
        "observations": rng.normal(size=(rows, dim)).astype(np.float32),
        "actions": rng.uniform(-1, 1, (rows, 2)).astype(np.float32),
        "terminals": terminals,
    }


def images(rows=6) -> dict[str, np.ndarray]:
    pictures = np.random.default_rng(0).integers(0, 256, (rows, 8, 8, 3)).astype(np.uint8)
    return {**arrays((rows,)), "observations": pictures}


def write(folder, content, name="set.npz"):
    np.savez_compressed(folder / name, **content)
    return folder / name


def put(row, value):
    def change(array):
        array = array.copy()
        array[row] = value
        return array

    return change

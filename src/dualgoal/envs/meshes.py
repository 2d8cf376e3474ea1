"""Meshes with fewer triangles, for images of 64x64 pixels.

The arm of the manipulation tasks consists of 185,000 triangles, far more than its images have pixels, and drawing them
takes most of the time of making image data. Here, corners that lie in the same small cube are drawn as one, and
triangles that collapse are left out. A renderer copies the meshes when it is made, so this is done for that moment
only: the simulation keeps its meshes.
"""

import contextlib
from collections.abc import Iterator

import mujoco
import numpy as np

FEW = 500  # meshes with fewer triangles cost little and stay as they are: buttons, handles, the tips of the gripper


@contextlib.contextmanager
def coarse(model: mujoco.MjModel, cell: float) -> Iterator[None]:
    """Inside, a mesh of `model` has at most one corner per cube of `cell` millimetres; afterwards it is as it was."""
    changed = (model.mesh_facenum, model.mesh_face, model.mesh_facenormal, model.mesh_facetexcoord)
    before = [array.copy() for array in changed]
    try:
        _coarsen(model, cell)
        yield
    finally:
        for array, content in zip(changed, before, strict=True):
            array[:] = content


def _coarsen(model: mujoco.MjModel, cell: float) -> None:
    for mesh in range(model.nmesh):
        begin, count = model.mesh_faceadr[mesh], model.mesh_facenum[mesh]
        if count < FEW:
            continue
        first = model.mesh_vertadr[mesh]
        vertices = model.mesh_vert[first : first + model.mesh_vertnum[mesh]]
        faces = _representatives(vertices, cell / 1000)[model.mesh_face[begin : begin + count]]
        kept = _distinct(faces)
        if not kept.size:
            continue  # the whole mesh is in a few cubes
        model.mesh_facenum[mesh] = kept.size
        for corners in (model.mesh_facenormal, model.mesh_facetexcoord):
            corners[begin : begin + kept.size] = corners[begin + kept]
        model.mesh_face[begin : begin + kept.size] = faces[kept]


def _representatives(vertices: np.ndarray, cell: float) -> np.ndarray:
    """For each vertex the number of that vertex of its cube which is nearest to the mean of them all."""
    cubes = np.floor(vertices.astype(np.float64) / cell)
    _, cube = np.unique(cubes, axis=0, return_inverse=True)
    cube = cube.ravel()
    sums = np.stack([np.bincount(cube, weights=axis) for axis in vertices.T], axis=1)
    means = sums / np.bincount(cube)[:, None]
    order = np.lexsort((np.square(vertices - means[cube]).sum(1), cube))  # by cube, the nearest first
    nearest = order[np.unique(cube[order], return_index=True)[1]]
    return nearest[cube]


def _distinct(faces: np.ndarray) -> np.ndarray:
    """The numbers of the faces that have three different corners, each face once."""
    a, b, c = faces.T
    proper = np.flatnonzero((a != b) & (b != c) & (c != a))
    turns = np.argmin(faces[proper], axis=1)  # (1, 2, 0) and (0, 1, 2) are the same face, (0, 2, 1) is its back
    turned = np.take_along_axis(faces[proper], (turns[:, None] + np.arange(3)) % 3, axis=1)
    return proper[np.sort(np.unique(turned, axis=0, return_index=True)[1])]

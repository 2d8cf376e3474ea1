"""Random shifts of images (section 2.5)."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

import small
from dualgoal import sampler
from dualgoal.fast import shift_kernel
from dualgoal.interface import Spec
from dualgoal.nets import augment
from dualgoal.nets.augment import PAD, shift
from dualgoal.streams import ACTOR_GOALS, FUTURE_GOALS, Window


def test_shift_is_edge_padding_and_a_crop():
    images = np.random.default_rng(0).integers(0, 256, (3, 16, 16, 3), np.uint8)
    offsets = np.array([[0, 6], [3, 3], [5, 1]])
    shifted = np.asarray(shift(jnp.asarray(images), jnp.asarray(offsets)))
    assert shifted.dtype == np.uint8
    for image, (dy, dx), got in zip(images, offsets, shifted, strict=True):
        padded = np.pad(image, ((PAD, PAD), (PAD, PAD), (0, 0)), mode="edge")
        np.testing.assert_array_equal(got, padded[dy : dy + 16, dx : dx + 16])
    np.testing.assert_array_equal(shifted[1], images[1])


@pytest.fixture
def kernels(monkeypatch):
    """The kernel is used here too, interpreted, with several programs for each image."""
    monkeypatch.setattr(shift_kernel, "TILE", 128)
    inner, used = shift_kernel.shifted_rows, []
    monkeypatch.setattr(shift_kernel, "shifted_rows", lambda *a: used.append(a) or inner(*a, interpret=True))
    monkeypatch.setattr(augment, "kernels_run", lambda bf16: bf16)
    return used


@pytest.mark.parametrize("far", [False, True], ids=["bytes", "words"])
@pytest.mark.parametrize("shape", [(16, 16, 3), (8, 32, 9)], ids=["an image", "three frames"])
def test_the_kernel_reads_and_shifts(kernels, monkeypatch, shape, far):
    """For two seeds, which read the same images, and all offsets. Images that are far are read as words."""
    images = random.randint(random.key(0), (30, *shape), 0, 256).astype(jnp.uint8)
    rows = random.randint(random.key(1), (2, 49), 0, 30)
    offsets = jnp.stack([jnp.mgrid[:7, :7].reshape(2, -1).T] * 2)
    plain = jax.vmap(functools.partial(augment.look, images))(rows, offsets)
    monkeypatch.setattr(augment, "FAR", range(images.nbytes + 1 - far, images.nbytes + 2))
    held = jax.device_put(augment.as_held(np.asarray(images)))
    assert isinstance(held, augment.Words) == far and held.shape == images.shape and held.dtype == images.dtype
    for bf16 in (True, False):
        np.testing.assert_array_equal(jax.vmap(lambda r, o: augment.look(held, r, o, bf16))(rows, offsets), plain)  # noqa: B023
    assert len(kernels) == 1
    np.testing.assert_array_equal(augment.look(held, rows[0]), images[rows[0]])


def test_images_that_a_kernel_cannot_reach_are_read_without_it(kernels, monkeypatch):
    """Whoever holds two to four GiB of images as bytes gets the right ones, and the kernel itself refuses them."""
    images = random.randint(random.key(0), (30, 16, 16, 3), 0, 256).astype(jnp.uint8)
    rows, offsets = random.randint(random.key(1), (49,), 0, 30), jnp.mgrid[:7, :7].reshape(2, -1).T
    plain = augment.look(images, rows, offsets)
    for module in (augment, shift_kernel):
        monkeypatch.setattr(module, "FAR", range(images.nbytes, images.nbytes + 1))
    np.testing.assert_array_equal(augment.look(images, rows, offsets, True), plain)
    assert not kernels
    with pytest.raises(ValueError, match="cannot reach 23,040 bytes"):
        shift_kernel.shifted_rows(images.reshape(30, 16, -1), rows, offsets - PAD, 3)


@pytest.mark.parametrize("far", [False, True], ids=["bytes", "words"])
def test_batches_are_the_same_with_the_kernel(kernels, monkeypatch, far):
    streams = {"value": FUTURE_GOALS, "actor": ACTOR_GOALS, "rep": Window()}
    data = small.data((8, 8, 3))
    data = data._replace(goals=data.observations[::-1])
    spec = {p: Spec((8, 8, 3), 2, batch_size=4, augment=1.0, precision=p) for p in ("float32", "bf16")}
    plain = sampler.sample(data, random.key(0), streams, spec["float32"])
    monkeypatch.setattr(augment, "FAR", range(data.observations.nbytes + 1 - far, data.observations.nbytes + 2))
    data = sampler.to_device(data)
    assert isinstance(data.observations, augment.Words) == isinstance(data.goals, augment.Words) == far
    ours = sampler.sample(data, random.key(0), streams, spec["bf16"])
    jax.tree.map(np.testing.assert_array_equal, ours, plain)
    assert len(kernels) == 2 + 2 * 2, "two for the transitions, two for each draw but the window"


@pytest.mark.parametrize("rows", [20_000, 250_000, 1_000_000])
def test_the_kernel_can_be_compiled_for_a_gpu(rows):
    """For four seeds, which share the images. What lies between 2^31 and 2^32 bytes is read in words."""
    far = rows * 64 * 192 in augment.FAR
    images = jax.ShapeDtypeStruct((rows, 64, 48), jnp.uint32) if far else jax.ShapeDtypeStruct((rows, 64, 192), "uint8")
    of_seed = jax.ShapeDtypeStruct((4, 256), jnp.int32)
    step = jax.jit(jax.vmap(functools.partial(shift_kernel.shifted_rows, channels=3), in_axes=(None, 0, 0)))
    device = jax.sharding.AbstractDevice("NVIDIA H200", 132, "gpu")
    with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((1,), ("x",), abstract_device=device)):
        by = jax.ShapeDtypeStruct((4, 256, 2), jnp.int32)
        text = step.trace(images, of_seed, by).lower(lowering_platforms=("cuda",)).as_text()
    (line,) = (line for line in text.splitlines() if "shifted_rows" in line and "custom_call" in line)
    read = f"{rows}x64x48xui32" if far else f"{rows}x64x192xui8"
    assert f": (tensor<{read}>," in line

"""Boards of lights as small images: lights of two colours, seen from above."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, UInt8

from dualgoal.envs.lightsout_puzzle import Bits, Puzzle

CELL, LIGHT = 8, 4  # pixels: a light in the middle of its cell
COLOURS = np.array([[200, 60, 50], [50, 80, 200]], np.float32)
BOARD = 160.0


def shape(puzzle: Puzzle) -> tuple[int, int, int]:
    """Height, width and channels of an image."""
    return CELL * puzzle.rows, CELL * puzzle.columns, 3


def draw(puzzle: Puzzle, boards: Bits) -> Float[Array, "... H W 3"]:
    """Boards (..., n) of zeros and ones as images 0..255."""
    lights = jnp.asarray(boards).reshape(*boards.shape[:-1], puzzle.rows, puzzle.columns, 1)
    dark, lit = (jnp.broadcast_to(colour, (*lights.shape[:-1], 3)) for colour in COLOURS)
    cells = jnp.where(lights > 0, lit, dark).repeat(CELL, -3).repeat(CELL, -2)
    inside = [jnp.abs(jnp.arange(side) % CELL - (CELL - 1) / 2) < LIGHT / 2 for side in cells.shape[-3:-1]]
    light = jnp.broadcast_to((inside[0][:, None] & inside[1][None])[..., None], cells.shape)
    return jnp.where(light, cells, BOARD)


def as_bytes(images: Float[Array, "..."]) -> UInt8[Array, "..."]:
    """Whole numbers 0..255."""
    return jnp.clip(jnp.round(images), 0, 255).astype(jnp.uint8)

"""Puzzles drawn as small images, with the exact distance of any two of them.

A board has lights of two colours, and pressing one flips it and its neighbours, as in Lights Out and in OGBench's
puzzle. In `buttons` an arm hides some of the lights, and the distance is the share of lights that differ plus half the
distance of the arms. In `lightsout` there is no arm, and the distance is the number of presses.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
from jax import random
from jaxtyping import Array, Float, PRNGKeyArray, UInt8

from dualgoal.envs import lightsout_drawing, lightsout_puzzle
from dualgoal.envs.lightsout_puzzle import Puzzle
from dualgoal.errors import UserError
from dualgoal.probes.options import WorldName

ARM = 7  # pixels
ARM_COLOUR = 60.0
MOST = 12  # buttons
NOISE = 2.5  # standard deviation of each pixel, 0..255
PRESSES = 6  # most presses between two boards that are not independent of each other, if there are as many buttons
INDEPENDENT = 0.3  # share of pairs that are
ARM_WEIGHT = 0.5

Boards = Float[Array, "B n"]
Images = UInt8[Array, "B H W 3"]


class Pairs(NamedTuple):
    """Images of states and goals, and the two parts of their distances."""

    s: Images
    g: Images
    boards: tuple[Boards, Boards]
    lights: Float[Array, " B"]  # the boards' part of the distance
    arm: Float[Array, " B"]  # the arms' part of it

    @property
    def distance(self) -> Float[Array, " B"]:
        return self.lights + self.arm


@dataclass(frozen=True)
class World:
    """One of the two puzzles. Everything is a function of a key."""

    name: WorldName
    puzzle: Puzzle

    def __post_init__(self) -> None:
        if self.puzzle.buttons > MOST or (self.name == "lightsout" and not self.puzzle.invertible):
            raise UserError(
                f"board {self.puzzle}: expected at most {MOST} buttons and, for lightsout, a board on which every goal "
                f"can be reached, such as 2x2 or 3x3"
            )

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels of an image."""
        return lightsout_drawing.shape(self.puzzle)

    def lights(self, s: Boards, g: Boards) -> Float[Array, " B"]:
        """How far two boards are apart, between 0 and 1: lights that differ, or presses, as a share of all buttons."""
        apart = jnp.abs(s - g).sum(-1) if self.name == "buttons" else lightsout_puzzle.distance(self.puzzle, s, g)
        return apart / self.puzzle.buttons

    def pairs(self, key: PRNGKeyArray, count: int) -> Pairs:
        """Boards 0 to 6 presses apart, some independent of each other, and arms anywhere."""
        k_board, k_press, k_other, k_coin, k_arm, k_draw = random.split(key, 6)
        s = self.any_boards(k_board, count)
        g = self.pressed(k_press, s, 0)
        g = jnp.where(random.bernoulli(k_coin, INDEPENDENT, (count, 1)), self.any_boards(k_other, count), g)
        return self.drawn(k_draw, s, g, *self.arms(k_arm, (2, count)))

    def same_or_not(self, key: PRNGKeyArray, count: int) -> Pairs:
        """Arms in one place. In the first half of the pairs the boards are the same, in the second they are not."""
        k_board, k_press, k_arm, k_draw = random.split(key, 4)
        s = self.any_boards(k_board, count)
        g = jnp.where((jnp.arange(count) < count // 2)[:, None], s, self.pressed(k_press, s, 1))
        arm = self.arms(k_arm, (count,))
        return self.drawn(k_draw, s, g, arm, arm)

    def arms(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Array:
        """Where the arm's upper left corner is, in pixels; outside of the image where there is none."""
        height, width, _ = self.shape
        if self.name == "lightsout":
            return jnp.full((*shape, 2), max(height, width))
        free = jnp.broadcast_to(jnp.array([height - ARM + 1, width - ARM + 1]), (*shape, 2))
        return random.randint(key, free.shape, 0, free)

    def drawn(self, key: PRNGKeyArray, s: Boards, g: Boards, arm_s: Array, arm_g: Array) -> Pairs:
        k_s, k_g = random.split(key)
        apart = jnp.sqrt(((arm_s - arm_g).astype(jnp.float32) ** 2).sum(-1)) / self.shape[0]
        images = self.draw(k_s, s, arm_s), self.draw(k_g, g, arm_g)
        return Pairs(*images, (s, g), self.lights(s, g), ARM_WEIGHT * apart)

    def any_boards(self, key: PRNGKeyArray, count: int) -> Boards:
        return random.bernoulli(key, 0.5, (count, self.puzzle.buttons)).astype(jnp.float32)

    def pressed(self, key: PRNGKeyArray, boards: Boards, least: int) -> Boards:
        """The boards after `least` to PRESSES presses of different buttons, every number equally often."""
        k_number, k_order = random.split(key)
        most = min(PRESSES, self.puzzle.buttons)
        number = random.randint(k_number, (boards.shape[0], 1), least, most + 1)
        rank = random.uniform(k_order, boards.shape).argsort(axis=-1).argsort(axis=-1)
        flips = (rank < number).astype(jnp.float32) @ jnp.asarray(self.puzzle.toggles, jnp.float32)
        return (boards + flips) % 2

    def draw(self, key: PRNGKeyArray, boards: Boards, arms: Array) -> Images:
        """Boards as seen from above, with an arm over them, and noise in every pixel."""
        image = lightsout_drawing.draw(self.puzzle, boards)
        down, across = (jnp.arange(side) for side in self.shape[:2])
        covers = lambda pixels, corner: (pixels[None] >= corner[:, None]) & (pixels[None] < corner[:, None] + ARM)
        under = covers(down, arms[:, 0])[:, :, None] & covers(across, arms[:, 1])[:, None]
        image = jnp.where(under[..., None], ARM_COLOUR, image)
        noisy = image + NOISE * random.normal(key, image.shape)
        return lightsout_drawing.as_bytes(noisy)

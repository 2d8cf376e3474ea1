"""Max-pooling over 3x3 windows with stride 2, whose gradient gathers instead of scattering.

JAX's gradient of max-pooling is a scatter: each window adds its gradient to the pixel that was its largest. Windows
overlap, so on a GPU these additions may collide, and the scatter is slow. Here the forward pass stores for each window
which of its nine pixels was the largest. In the backward pass each pixel gets the sum of the gradients of the windows
that chose it, out of the windows that contain it, of which there are at most four. `plain` is the same function without
this.
"""

import functools
import itertools
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, UInt8

Images = Float[Array, "B H W C"]
Pooled = Float[Array, "B h w C"]  # h = ceil(H / 2), w = ceil(W / 2)
Codes = UInt8[Array, "B h w C"]
Sides = tuple[int, int]  # (H, W)
Number = TypeVar("Number", int, Array)

NO_WINDOW = 255  # stands where there is no window; no pixel has this code


def plain(x: Images) -> Pooled:
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")


def max_pool(x: Images) -> Pooled:
    """The largest value of each window, with SAME padding: 0 before and 1 after an even side, 1 and 1 for an odd one.
    The gradient goes to the first largest pixel of a window in reading order, as JAX's own does."""
    return pool(x.shape[1:3], x)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def pool(sides: Sides, x: Images) -> Pooled:
    return by_axis(x) if jax.default_backend() == "cpu" else plain(x)


def by_axis(x: Images) -> Pooled:
    """Rows first, then columns: fewer comparisons per window, which is faster on a CPU."""
    for window, stride in (((1, 3, 1, 1), (1, 2, 1, 1)), ((1, 1, 3, 1), (1, 1, 2, 1))):
        x = lax.reduce_window(x, -jnp.inf, lax.max, window, stride, "SAME")
    return x


def code(i: Number, j: Number) -> Number:
    """The number of row i, column j of a window. The factor is 4, not 3, because a pixel outside of a window has i = 3
    or j = 3, and its code must not be that of a pixel inside."""
    return 4 * i + j


def pool_forward(sides: Sides, x: Images) -> tuple[Pooled, Codes]:
    """The largest values, and for each window the code of its first largest pixel."""
    padded = jnp.pad(x, ((0, 0), *padding(sides), (0, 0)), constant_values=-jnp.inf)
    reach = [2 * ((side + 1) // 2) - 1 for side in sides]  # from a pixel of the first window to that of the last

    def pixel(i: int, j: int) -> Pooled:
        """Row i, column j of every window."""
        return padded[:, i : i + reach[0] : 2, j : j + reach[1] : 2]

    largest = pixel(0, 0)
    chosen = jnp.full(largest.shape, code(0, 0), jnp.uint8)
    for i, j in list(itertools.product(range(3), range(3)))[1:]:
        chosen = jnp.where(pixel(i, j) > largest, jnp.uint8(code(i, j)), chosen)
        largest = jnp.maximum(largest, pixel(i, j))
    return largest, chosen


def pool_backward(sides: Sides, chosen: Codes, dy: Pooled) -> tuple[Images]:
    """The gradient of x: for each pixel, a sum over those windows whose largest pixel it was.

    Along one axis of the padded image, window n covers the positions 2n, 2n + 1 and 2n + 2. So position p lies in
    window p // 2, at p % 2, and if p is even also in the window before that one, at 2. (An odd p would be at 3 there,
    which is outside.) Two axes make four windows to check.
    """
    (top, _), (left, _) = padding(sides)
    row, column = (jnp.arange(side) + before for side, before in zip(sides, (top, left), strict=True))

    def seen_by_pixels(x: Array, windows_up: int, windows_left: int, outside: int) -> Array:
        """For each pixel, what x holds for the window that is this many windows before window (p // 2, q // 2)."""
        for axis, (back, side, before) in enumerate(
            zip((windows_up, windows_left), sides, (top, left), strict=True), start=1
        ):
            moved = jnp.pad(x, [(back * (a == axis), 0) for a in range(4)], constant_values=outside)
            x = lax.slice_in_dim(jnp.repeat(moved, 2, axis=axis), before, before + side, axis=axis)
        return x

    dtype = jnp.promote_types(dy.dtype, jnp.float32)
    dx = jnp.zeros((), dtype)
    for up, back in itertools.product(range(2), range(2)):
        own_code = code((row % 2 + 2 * up)[:, None], (column % 2 + 2 * back)[None])
        is_largest = seen_by_pixels(chosen, up, back, NO_WINDOW) == own_code.astype(jnp.uint8)[None, :, :, None]
        dx = dx + jnp.where(is_largest, seen_by_pixels(dy, up, back, 0).astype(dtype), 0)
    return (dx.astype(dy.dtype),)


pool.defvjp(pool_forward, pool_backward)


def padding(sides: Sides) -> list[tuple[int, int]]:
    """Pixels of SAME padding before and after each axis."""
    return list(lax.padtype_to_pads(sides, (3, 3), (2, 2), "SAME"))

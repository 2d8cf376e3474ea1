"""3x3 convolutions that are fast on a CPU, with few channels and in gradients inside of a loop too.

JAX's gradient of a convolution is a convolution of another layout. For a CPU, XLA rewrites it into one that its library
computes, but not inside of a loop, where the gradient of the weights takes 30 to 60 times as long. Training is a loop,
so the rewriting is done here; the numbers are the same, bit for bit. Other devices have libraries for the gradients.

The library is slow where there are few channels. `several` lets it see more of them: it computes neighbouring pixels of
a row at once, as the output channels of one convolution with a wider window. Its sums may differ in the last bits.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

LAYOUT = ("NHWC", "HWIO", "NHWC")
Images = Float[Array, "B H W i"]
Weights = Float[Array, "3 3 i o"]
Maps = Float[Array, "B H W o"]


def plain(x: Images, w: Weights) -> Maps:
    return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=LAYOUT)


def convolve(x: Images, w: Weights) -> Maps:
    """Stride 1 and SAME padding."""
    return rewritten(x, w) if jax.default_backend() == "cpu" else plain(x, w)


def several(count: int, x: Images, w: Weights) -> Maps:
    """`count` pixels of a row at once, out of a window of 3 x (count + 2). Each has the weights at its own place in the
    window, among zeros. The side has to be a multiple of `count`."""
    batch, height, width, inputs = x.shape
    moved = [jnp.pad(w, ((0, 0), (n, count - 1 - n), (0, 0), (0, 0))) for n in range(count)]
    wider = jnp.stack(moved, axis=3).reshape(3, count + 2, inputs, count * w.shape[3])
    y = lax.conv_general_dilated(x, wider, (1, count), ((1, 1), (1, 1)), dimension_numbers=LAYOUT)
    return y.reshape(batch, height, width, w.shape[3])


def at_once(x: Images, w: Weights) -> int:
    """How many pixels to compute at once, for the encoder's convolutions. The more channels, the less there is to gain,
    and the products with zeros cost time."""
    inputs, outputs = w.shape[2:]
    count = 4 if inputs < 8 else 2 if inputs <= 16 and outputs <= 16 else 1
    return count if x.shape[2] % count == 0 else 1


def fastest(x: Images, w: Weights) -> Maps:
    count = at_once(x, w)
    return plain(x, w) if count == 1 else several(count, x, w)


@jax.custom_vjp
def rewritten(x: Images, w: Weights) -> Maps:
    return fastest(x, w)


def forward(x: Images, w: Weights) -> tuple[Maps, tuple[Images, Weights]]:
    return fastest(x, w), (x, w)


def backward(kept: tuple[Images, Weights], dy: Maps) -> tuple[Images, Weights]:
    x, w = kept
    return fastest(dy, turned(w)), weight_gradient(x, dy)


rewritten.defvjp(forward, backward)


def turned(w: Weights) -> Float[Array, "3 3 o i"]:
    """The weights with which a gradient is convolved: turned by 180 degrees, inputs and outputs exchanged."""
    return w[::-1, ::-1].swapaxes(2, 3)


def weight_gradient(x: Images, dy: Maps) -> Weights:
    """A convolution with dy in place of the weights: channels of x take the place of images, and images of channels."""
    images, weights = x.transpose(3, 1, 2, 0), dy.transpose(1, 2, 0, 3)
    padding = ((1, 1), (1, 1))
    dw = lax.conv_general_dilated(images, weights, (1, 1), padding, dimension_numbers=LAYOUT)
    return dw.transpose(1, 2, 0, 3)

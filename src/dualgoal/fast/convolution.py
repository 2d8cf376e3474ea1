"""3x3 convolutions whose gradients are fast on a CPU inside of a loop too.

JAX's gradient of a convolution is a convolution of another layout. For a CPU, XLA rewrites it into one that its library
computes, but not inside of a loop, where the gradient of the weights takes 30 to 60 times as long. Training is a loop,
so the rewriting is done here; the numbers are the same, bit for bit. Other devices have libraries for the gradients.
"""

import jax
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


@jax.custom_vjp
def rewritten(x: Images, w: Weights) -> Maps:
    return plain(x, w)


def forward(x: Images, w: Weights) -> tuple[Maps, tuple[Images, Weights]]:
    return plain(x, w), (x, w)


def backward(kept: tuple[Images, Weights], dy: Maps) -> tuple[Images, Weights]:
    x, w = kept
    return plain(dy, turned(w)), weight_gradient(x, dy)


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

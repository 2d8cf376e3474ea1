"""The objectives of sections 4 and 5: arrays in, scalars out. They know no network and no configuration.

Ensemble members are the leading axis (E, B) wherever a function says so; `stop_gradient` stands where the method says
sg[.] or uses a target network, so a caller cannot forget it.
"""

import math

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jax.nn import log_softmax, softmax
from jaxtyping import Array, Float

Vec = Float[Array, " B"]
Ens = Float[Array, "E B"]
Critics = Float[Array, "K B"]
Scalar = Float[Array, ""]


def expectile(x: Array, kappa: float, side: Array | None = None) -> Array:
    """l_kappa(x) = w x^2 with w = kappa where `side` (x itself unless given) is >= 0 and 1 - kappa elsewhere."""
    return jnp.where((x if side is None else side) >= 0, kappa, 1 - kappa) * x**2


def iql(
    v: Ens,
    v_next: Ens,
    q: Float[Array, "K B"],
    q_target: Float[Array, "K B"],
    r: Vec,
    m: Vec,
    gamma: float,
    kappa: float,
) -> tuple[Scalar, Scalar]:
    """Goal-conditioned IQL with V as an argument (sections 4.2 and 5.2): (L_V, L_Q).

    Every critic regresses on the target of every member of V (D15), so (K, E, B) residuals.
    """
    q_min = stop_gradient(q_target.min(axis=0))
    l_v = expectile(q_min[None] - v, kappa).mean(axis=0).mean()
    y = r[None] + gamma * m[None] * stop_gradient(v_next)
    l_q = ((q[:, None] - y[None]) ** 2).mean(axis=1).sum(axis=0).mean()
    return l_v, l_q


def ivl(v: Ens, v_target: Ens, v_target_next: Ens, r: Vec, m: Vec, gamma: float, kappa: float) -> Scalar:
    """IVL (section 5.1): the expectile's side comes from target networks, the residual from the online ones."""
    v_target, v_target_next = stop_gradient(v_target), stop_gradient(v_target_next)
    y = r[None] + gamma * m[None] * v_target_next
    advantage = r + gamma * m * v_target_next.min(axis=0) - v_target.mean(axis=0)
    return expectile(y - v, kappa, side=advantage[None]).mean(axis=1).sum()


def awr(advantage: Vec, log_prob: Vec, alpha: float) -> Scalar:
    """Advantage-weighted regression with the weight capped at 100."""
    weight = jnp.minimum(jnp.exp(alpha * stop_gradient(advantage)), 100.0)
    return -(weight * log_prob).mean()


def ddpg_bc(q: Vec, log_prob: Vec, alpha: float) -> Scalar:
    """DDPG+BC (section 5.3): the critic's scale is divided out."""
    return -q.mean() / stop_gradient(jnp.abs(q).mean() + 1e-6) - alpha * log_prob.mean()


def gaussian_log_prob(a: Float[Array, "B A"], mean: Float[Array, "B A"]) -> Vec:
    """Log density of a unit-variance Gaussian policy."""
    return -0.5 * ((a - mean) ** 2).sum(axis=-1) - 0.5 * a.shape[-1] * math.log(2 * math.pi)


def categorical_log_prob(a: Float[Array, "B A"], logits: Float[Array, "B A"]) -> Vec:
    """Log probability of one-hot actions."""
    return (a * log_softmax(logits)).sum(axis=-1)


def symmetric_info_nce(logits: Float[Array, "B B"]) -> Scalar:
    """TRA's InfoNCE (section 4.5): a mean over the whole B x B matrix, so 1/B of the usual scale (D12)."""
    rows, columns = jnp.diagonal(log_softmax(logits, axis=1)), jnp.diagonal(log_softmax(logits, axis=0))
    return -(rows + columns).sum() / logits.size


def binary_nce(logits: Float[Array, "E B B"]) -> Scalar:
    """CRL's critic loss (section 5.3): binary cross-entropy against the identity, mean over 2 B^2 terms."""
    labels = jnp.broadcast_to(jnp.eye(logits.shape[-1], dtype=logits.dtype)[None], logits.shape)
    return (jax.nn.softplus(logits) - labels * logits).mean()


def flow_matching(velocity: Float[Array, "B A"], x0: Float[Array, "B A"], x1: Float[Array, "B A"]) -> Scalar:
    """Flow behavioural cloning (section 5.4)."""
    return ((velocity - (x1 - x0)) ** 2).mean()


def gaussian_kl(mean: Float[Array, "B N"], log_std: Float[Array, "B N"]) -> Vec:
    """KL(N(mean, std^2) || N(0, 1)), summed over dimensions."""
    return 0.5 * (mean**2 + jnp.exp(2 * log_std) - 1 - 2 * log_std).sum(axis=-1)


def byol_forward(prediction: Float[Array, "B N"], target: Float[Array, "B N"]) -> Scalar:
    """Cross-entropy of the predicted future embedding under the (stopped) one (section 4.6)."""
    return -(softmax(stop_gradient(target)) * log_softmax(prediction)).sum(axis=-1).mean()


def byol_backward(prediction: Float[Array, "B N"], target: Float[Array, "B N"]) -> Scalar:
    """The backward half; prediction and target exchange their places as in the reference (D13)."""
    return -(softmax(prediction) * log_softmax(stop_gradient(target))).sum(axis=-1).mean()


def vip(v_first: Vec, v_now: Vec, v_after: Vec, gamma: float) -> Scalar:
    """VIP (section 4.4); log-sum-exp as in the reference, which differs from log-mean-exp by a constant."""
    return -(1 - gamma) * v_first.mean() + jax.nn.logsumexp(v_now + 1 - gamma * v_after)


def dqn(q: Vec, q_next: Vec, r: Vec, m: Vec, gamma: float, huber: bool) -> Scalar:
    """Squared (or Huber) error to r + gamma m q_next (section 5.5)."""
    error = q - (r + gamma * m * stop_gradient(q_next))
    if huber:
        size = jnp.abs(error)
        return jnp.where(size <= 1, 0.5 * error**2, size - 0.5).mean()
    return (error**2).mean()


def temporal_distance(value: Array, gamma: float) -> Array:
    """d with value = -(1 - gamma^d) / (1 - gamma) (section 1.1); values outside the possible range are clipped."""
    return jnp.log(jnp.clip(1 + (1 - gamma) * value, 1e-6, 1.0)) / math.log(gamma)

"""The objectives of sections 4 and 5, as functions from arrays to scalars. They know no network and no configuration.

Where a function takes values of an ensemble, its members are the leading axis (E, B). Gradients are stopped in here
wherever the method stops them or uses a target network, so that callers need not remember to.

Throughout, r is the reward, m masks the bootstrap (0 at the goal, 1 elsewhere), gamma is the discount and kappa the
expectile.
"""

import math

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jax.nn import log_softmax, softmax
from jaxtyping import Array, Float, Int

Vec = Float[Array, " B"]
Ens = Float[Array, "E B"]  # values of E members
Critics = Float[Array, "K B"]  # values of K critics
Steps = Int[Array, " B"]
Scalar = Float[Array, ""]


def expectile(x: Array, kappa: float, side: Array | None = None) -> Array:
    """Asymmetric squared error: l_kappa(x) = kappa x^2 where `side` >= 0, and (1 - kappa) x^2 elsewhere. `side` is x
    itself unless given."""
    return jnp.where((x if side is None else side) >= 0, kappa, 1 - kappa) * x**2


def iql(
    v: Ens,
    v_next: Ens,
    q: Critics,
    q_target: Critics,
    r: Vec,
    m: Vec,
    gamma: float,
    kappa: float,
) -> tuple[Scalar, Scalar]:
    """The losses (L_V, L_Q) of goal-conditioned IQL (sections 4.2 and 5.2), where V may be any model:

        L_V = l_kappa(min_k q_target - v)
        L_Q = (q - (r + gamma m v_next))^2

    Each critic regresses on the target of each member of V (D15), so L_Q has (K, E, B) residuals. Both losses are means
    over the members of V, and L_Q is a sum over the critics.
    """
    q_min = stop_gradient(q_target.min(axis=0))
    l_v = expectile(q_min[None] - v, kappa).mean(axis=0).mean()
    y = r[None] + gamma * m[None] * stop_gradient(v_next)
    l_q = ((q[:, None] - y[None]) ** 2).mean(axis=1).sum(axis=0).mean()
    return l_v, l_q


def ivl(v: Ens, v_target: Ens, v_target_next: Ens, r: Vec, m: Vec, gamma: float, kappa: float) -> Scalar:
    """The value loss of IVL (section 5.1), summed over the members. The residual is r + gamma m V'(s') - V(s), where V'
    is a target network. Its weight depends on the sign of an advantage, which comes from target networks alone."""
    v_target, v_target_next = stop_gradient(v_target), stop_gradient(v_target_next)
    y = r[None] + gamma * m[None] * v_target_next
    advantage = r + gamma * m * v_target_next.min(axis=0) - v_target.mean(axis=0)
    return expectile(y - v, kappa, side=advantage[None]).mean(axis=1).sum()


def continuity(v: Ens, v_next: Ens, gamma: float) -> Scalar:
    """One-sided continuity of a value along a transition (section 14.3): ((V(s) - V(s'))^2 - delta^2)_+, as a mean over
    members and batch. delta = 1 + (1 - gamma) |V(s')| has no gradient, and an optimal value rises by at most delta in
    one step of reward -1."""
    delta = 1 + (1 - gamma) * jnp.abs(stop_gradient(v_next))
    return jnp.maximum((v - v_next) ** 2 - delta**2, 0.0).mean()


def transitive(
    logit: Ens, first: Ens, second: Ens, before: Steps, after: Steps, gamma: float, kappa: float, falloff: float
) -> Scalar:
    """TRL's value loss (section 14.5). sigmoid(logit) is the value gamma^d of a goal; `first` and `second` are logits
    of target networks: from the present state to one on the way, and from there to the goal. `before` and `after` are
    the steps that these parts took. The target is a product, in which a part of at most one step is exact:

        y = p(first, before) p(second, after),   p(x, n) = gamma^n if n <= 1 else sigmoid(x)
        L = mean[ |kappa - 1(y < sigmoid(logit))| (1 + log_gamma y)^-falloff BCE(logit, y) ]
    """
    known = lambda x, n: jnp.where(n[None] <= 1, gamma ** n[None].astype(x.dtype), jax.nn.sigmoid(x))
    y = stop_gradient(known(first, before) * known(second, after))
    side = jnp.where(y >= jax.nn.sigmoid(stop_gradient(logit)), kappa, 1 - kappa)
    far = (1 + jnp.log(y) / math.log(gamma)) ** -falloff
    return (side * far * (jax.nn.softplus(logit) - y * logit)).mean()


def awr(advantage: Vec, log_prob: Vec, alpha: float) -> Scalar:
    """Advantage-weighted regression: -min(exp(alpha A), 100) log pi(a)."""
    weight = jnp.minimum(jnp.exp(alpha * stop_gradient(advantage)), 100.0)
    return -(weight * log_prob).mean()


def ddpg_bc(q: Vec, log_prob: Vec, alpha: float) -> Scalar:
    """DDPG+BC (section 5.3): maximise q, divided by its mean absolute value, plus alpha times the log-likelihood of the
    dataset's actions. The division makes alpha independent of the scale of q."""
    return -q.mean() / stop_gradient(jnp.abs(q).mean() + 1e-6) - alpha * log_prob.mean()


def gaussian_log_prob(a: Float[Array, "B A"], mean: Float[Array, "B A"]) -> Vec:
    """Log density of actions under a Gaussian policy with unit variance."""
    return -0.5 * ((a - mean) ** 2).sum(axis=-1) - 0.5 * a.shape[-1] * math.log(2 * math.pi)


def categorical_log_prob(a: Float[Array, "B A"], logits: Float[Array, "B A"]) -> Vec:
    """Log probability of one-hot actions under a discrete policy."""
    return (a * log_softmax(logits)).sum(axis=-1)


def symmetric_info_nce(logits: Float[Array, "B B"]) -> Scalar:
    """TRA's InfoNCE in both directions (section 4.5). As in the released code it is a mean over the whole B x B matrix,
    which makes it 1 / B of the usual scale (D12)."""
    rows, columns = jnp.diagonal(log_softmax(logits, axis=1)), jnp.diagonal(log_softmax(logits, axis=0))
    return -(rows + columns).sum() / logits.size


def binary_nce(logits: Float[Array, "E B B"]) -> Scalar:
    """CRL's critic loss (section 5.3): is column j the goal of row i? Binary cross-entropy with the identity matrix as
    labels, as a mean over all E B^2 pairs."""
    labels = jnp.broadcast_to(jnp.eye(logits.shape[-1], dtype=logits.dtype)[None], logits.shape)
    return (jax.nn.softplus(logits) - labels * logits).mean()


def flow_matching(velocity: Float[Array, "B A"], x0: Float[Array, "B A"], x1: Float[Array, "B A"]) -> Scalar:
    """Flow behavioural cloning (section 5.4): the velocity should lead from the noise x0 straight to the action x1."""
    return ((velocity - (x1 - x0)) ** 2).mean()


def gaussian_kl(mean: Float[Array, "B N"], log_std: Float[Array, "B N"]) -> Vec:
    """KL(N(mean, std^2) || N(0, 1)), summed over the dimensions."""
    return 0.5 * (mean**2 + jnp.exp(2 * log_std) - 1 - 2 * log_std).sum(axis=-1)


def byol_forward(prediction: Float[Array, "B N"], target: Float[Array, "B N"]) -> Scalar:
    """BYOL's forward half (section 4.6): cross-entropy between the softmax of a future state's embedding, through which
    no gradient flows, and that of its prediction."""
    return -(softmax(stop_gradient(target)) * log_softmax(prediction)).sum(axis=-1).mean()


def byol_backward(prediction: Float[Array, "B N"], target: Float[Array, "B N"]) -> Scalar:
    """BYOL's backward half. Prediction and target change places in the cross-entropy, as in the released code (D13)."""
    return -(softmax(prediction) * log_softmax(stop_gradient(target))).sum(axis=-1).mean()


def vip(v_first: Vec, v_now: Vec, v_after: Vec, gamma: float) -> Scalar:
    """VIP (section 4.4). The log-sum-exp over the batch is that of the released code; the log-mean-exp of the original
    VIP differs from it by a constant."""
    return -(1 - gamma) * v_first.mean() + jax.nn.logsumexp(v_now + 1 - gamma * v_after)


def dqn(q: Vec, q_next: Vec, r: Vec, m: Vec, gamma: float, huber: bool) -> Scalar:
    """Squared or Huber error between q and the target r + gamma m q_next (section 5.5)."""
    error = q - (r + gamma * m * stop_gradient(q_next))
    if huber:
        size = jnp.abs(error)
        return jnp.where(size <= 1, 0.5 * error**2, size - 0.5).mean()
    return (error**2).mean()


def temporal_distance(value: Array, gamma: float) -> Array:
    """The number of steps d for which value = -(1 - gamma^d) / (1 - gamma) (section 1.1). Impossible values are
    clipped."""
    return jnp.log(jnp.clip(1 + (1 - gamma) * value, 1e-6, 1.0)) / math.log(gamma)

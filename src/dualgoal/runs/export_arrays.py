"""The networks that act, as plain arrays by name: what an export holds, and the way back.

Networks become numbered layers `goal/0/w, goal/0/b, ...` in the order in which they are applied. Values and critics,
which only training needs, are left out.
"""

from collections.abc import Set
from numbers import Integral
from typing import Any

import jax
import numpy as np

from dualgoal.errors import UserError
from dualgoal.interface import Algorithm, Representation
from dualgoal.nets.heads import Actor, Bottleneck, Dense, Embedding, Flow
from dualgoal.runs import trees
from dualgoal.runs.checkpoint import OTHER_CODE, Arrays

Kind = dict[str, Any]
NONE: frozenset[str] = frozenset()


def flatten(rep: Representation, algo: Algorithm, params: Any, other: Set[str] = NONE) -> tuple[Arrays, Kind, Kind]:
    """All arrays by name, and what the goal's and the policy's are. Of those ("goal", "policy") that are said to be
    `other`, all networks are kept, under their own names."""
    goal, goal_kind = _as_they_are("goal", params.rep) if "goal" in other else _goal(rep, params.rep)
    actor, actor_kind = _as_they_are("policy", params.algo) if "policy" in other else _actor(algo, params.algo)
    encoders = {f"encoders/{name}": leaf for name, leaf in trees.to_host(params.encoders).items()}
    return {k: np.asarray(v) for k, v in {**goal, **actor, **encoders}.items()}, goal_kind, actor_kind


def unflatten(
    rep: Representation, algo: Algorithm, template: Any, arrays: Arrays, name: str, other: Set[str] = NONE
) -> Any:
    """The parameters again, None where the arrays do not say; `template` has their shapes, `name` is for messages.

    Each number of the template is given its own index (a float, as networks hold floats), and flattening these tells
    where each number went.
    """
    leaves, structure = jax.tree.flatten(template)
    ends = np.cumsum([0, *(leaf.size for leaf in leaves)])
    places = [
        np.arange(a, b, dtype=np.float64).reshape(leaf.shape)
        for a, b, leaf in zip(ends, ends[1:], leaves, strict=False)
    ]
    layout, _, _ = flatten(rep, algo, jax.tree.unflatten(structure, places), other)
    if wrong := [key for key in {*layout, *arrays} if _shape(layout, key) != _shape(arrays, key)]:
        key = min(wrong)
        found, wanted = _shape(arrays, key) or "absent", _shape(layout, key) or "absent"
        raise UserError(f"{name}: array '{key}' is {found}, expected {wanted}; {OTHER_CODE}")
    numbers, known = np.zeros(ends[-1], np.float32), np.zeros(ends[-1], bool)
    for key, floats in layout.items():
        at = floats.astype(np.int64)
        numbers[at], known[at] = arrays[key], True
    whole = [at.astype(np.int64) for at in places]
    return jax.tree.unflatten(structure, [numbers[at] if known[at].all() else None for at in whole])


def _shape(arrays: Arrays, key: str) -> tuple[int, ...] | None:
    return arrays[key].shape if key in arrays else None


def _goal(rep: Representation, rep_nets: Any) -> tuple[Arrays, Kind]:
    """The network that turns a goal into z, as far as the representation says that there is one."""
    if not rep.learned:
        return {}, {"kind": "identity"}
    net = getattr(rep_nets, rep.goal_network) if rep.goal_network else None
    if isinstance(net, Bottleneck):
        heads = {f"goal/{name}": _linear(head) for name, head in (("mean", net.mean), ("log_std", net.log_std))}
        flat = {f"{name}/{part}": array for name, layer in heads.items() for part, array in layer.items()}
        return _stack("goal", net.trunk) | flat, {"kind": "bottleneck"}
    if isinstance(net, Embedding) and net.encoder is None:
        members = net.mlp.layers[0].w.shape[0] if net.mlp.layers[0].w.ndim == 3 else None
        return _stack("goal", net.mlp), {"kind": "mlp", "members": members, "sphere": rep.on_sphere}
    return _as_they_are("goal", rep_nets)


def _actor(algo: Algorithm, algo_nets: Any) -> tuple[Arrays, Kind]:
    """The network that turns a state and z into an action, as far as the algorithm says that there is one."""
    net = getattr(algo_nets, algo.policy_network) if algo.policy_network else None
    if isinstance(net, Actor):
        return _stack("policy", net.mlp, net.head) | _fusion(net), {"kind": "gaussian"}
    steps = getattr(algo, "flow_steps", None)
    if isinstance(net, Flow) and isinstance(steps, Integral):
        return _stack("policy", net.mlp) | _fusion(net), {"kind": "flow", "flow_steps": int(steps)}
    return _as_they_are("policy", algo_nets)


def _as_they_are(prefix: str, nets: Any) -> tuple[Arrays, Kind]:
    """All networks of a part under their own names."""
    return {f"{prefix}/{name}": leaf for name, leaf in trees.to_host(nets).items()}, {"kind": "other"}


def _fusion(net: Any) -> Arrays:
    """Image encoders that belong to one network (orig); nothing on vectors."""
    return {f"policy/fuse/{name}": leaf for name, leaf in trees.to_host(net.fuse).items()}


def _stack(prefix: str, mlp: Any, *more: Any) -> Arrays:
    """Layers in order: every one but the last is followed by GELU, and by LayerNorm where it has scale and offset."""
    out: Arrays = {}
    for n, layer in enumerate((*mlp.layers, *more)):
        parts = _linear(layer)
        if isinstance(layer, Dense):
            parts |= {"scale": np.asarray(layer.scale), "offset": np.asarray(layer.offset)}
        out |= {f"{prefix}/{n}/{part}": array for part, array in parts.items()}
    return out


def _linear(layer: Any) -> Arrays:
    return {"w": np.asarray(layer.w), "b": np.asarray(layer.b)}

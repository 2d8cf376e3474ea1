"""Export: the goal encoder and the policy of one seed as plain arrays, for any framework (docs/export.md).

Networks become numbered layers `goal/0/w, goal/0/b, ...` in the order in which they are applied; a JSON file next to
the arrays says what they are. Nothing of this package is needed to use them: the page shows a reader in forty lines of
NumPy.
"""

from pathlib import Path
from typing import Any

import numpy as np

from dualgoal import files, jsons
from dualgoal.errors import UserError
from dualgoal.interface import Algorithm, Representation
from dualgoal.nets.heads import Actor, Bottleneck, Dense, Embedding, Flow
from dualgoal.runs import checkpoint, config, policy, trees

FORMAT = "dualgoal-policy-1"
Arrays = checkpoint.Arrays


def export_policy(run: str | Path, out: str | Path, *, seed: int | None = None, step: int | None = None) -> Path:
    """Write `out` (.safetensors) and its JSON file from a run; returns the former."""
    out = Path(out)
    if out.suffix != ".safetensors":
        raise UserError(f"{out}: the export is a safetensors file; give --out a name that ends in .safetensors")
    _require_free(out)
    loaded = policy.load(run, seed, step)
    arrays, architecture = flatten(loaded)
    files.make_folder(out.parent)
    checkpoint.write(out, arrays, sealed=False, format=FORMAT, step=loaded.step, **architecture)
    return out


def _require_free(out: Path) -> None:
    """Raise if writing would replace anything but an earlier export: a run's config.json, a dataset's record, ..."""
    beside = out.with_suffix(".json")
    try:
        found = jsons.read(beside)
    except FileNotFoundError:
        return
    except UserError:
        found = None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise UserError(f"{beside}: would be replaced, and it is not an export; choose another --out")


def flatten(loaded: policy.Policy) -> tuple[Arrays, dict[str, Any]]:
    """All arrays by name, and what they mean."""
    if not loaded.run.has_policy:
        raise UserError("this run trained a representation alone; export a run that has an algorithm")
    goal, goal_kind = _goal(loaded.run.rep, loaded.params.rep)
    actor, actor_kind = _actor(loaded.run.algo, loaded.params.algo)
    if loaded.facts.sizes.discrete and actor_kind["kind"] == "gaussian":
        actor_kind["kind"] = "categorical"
    encoders = {f"encoders/{name}": leaf for name, leaf in trees.to_host(loaded.params.encoders).items()}
    run, units = config.to_dict(loaded.run), loaded.facts.dataset.action_range
    about = {
        "observation_shape": list(loaded.facts.sizes.observation_shape),
        "goal_shape": list(loaded.facts.sizes.goal),
        "action_dim": loaded.facts.sizes.action_dim,
        "action_range": units and {"low": list(units.low), "high": list(units.high)},
        "seed": loaded.seed,
        "rep": run["rep"],
        "algo": run["algo"],
        "task": run["task"],
        "goal": goal_kind,
        "policy": actor_kind,
        "encoders": "impala" if encoders else None,
    }
    if actor_kind["kind"] == "flow":
        actor_kind["flow_steps"] = run["algo"]["flow_steps"]
    return {k: np.asarray(v) for k, v in {**goal, **actor, **encoders}.items()}, about


def _goal(rep: Representation, rep_nets: Any) -> tuple[Arrays, dict[str, Any]]:
    """The network that turns a goal into z, as far as the representation says that there is one."""
    if not rep.learned:
        return {}, {"kind": "identity"}
    net = getattr(rep_nets, rep.goal_network) if rep.goal_network else None
    if isinstance(net, Bottleneck):
        heads = {f"goal/{name}": _linear(head) for name, head in (("mean", net.mean), ("log_std", net.log_std))}
        flat = {f"{name}/{part}": array for name, layer in heads.items() for part, array in layer.items()}
        return _stack("goal", net.trunk) | flat, {"kind": "bottleneck"}
    if isinstance(net, Embedding):
        members = net.mlp.layers[0].w.shape[0] if net.mlp.layers[0].w.ndim == 3 else None
        return _stack("goal", net.mlp), {"kind": "mlp", "members": members}
    return {f"goal/{name}": leaf for name, leaf in trees.to_host(rep_nets).items()}, {"kind": "other"}


def _actor(algo: Algorithm, algo_nets: Any) -> tuple[Arrays, dict[str, Any]]:
    """The network that turns a state and z into an action, as far as the algorithm says that there is one."""
    net = getattr(algo_nets, algo.policy_network) if algo.policy_network else None
    if isinstance(net, Actor):
        return _stack("policy", net.mlp, net.head) | _fusion(net), {"kind": "gaussian"}
    if isinstance(net, Flow):
        return _stack("policy", net.mlp) | _fusion(net), {"kind": "flow"}
    return {f"policy/{name}": leaf for name, leaf in trees.to_host(algo_nets).items()}, {"kind": "other"}


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

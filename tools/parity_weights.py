"""Our networks as the nested dictionaries of arrays that Flax agents hold: the layout, not the numbers, changes.

Every function takes a network, or anything with its structure: its parameters, its gradients, its slowly moving copy.
The names on the right are those under which OGBench's agents and the paper's released ones keep their parameters.
"""

from typing import Any

from dualgoal import algos, reps
from dualgoal.agent import Agent
from dualgoal.nets.encoders import Fusion, Impala
from dualgoal.nets.heads import MLP, Actor, Bottleneck, Dense, Embedding, Flow, Linear, Value

Tree = dict[str, Any]
SLOW = "target_"  # what stands before the name of a module that is a slowly moving copy


def linear(layer: Linear | Dense) -> Tree:
    return {"kernel": layer.w, "bias": layer.b}


def mlp(net: MLP) -> Tree:
    """Layers are counted in the order in which they are applied; LayerNorms have a count of their own."""
    tree: Tree = {}
    for n, layer in enumerate(net.layers):
        tree[f"Dense_{n}"] = linear(layer)
        if isinstance(layer, Dense):
            tree[f"LayerNorm_{n}"] = {"scale": layer.scale, "bias": layer.offset}
    return tree


def impala(net: Impala) -> Tree:
    tree: Tree = {"MLP_0": {"Dense_0": {"kernel": net.w, "bias": net.b}}}
    for n, stack in enumerate(net.stacks):
        convolutions = (stack.first, *stack.block)
        tree[f"stack_blocks_{n}"] = {f"Conv_{k}": {"kernel": c.w, "bias": c.b} for k, c in enumerate(convolutions)}
    return tree


def fusion(fuse: Fusion) -> Tree:
    encoders = {"concat_encoder": fuse.encoder, "state_encoder": fuse.state, "goal_encoder": fuse.goal}
    tree = {name: impala(encoder) for name, encoder in encoders.items() if encoder is not None}
    return {"gc_encoder": tree} if tree else {}


def value(net: Value) -> Tree:
    return {"value_net": mlp(net.mlp), **fusion(net.fuse)}


def actor(net: Actor | Flow, discrete: bool) -> Tree:
    if isinstance(net, Flow):
        return {"mlp": mlp(net.mlp), **fusion(net.fuse)}
    head = "logit_net" if discrete else "mean_net"
    return {"actor_net": mlp(net.mlp), head: linear(net.head), **fusion(net.fuse)}


def bilinear(state: Embedding, goal: Embedding) -> Tree:
    """Two towers. The state's is called phi there and the goal's psi: the reverse of the paper's letters (D21)."""
    tree = {"phi": mlp(state.mlp), "psi": mlp(goal.mlp)}
    encoders = {"state_encoder": state.encoder, "goal_encoder": goal.encoder}
    return tree | {name: impala(encoder) for name, encoder in encoders.items() if encoder is not None}


def bottleneck(net: Bottleneck) -> Tree:
    return {"encoder": mlp(net.trunk), "Dense_0": linear(net.mean), "Dense_1": linear(net.log_std)}


def distance(rep: reps.Dual, nets: Any) -> Tree:
    """The factored value of a dual representation, whose layout depends on how its two embeddings are joined."""
    match rep.aggregation:
        case "inner":
            return {"network": bilinear(nets.psi, nets.phi)}
        case "symmetric":
            return {"phi": mlp(nets.phi.mlp)}
        case "asymmetric":
            return {"phi": mlp(nets.phi.mlp), "psi": mlp(nets.psi.mlp)}
        case "mrn":
            return {"network": {"phi": mlp(nets.phi.mlp)}}
        case "iqe":
            return {"network": {"phi": mlp(nets.phi.mlp), "alpha": {"value": nets.mean_weight}}}


def rep_modules(rep: Any, nets: Any) -> Tree:
    """The networks of a representation that are there, by the name of their module."""
    match rep:
        case reps.Dual():
            tree = {"rep_critic": value(nets.critic)}
            return tree if nets.phi is None else {"rep_value": distance(rep, nets), **tree}
        case reps.VIB():
            return {"vib": bottleneck(nets.phi)}
        case reps.VIP():
            return {"rep": mlp(nets.phi.mlp)}
        case reps.TRA():
            return {"contrastive": bilinear(nets.psi, nets.phi)}
        case reps.BYOL():
            names = {"phi": nets.phi, "psi_f": nets.forward, "psi_b": nets.backward}
            return {name: mlp(net.mlp) for name, net in names.items()}
        case reps.HIQLPhi():
            return {"goal_rep": {"layers_0": mlp(nets.phi.mlp)}}
        case reps.Orig():
            return {}
    raise TypeError(f"{type(rep).__name__} has no counterpart")


def algo_modules(algo: Any, nets: Any, discrete: bool) -> Tree:
    """The networks of an algorithm that are there, by the name of their module."""
    tree: Tree = {}
    if getattr(nets, "value", None) is not None:
        tree["value"] = value(nets.value)
    critic = getattr(nets, "critic", None)
    if critic is not None:
        tree["critic"] = bilinear(critic.state, critic.goal) if isinstance(algo, algos.CRL) else value(critic)
    for name in ("low", "high"):  # of HIQL, whose waypoints are never discrete
        if getattr(nets, name, None) is not None:
            tree[f"{name}_actor"] = actor(getattr(nets, name), discrete and name == "low")
    if getattr(nets, "actor", None) is not None:
        tree["actor_flow" if isinstance(nets.actor, Flow) else "actor"] = actor(nets.actor, discrete)
    return tree


def modules(agent: Agent, params: Any) -> Tree:
    """Everything that gradients change, by the name of its module."""
    tree = rep_modules(agent.rep, params.rep) | algo_modules(agent.algo, params.algo, agent.spec.discrete)
    if params.encoders is not None:
        tree |= {"state_encoder": impala(params.encoders.state), "goal_encoder": impala(params.encoders.goal)}
    return {f"modules_{name}": part for name, part in tree.items()}


def target_modules(agent: Agent, targets: Any) -> Tree:
    """The slowly moving copies, by the name of their module."""
    rep = rep_modules(agent.rep, targets.rep) if agent.rep.ema else {}
    algo = algo_modules(agent.algo, targets.algo, agent.spec.discrete) if agent.algo.ema else {}
    return {f"modules_{SLOW}{name}": part for name, part in (rep | algo).items()}

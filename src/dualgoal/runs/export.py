"""Export: the goal encoder and the policy of one seed as plain arrays, for any framework (docs/export.md).

A JSON file next to the arrays says what they are. Nothing of this package is needed to use them: the page shows a
reader in forty lines of NumPy. `policy.load` reads them too.
"""

from pathlib import Path
from typing import Any

from dualgoal import files, jsons
from dualgoal.errors import UserError
from dualgoal.runs import checkpoint, config, export_check, policy


def export_policy(run: str | Path, out: str | Path, *, seed: int | None = None, step: int | None = None) -> Path:
    """Write `out` (.safetensors) and its JSON file from a run; returns the former."""
    out = Path(out)
    if out.suffix != ".safetensors":
        raise UserError(f"{out}: expected a name that ends in .safetensors or .onnx")
    require_free(out, policy.EXPORTED)
    loaded = policy.load(run, seed, step)
    arrays, architecture = describe(loaded)
    files.make_folder(out.parent)
    checkpoint.write(out, arrays, sealed=False, format=policy.EXPORTED, step=loaded.step, **architecture)
    return out


def require_free(out: Path, form: str, what: str = "an export") -> None:
    """Raise if writing `out` and its JSON file would replace anything but earlier ones of this form."""
    known, there = None, out.with_suffix(".json")
    try:
        known = jsons.read(there)
    except FileNotFoundError:
        there = out  # which nothing says to be ours
    except UserError:
        pass
    if there.exists() and not (isinstance(known, dict) and known.get("format") == form):
        raise UserError(f"{there}: would be replaced, and it is not {what}; choose another --out")
    if isinstance(known, dict) and (other := known.get("file", out.name)) != out.name:
        raise UserError(f"{there}: would be replaced, and it describes {other}; choose another --out")


def describe(loaded: policy.Policy) -> tuple[checkpoint.Arrays, dict[str, Any]]:
    """All arrays by name, and what they mean."""
    require_policy(loaded)
    arrays, goal_kind, actor_kind = export_check.arrays_and_kinds(loaded)
    run, facts, units = config.to_dict(loaded.run), loaded.facts.to_json(), loaded.facts.dataset.action_range
    facts["dataset"]["file"] = None  # a path of this machine
    return arrays, {
        "observation_shape": list(loaded.facts.sizes.observation_shape),
        "goal_shape": list(loaded.facts.sizes.goal),
        "action_dim": loaded.facts.sizes.action_dim,
        "action_range": units and {"low": list(units.low), "high": list(units.high)},
        "observation_standard": facts["dataset"]["observation_standard"],
        "goal_standard": facts["dataset"]["goal_standard"] or facts["dataset"]["observation_standard"],
        "seed": loaded.seed,
        "rep": run["rep"],
        "algo": run["algo"],
        "task": run["task"],
        "goal": goal_kind,
        "policy": actor_kind,
        "encoders": "impala" if any(name.startswith("encoders/") for name in arrays) else None,
        "run": run | {"frozen_rep": None},
        "facts": facts | {"frozen_rep": None},
    }


def require_policy(loaded: policy.Policy) -> None:
    """Raise if there is nothing that acts."""
    if not loaded.run.has_policy:
        raise UserError("this run trained a representation alone; export a run that has an algorithm")

"""The environment that a user means: an object, a function that makes one, a name of either, or a Gymnasium id."""

from typing import Any

import gymnasium

from dualgoal import imports
from dualgoal.errors import UserError, brief, kind_of


def build(what: Any, max_steps: int | None = None) -> Any:
    """The environment that a user means: an object, a callable that makes one, `module:factory`, or a Gymnasium id."""
    name = what if isinstance(what, str) else getattr(what, "__name__", type(what).__name__)
    named = isinstance(what, str) and ":" in what and what.rpartition(":")[2].isidentifier()
    if isinstance(what, str) and not named:  # Gymnasium's module:Name-v0 too
        made = _from_id(what, max_steps)
    else:
        maker = imports.function("environment", what) if named else what
        with imports.calling(f"environment '{name}'"):
            made = maker() if makes(maker) else maker
    if isinstance(made, gymnasium.Env) and not hasattr(made, "action_space"):
        raise UserError(f"environment '{name}' has no action_space; set it in the class or in __init__")
    if not all(hasattr(made, part) for part in ("reset", "step", "action_space")):
        raise UserError(f"environment '{name}' is {kind_of(made)}; expected a gymnasium.Env")
    return made


def makes(what: Any) -> bool:
    """Whether this makes environments, instead of being one."""
    return isinstance(what, str) or (callable(what) and not isinstance(what, gymnasium.Env))


def _from_id(name: str, max_steps: int | None) -> Any:
    if name.endswith(".py"):
        raise UserError(f"environment '{name}': say what in the file makes it: {name}:NAME of a class or function")
    limit = {} if max_steps is None else {"max_episode_steps": max_steps}
    try:
        made = gymnasium.make(name, disable_env_checker=True, **limit)
        if "rgb_array" in (made.metadata.get("render_modes") or ()) and made.render_mode is None:
            made.close()
            made = gymnasium.make(name, disable_env_checker=True, render_mode="rgb_array", **limit)
        return made
    except (gymnasium.error.Error, ImportError) as problem:
        raise UserError(f"environment '{name}': {brief(problem)}; give a Gymnasium id, or module:factory") from problem

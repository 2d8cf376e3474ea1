"""What cannot work together: a representation, an algorithm and a problem, refused before anything is trained."""

from dualgoal.errors import UserError
from dualgoal.interface import Algorithm, Representation, Spec


def check_pair(rep: Representation, algo: Algorithm, frozen: bool = False) -> None:
    """Refuse what cannot work together, whatever the data; a `frozen` representation is not trained."""
    if not algo.roles and (frozen or rep.stream is None):
        why = "is frozen" if frozen else "has no loss of its own"
        raise UserError(f"{type(rep).__name__} {why} and {type(algo).__name__} adds no loss; choose another algorithm")
    names = f"{type(algo).__name__} cannot use {type(rep).__name__}"
    if algo.needs_rep_value and not rep.learns_value:
        raise UserError(f"{names}: direct extraction needs a representation that learns a value, such as dual")
    if algo.needs_blind and rep.looks_at_state:
        raise UserError(f"{names}: it pairs every state with every goal, so z must not depend on the state")
    if "rep" in algo.roles:
        raise UserError(f"{type(algo).__name__}: a role cannot be called 'rep'; that is the representation's own loss")
    independent = [name for name, role in algo.roles.items() if role.goals.towards is None]
    for name, role in algo.roles.items():
        if role.goals.towards not in (None, *independent):
            raise UserError(
                f"{type(algo).__name__}: the goals of role '{name}' are drawn towards those of '{role.goals.towards}'; "
                f"expected a role whose goals depend on no other ({', '.join(independent) or 'none here'})"
            )


def check_goals(rep: Representation, spec: Spec) -> None:
    """Refuse goals of a shape that a representation or its image encoders cannot read."""
    goal, observation = spec.goal_shape, spec.observation_shape
    if goal == observation:
        return
    if spec.pixels or len(goal) == 3:
        raise UserError(f"goals are {goal} but observations {observation}; image goals need images of the same shape")
    if rep.embeds_both:
        raise UserError(
            f"{type(rep).__name__} reads states and goals with one network, but observations are {observation} and "
            f"goals {goal}; use one with two networks, such as dual with aggregation inner"
        )

"""The file of a trained policy, which skill of which collector it is, and how it was made."""

from pathlib import Path

from dualgoal.collect import experts
from dualgoal.experts.bodies import BODIES

ACTOR = "actor.safetensors"
SKILLS = {"ant": "walk", "antball": "dribble", "humanoid": "walk"}
ACTIONS = {"ant": 8, "antball": 8, "humanoid": 21}


def load(body: str, path: Path) -> experts.Expert:
    """The policy of a body, from its file or from the folder of its training."""
    skill = SKILLS[body]
    file = path / ACTOR if path.is_dir() else path
    return experts.load(file, {skill: (BODIES[body].observation_size, ACTIONS[body])})[skill]

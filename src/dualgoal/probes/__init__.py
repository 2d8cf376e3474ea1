"""How a network must join two images to see in what they differ: drawn puzzles, and probes of networks."""

from dualgoal.imports import modules_of

__getattr__ = modules_of(__name__)

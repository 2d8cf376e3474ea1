"""What two images must go through before a network sees in what they differ: drawn puzzles, and probes of networks."""

from dualgoal.imports import modules_of

__getattr__ = modules_of(__name__)

"""Making datasets: scripted behaviours that act in an environment and record what happens."""

from dualgoal.imports import modules_of

__getattr__ = modules_of(__name__)

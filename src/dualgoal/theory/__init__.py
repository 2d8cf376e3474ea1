"""Finite processes with exact temporal distances, and the paper's theorems as checks."""

from dualgoal.imports import modules_of

__getattr__ = modules_of(__name__)

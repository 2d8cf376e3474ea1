"""Datasets: what they are, how they are checked, read, downloaded and imported."""

from dualgoal.imports import modules_of

__getattr__ = modules_of(__name__)

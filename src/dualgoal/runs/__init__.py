"""A run: its configuration, its directory, training, evaluation, and what a user loads from it."""

from dualgoal.imports import modules_of

__getattr__ = modules_of(__name__)

"""The paper's settings, tables and figures, and our numbers next to them."""

from dualgoal.imports import modules_of

__getattr__ = modules_of(__name__)

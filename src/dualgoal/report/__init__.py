"""One self-contained HTML page about one or more runs."""

from dualgoal.imports import modules_of

__getattr__ = modules_of(__name__)

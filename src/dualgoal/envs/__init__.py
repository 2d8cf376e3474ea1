"""Environments: OGBench's tasks made repeatable, and the Lights Out puzzle."""

from dualgoal.imports import modules_of

__getattr__ = modules_of(__name__)

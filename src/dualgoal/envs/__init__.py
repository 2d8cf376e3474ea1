"""Environments: OGBench's tasks made repeatable, and the Lights Out puzzle."""

"""Finite processes with exact temporal distances, and the paper's theorems as checks."""

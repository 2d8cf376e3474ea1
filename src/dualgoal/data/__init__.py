"""Datasets: what they are, how they are checked, read, downloaded and imported."""

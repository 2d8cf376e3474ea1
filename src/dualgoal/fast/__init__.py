"""Faster forms of plain functions: fused activations, matrix products, Adam, max-pooling. Each has a plain twin."""

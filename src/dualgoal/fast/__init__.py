"""Faster forms of simple functions, for GPUs: activations, matrix products, Adam, max-pooling.

Nothing here changes the method. Each module has a plain twin that its tests compare it with (`plain` in `activations`,
`matmul` and `pooling`, Optax in `adam`), so a reader may skip this folder and think of the twins.
"""

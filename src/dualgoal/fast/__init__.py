"""Faster forms of simple functions, most of them for GPUs: activations, matrix products, Adam, convolutions,
max-pooling, and reading images.

Nothing here changes the method. Each function has a plain twin that its tests compare it with (`plain` in
`activations`, `convolution`, `matmul` and `pooling`, Optax in `adam`, plain convolutions for the image encoder of
`trunk`), so a reader may skip this folder and read the twins instead.
"""

"""A run: its configuration, its directory, training, evaluation, and what a user loads from it."""

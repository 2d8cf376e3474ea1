"""How fast training is, and where the time goes."""

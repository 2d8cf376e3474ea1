"""Making datasets: scripted behaviours that act in an environment and record what happens."""

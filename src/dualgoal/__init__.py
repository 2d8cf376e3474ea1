"""dualgoal: offline goal-conditioned reinforcement learning with dual goal representations."""

__version__ = "0.1.0"

"""Starts trainings: ranks, nodes, processes and what they write. Knows no task; Paddle is not imported."""

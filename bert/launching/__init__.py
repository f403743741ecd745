"""Starts trainings: ranks, nodes, processes and their output. Knows no task; does not import Paddle."""

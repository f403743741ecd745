"""Behind scripts/run_*.sh: from arguments to plans, prepared data and processes, on one node, several, or under Slurm.

No training happens here and Paddle is not imported; no other package imports this one.
"""

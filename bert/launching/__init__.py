"""The launchers of scripts/run_*.sh: arguments -> plan -> data and processes, on one or several nodes, or in Slurm.

No training happens here and Paddle is not imported. No other package imports this one.
"""

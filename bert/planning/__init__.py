"""What a run will take, before it runs: parameters, memory, time and cost on hardware that need not be here.

Pure arithmetic over settings and a table of hardware.
"""

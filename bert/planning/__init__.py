"""Estimates of a run before it starts: parameters, memory, time and cost on given hardware.

Arithmetic over settings and a table of hardware; nothing is executed, and Paddle is not imported.
"""

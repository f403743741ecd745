"""Output of a run: log lines, metrics files, VisualDL's curves, progress, and the report made from them.

Nothing here decides anything about a run: a failure to write a log never stops a training. Paddle is not imported.
"""

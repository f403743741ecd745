"""Numpy and Arrow arrays: rows of different lengths in flat arrays, and compiled loops over them.

Knows nothing of BERT, text or files.
"""

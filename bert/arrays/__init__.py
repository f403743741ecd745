"""Arrays: rows of different lengths in flat NumPy arrays, conversion to and from Arrow, and the compiler of loops.

What knows of BERT, text or files does not belong here; loops for one purpose stand beside their users.
"""

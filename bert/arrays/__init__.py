"""Arrays: rows of different lengths in flat NumPy arrays, conversion to and from Arrow, and Numba's compiler.

Nothing here may depend on BERT, text or files; a loop with a single purpose lives beside its caller.
"""

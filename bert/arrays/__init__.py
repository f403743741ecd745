"""Arrays: flat NumPy arrays of rows of different lengths, unit vectors, reading of Arrow, Numba's compiler.

Nothing here may depend on BERT, text or files; a loop with a single purpose lives beside its caller.
"""

"""Pre-training samples: shards and their formats, manifests, the order of samples, masks, and batches with a position.

Text does not enter (see `data` and `bert.tokenization`), and Paddle is not imported.
"""

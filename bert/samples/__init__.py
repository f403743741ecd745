"""Pre-training samples: shards and their formats, manifests, the order of samples, masks, and batches with a position.

Nothing here processes text (see `data` and `bert.tokenization`), and Paddle is not imported.
"""

"""Pre-training samples: shards and their formats, manifests, sample order, masks, and resumable batches.

Nothing here processes text (see `data` and `bert.tokenization`), and Paddle is not imported.
"""

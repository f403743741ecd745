"""Pre-training samples: shards and their manifest, their order, masks and batches. No Paddle."""

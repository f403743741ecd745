"""From source text to shards: sentence pairs, static masks and shards, in blocks that any process can work on.

Reading a user's files is in `data.text`; the shard formats and the masking rule are in `bert.samples`.
"""

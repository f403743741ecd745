"""Preprocessing: makes sentence pairs, static masks and shards from source text, in independent blocks.

Reading a user's files is in `data.text`; the shard formats and the masking rule are in `bert.samples`.
"""

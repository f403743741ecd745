"""Formats of shard files: modules with `describe(path)` and `read(data, strings)`. bert/samples/shards.py lists them.

Arrow's own threads are never used: a process that has started pyarrow 17's thread pool sometimes aborts when it exits
("terminate called without an active exception").
"""

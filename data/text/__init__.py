"""Text from files of any kind: formats, encodings, compression, duplicates, sentences, and LDDL's source layout.

Pairs, masks and shards do not belong here.
"""

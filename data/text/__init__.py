"""Text from files of any kind: readers, encodings, compression, duplicates, sentences, and LDDL's source layout.

Pairs, masks and shards do not belong here.
"""

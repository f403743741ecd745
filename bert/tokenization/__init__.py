"""Vocabulary files, and WordPiece tokenisation of whole blocks of text with character offsets.

Sentences, pairs and shards do not belong here, and Paddle is not imported.
"""

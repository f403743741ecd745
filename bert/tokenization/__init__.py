"""Vocabulary files and WordPiece tokenization, for whole blocks of text and with character offsets.

Sentences, pairs and shards do not belong here, and Paddle is not imported.
"""

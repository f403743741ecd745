"""Vocabulary files and WordPiece tokenisation: for whole blocks of text, and with character offsets."""

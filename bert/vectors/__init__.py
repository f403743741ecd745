"""Vectors of texts for search: pairs of a user's table or of own text, their training, and recall beside BM25."""

"""Vectors of texts for search: pairs from a user's table or text, their training, and recall compared with BM25."""

"""Trains vectors of texts for search on pairs from a user's table or text, and compares their recall with BM25."""

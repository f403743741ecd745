"""Search: BM25 of words, cosines of vectors, and the weighted sum of both."""

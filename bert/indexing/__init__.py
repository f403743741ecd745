"""Builds, changes and searches an index of documents with a model. bert/search reads and writes the index files."""

"""Indexes of a model and documents: made, changed and searched. The kept files are in bert/search."""

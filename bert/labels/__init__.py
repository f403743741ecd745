"""Trains on labelled texts, with classes, several labels or numbers, from a user's table or a published one (GLUE)."""

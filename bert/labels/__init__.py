"""Labelled texts: classes, several labels or numbers, from a user's own table or a published one (GLUE)."""

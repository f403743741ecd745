"""What a run left, read back: curves, and a document of one or several runs."""

"""Source text -> tokenised pairs -> masks -> shards, in blocks that any process may work on."""

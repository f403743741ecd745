"""From text to shards: sample corpus, vocabulary, sentences, pairs, masks, balanced shards. Runs without Paddle."""

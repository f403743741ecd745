"""Parts of the tokeniser that work on whole blocks of text at once. No Paddle."""

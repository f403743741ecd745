"""Text from files of any kind: readers, encodings, compression, duplicates, sentences, LDDL's source layout."""

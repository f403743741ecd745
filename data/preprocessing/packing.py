"""Sequences for masked-LM training without sentence pairs, for all documents of a block at once.

The documents of a block follow each other with a [SEP] between them, and this text is cut into sequences of the full
length, as `run_mlm` of Hugging Face does and as RoBERTa's FULL-SENTENCES does but for its cuts at sentence ends
(Liu et al., 2019). Repetitions of the documents (`duplicate_factor`) are cut at other places.
"""

from collections import Counter

import numpy as np

from bert.randomness import integers_below, permutation, stream_key
from data.preprocessing.pairs import PairSettings, Spans
from data.text.sentences import TokenizedDocuments

SPECIAL_TOKENS = 2  # [CLS] and [SEP] of a sequence
_FEWEST_TOKENS = 8  # of a sequence: the ends of a block's text may be shorter, and are dropped


def pack_documents(
    documents: TokenizedDocuments, settings: PairSettings, block: int, sep_id: int, counts: Counter
) -> tuple[TokenizedDocuments, Spans]:
    """The block's tokens with a [SEP] after each document, and its sequences in random order; B of a span is empty."""
    separated = _separated(documents, sep_id)
    tokens = separated.token_ids
    pieces = [_cut(len(tokens), settings, block, number) for number in range(settings.duplicate_factor)]
    starts, stops = np.concatenate([piece[0] for piece in pieces]), np.concatenate([piece[1] for piece in pieces])
    if len(starts):  # no sequence begins or ends with the [SEP] between two documents
        starts = starts + (tokens[starts] == sep_id)
        stops = stops - (tokens[stops - 1] == sep_id)
    long_enough = stops - starts >= _FEWEST_TOKENS
    counts["tokens dropped at the ends of blocks"] += int(np.maximum(stops - starts, 0)[~long_enough].sum())
    starts, stops = starts[long_enough], stops[long_enough]
    order = permutation(stream_key(settings.seed, "sequence order", block), len(starts))
    starts, stops = starts[order], stops[order]
    spans = Spans(starts, stops, stops, stops, np.zeros(len(starts), bool))
    counts["samples"] += len(spans)
    counts["sample tokens"] += int(spans.lengths().sum())
    return separated, spans


def _separated(documents: TokenizedDocuments, sep_id: int) -> TokenizedDocuments:
    """The documents with a [SEP] at the end of each."""
    ends = documents.sentence_offsets[documents.document_offsets[1:]]
    continues = documents.continues
    return TokenizedDocuments(
        np.insert(documents.token_ids, ends, sep_id),
        documents.sentence_offsets,  # not used any more: sequences are cut from tokens
        documents.document_offsets,
        None if continues is None else np.insert(continues, ends, False),
    )


def _cut(num_tokens: int, settings: PairSettings, block: int, number: int) -> tuple[np.ndarray, np.ndarray]:
    """(starts, stops) of one repetition: the first piece has a random length, except in the first repetition."""
    size = settings.target_seq_length - SPECIAL_TOKENS
    first = 0
    if number:
        key = stream_key(settings.seed, "first cut", block, number)
        first = int(integers_below(key, np.zeros(1, np.int64), np.array([size]))[0])
    edges = np.unique(np.concatenate([[0], np.arange(first, num_tokens, size), [num_tokens]]))
    return edges[:-1], edges[1:]

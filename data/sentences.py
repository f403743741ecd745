"""Documents -> sentences -> token ids, for a whole block of documents at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import sentencex

from bert.tokenization import FastTokenizer
from data.word_boundaries import WordSegmenter, encode_words

_BATCH_CHARACTERS = 4 << 20
_PIECE_CHARACTERS = 5000
_ENDS = (". ", "! ", "? ", "\u3002")


@dataclass(frozen=True)
class TokenizedDocuments:
    """D documents, n sentences, T tokens; no document and no sentence is empty.

    Attributes:
        token_ids: [T] of the vocabulary's id dtype.
        sentence_offsets: int64 [n + 1], into token_ids.
        document_offsets: int64 [D + 1], into the sentences.
        continues: bool [T], tokens that belong to the word of the one before, if a segmenter found the words.
    """

    token_ids: np.ndarray
    sentence_offsets: np.ndarray
    document_offsets: np.ndarray
    continues: np.ndarray | None = None


def tokenize_documents(texts: Iterable[str], tokenizer: FastTokenizer, language: str,
                       counts: Counter, segmenter: WordSegmenter | None = None) -> TokenizedDocuments:
    """Split documents into sentences and these into WordPiece ids; a few megabytes of text are held at a time."""
    ids, lengths, owners, continues = [], [], [], [np.zeros(0, bool)]
    num_documents = 0
    for batch in _batches(texts):
        sentences: list[str] = []
        sizes = []
        for text in batch:
            found = split_sentences(text, language)
            sentences += found
            sizes.append(len(found))
        if segmenter:
            segmented = encode_words(sentences, tokenizer, segmenter)
            batch_ids, offsets = segmented.ids, segmented.offsets
            continues.append(segmented.continues)
            counts["words of several characters, some Chinese"] += segmented.num_words
        else:
            batch_ids, offsets = tokenizer.encode_texts(sentences)
        ids.append(batch_ids)
        lengths.append(np.diff(offsets))
        owners.append(np.repeat(np.arange(len(batch)) + num_documents, sizes))
        num_documents += len(batch)
    if not ids:
        ids, lengths, owners = [np.zeros(0, tokenizer.vocabulary.id_dtype())], [np.zeros(0, np.int64)], [
            np.zeros(0, np.int64)]
    all_lengths, all_owners = np.concatenate(lengths), np.concatenate(owners)
    kept = all_lengths > 0
    documents, first_sentences = np.unique(all_owners[kept], return_index=True)
    num_sentences = int(kept.sum())
    tokens = np.concatenate(ids)
    counts["sentences"] += num_sentences
    counts["documents without tokens"] += num_documents - len(documents)
    counts["documents used"] += len(documents)
    counts["tokens"] += len(tokens)
    counts["unknown tokens"] += int((tokens == tokenizer.vocabulary.id_of("[UNK]")).sum())
    return TokenizedDocuments(tokens, np.concatenate([[0], np.cumsum(all_lengths[kept])]).astype(np.int64),
                              np.append(first_sentences, num_sentences).astype(np.int64),
                              np.concatenate(continues) if segmenter else None)


def split_sentences(text: str, language: str = "en") -> list[str]:
    """The sentences of a text, white space included, so that they join to the text.

    sentencex lets no sentence end between two quotation marks or brackets, however far apart: one mark without its
    partner joined 600 kB into a sentence and made it several times slower. So it is given some pages at a time.
    """
    sentences: list[str] = []
    start = 0
    while len(text) - start > _PIECE_CHARACTERS:
        low, high = start + _PIECE_CHARACTERS // 2, start + _PIECE_CHARACTERS
        cut = max(found + len(end) if (found := text.rfind(end, low, high)) >= 0 else 0 for end in _ENDS)
        cut = cut or text.rfind(" ", low, high) + 1 or high
        sentences += sentencex.segment(language, text[start:cut])
        start = cut
    return sentences + sentencex.segment(language, text[start:]) if start < len(text) else sentences


def _batches(texts: Iterable[str]) -> Iterable[list[str]]:
    batch: list[str] = []
    size = 0
    for text in texts:
        batch.append(text)
        size += len(text)
        if size >= _BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch

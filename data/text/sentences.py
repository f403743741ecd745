"""Splits documents into sentences and tokenises them, one block of documents at a time."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from bert.arrays.compiled import compiled
from bert.arrays.ragged import offsets_of
from bert.tokenization.library import TextTokenizer
from data.text.abbreviations import OpenEnds
from data.text.code_pages import base_language
from data.text.sentence_ends import CLOSING, SCRIPT_MARKS, segmented, sentence_ends
from data.text.word_boundaries import WordSegmenter, encode_words

_SURE_WORD = 4  # letters
_ENDS = ("! ", "? ", *"".join(SCRIPT_MARKS.values()))
_UNKNOWN_MARKS = SCRIPT_MARKS["Khmer"] + SCRIPT_MARKS["Tibetan"]  # at which sentencex ends no sentence
_SENTENCES = re.compile(rf".*?[{_UNKNOWN_MARKS}]+[{re.escape(CLOSING)}]*\s*|.+", re.DOTALL)
_NO_END = "\ua9c8"  # the comma of Javanese, at which sentencex ends one
LINE_BREAK = "\u2028"  # ends a line, and so a sentence, inside of a document, which is one line of a file


def last_start(text: str, low: int, high: int) -> int:
    """Last position between low and high where a sentence starts, otherwise a word, otherwise `high`.

    A full stop may belong to an abbreviation or an initial, but not between a longer word and a capital letter.
    """
    place = text.rfind(". ", low, high)
    while place >= 0:
        word = text[max(0, place - _SURE_WORD) : place]
        if len(word) == _SURE_WORD and word.isalpha() and word.islower() and text[place + 2 : place + 3].isupper():
            return place + 2
        place = text.rfind(". ", low, place)
    for candidates in (_ENDS, (". ",), (" ",)):
        starts = [place + len(end) for end in candidates if (place := text.rfind(end, low, high)) >= 0]
        if starts:
            return max(starts)
    return high


_PIECE_CHARACTERS = 2000
CUT_SENTENCES = "sentences cut in parts, too long for half a sample"
PARTS_OF_SENTENCES = "parts of the sentences that were cut"


@dataclass(frozen=True)
class TokenizedDocuments:
    """Tokens of D documents with n sentences and T tokens; no document and no sentence is empty.

    Attributes:
        continues: bool [T], tokens that continue the previous token's word, if a segmenter found the words.
    """

    token_ids: np.ndarray  # [T], in the vocabulary's id dtype
    sentence_offsets: np.ndarray  # int64 [n + 1], into token_ids
    document_offsets: np.ndarray  # int64 [D + 1], into the sentences
    continues: np.ndarray | None = None


def tokenize_documents(
    texts: Iterable[tuple[int, str]],
    tokenizer: TextTokenizer,
    language: str,
    counts: Counter,
    segmenter: WordSegmenter | None = None,
    max_sentence_tokens: int | None = None,
    batch_characters: int = 4 << 20,
) -> TokenizedDocuments:
    """Split documents into sentences of WordPiece ids; holds a few megabytes of text at a time.

    Each text has the number of its document, in ascending order; texts of one number are pieces of one document.
    Sentences of more than `max_sentence_tokens` are cut into equal parts between two words, and counted.
    `batch_characters` of text, or one text that is longer, are held at a time.
    """
    ids = [np.zeros(0, tokenizer.vocabulary.id_dtype())]
    lengths, owners, continues = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0, bool)]
    read: set[int] = set()
    for numbers, batch in _batches(texts, batch_characters):
        text, bounds, owner = _sentences_of(batch, language, counts)
        if segmenter:
            sentences = [text[start:stop].tobytes().decode() for start, stop in pairwise(bounds.tolist())]
            batch_ids, offsets, inside, num_words = encode_words(sentences, tokenizer, segmenter)
            continues.append(inside)
            counts["words of several characters, some Chinese"] += num_words
        else:
            batch_ids, offsets = tokenizer.encode_bytes(text, bounds)
        if max_sentence_tokens:
            inside = continues[-1] if segmenter else tokenizer.vocabulary.continuations()[batch_ids]
            offsets, parts = _cut_long(offsets, inside, max_sentence_tokens)
            counts[CUT_SENTENCES] += int((parts > 1).sum())
            counts[PARTS_OF_SENTENCES] += int(parts[parts > 1].sum())
            owner = np.repeat(owner, parts)
        ids.append(batch_ids)
        lengths.append(np.diff(offsets))
        owners.append(np.array(numbers, np.int64)[owner])
        read.update(numbers)
    all_lengths, all_owners = np.concatenate(lengths), np.concatenate(owners)
    has_tokens = all_lengths > 0
    documents, first_sentences = np.unique(all_owners[has_tokens], return_index=True)
    num_sentences = int(has_tokens.sum())
    tokens = np.concatenate(ids)
    counts["sentences"] += num_sentences
    counts["documents without tokens"] += len(read) - len(documents)
    counts["documents used"] += len(documents)
    counts["tokens"] += len(tokens)
    counts["unknown tokens"] += int((tokens == tokenizer.vocabulary.id_of("[UNK]")).sum())
    return TokenizedDocuments(
        tokens,
        offsets_of(all_lengths[has_tokens]),
        np.append(first_sentences, num_sentences).astype(np.int64),
        np.concatenate(continues) if segmenter else None,
    )


def _sentences_of(texts: list[str], language: str, counts: Counter) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Texts as UTF-8, uint8 [n]; starts of the sentences, int64 [m + 1]; text of each, int64 [m]."""
    encoded = [text.encode() for text in texts]
    joined = b"".join(encoded)
    text = np.frombuffer(joined, np.uint8)
    documents = offsets_of([len(part) for part in encoded])
    if language == "en":
        ends = sentence_ends(text, documents)
    else:
        ends = np.cumsum(
            [len(sentence.encode()) for part in texts for sentence in split_sentences(part, language, counts)],
            dtype=np.int64,
        )
    breaks = [match.end() for match in re.finditer(LINE_BREAK.encode(), joined)]  # of source code
    bounds = np.unique(np.concatenate([documents, ends, np.array(breaks, np.int64)]))
    return text, bounds, np.searchsorted(documents, bounds[:-1], side="right") - 1


def _cut_long(offsets: np.ndarray, continues: np.ndarray, limit: int) -> tuple[np.ndarray, np.ndarray]:
    """Divide sentences of over `limit` tokens: (offsets of the parts, number of parts of each sentence)."""
    lengths = np.diff(offsets)
    cut = np.empty(len(offsets) + int((4 * lengths // limit).sum()), np.int64)
    parts = np.empty(len(lengths), np.int64)
    return cut[: _fill_parts(offsets, continues, limit, cut, parts)], parts


@compiled
def _fill_parts(offsets: np.ndarray, continues: np.ndarray, limit: int, cut: np.ndarray, parts: np.ndarray) -> int:
    """Fill in the offsets and parts of `_cut_long`; returns the number of offsets. A part may be as short
    as half of an equal share, that is a quarter of the limit, so that no word is cut."""
    end = 0
    for sentence in range(len(parts)):
        place, stop = offsets[sentence], offsets[sentence + 1]
        cut[end] = place
        end += 1
        parts[sentence] = 1
        while stop - place > limit:
            number = (stop - place + limit - 1) // limit
            size = (stop - place + number - 1) // number
            following = place + size
            while continues[following] and following > place + size // 2 + 1:
                following -= 1
            place = place + size if continues[following] else following
            cut[end] = place
            end += 1
            parts[sentence] += 1
    cut[end] = offsets[-1]
    return end + 1


def split_sentences(text: str, language: str, counts: Counter) -> list[str]:
    """Sentences of a text with their white space; joined they give the text.

    sentencex ends no sentence between two quotation marks or brackets, however far apart: one unpaired mark joined
    600 kB into a sentence and made it several times slower. So it gets one page at a time, cut where a sentence
    certainly ends.
    """
    sentences: list[str] = []
    start = 0
    while len(text) - start > _PIECE_CHARACTERS:
        cut = last_start(text, start + _PIECE_CHARACTERS // 2, start + _PIECE_CHARACTERS)
        sentences += _segment(language, text[start:cut], counts)
        start = cut
    return sentences + _segment(language, text[start:], counts) if start < len(text) else sentences


def _segment(language: str, page: str, counts: Counter) -> list[str]:
    sentences = segmented(language, page)
    if sentences is None or sum(map(len, sentences)) != len(page):
        counts["pages kept as one sentence, which sentencex failed on"] += 1
        return [page]
    parts = (part for sentence in sentences for part in _SENTENCES.findall(sentence))
    return _joined(parts, language) if language != "en" else [*parts]


@lru_cache(maxsize=8)
def _open_ends(language: str) -> OpenEnds:
    return OpenEnds(base_language(language))


def _joined(parts: Iterable[str], language: str) -> list[str]:
    """Join sentences that were split at an abbreviation, or at the comma of Javanese."""
    ends, sentences = _open_ends(language), list[str]()
    for part in parts:
        if sentences and (sentences[-1].rstrip().endswith(_NO_END) or ends.goes_on(sentences[-1], part)):
            sentences[-1] += part
        else:
            sentences.append(part)
    return sentences


def _batches(texts: Iterable[tuple[int, str]], characters: int) -> Iterable[tuple[list[int], list[str]]]:
    numbers: list[int] = []
    batch: list[str] = []
    size = 0
    for number, text in texts:
        numbers.append(number)
        batch.append(text)
        size += len(text)
        if size >= characters:
            yield numbers, batch
            numbers, batch, size = [], [], 0
    if batch:
        yield numbers, batch

"""Trains vocabularies; the same texts always give the same tokens and ids."""

import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, repeat
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers.processors import BertProcessing

from bert.tokenization.equal_letters import UNSEEN, equalizing
from bert.tokenization.library import LibraryVocabulary
from bert.tokenization.normalization import UNCASED, Normalization
from bert.tokenization.segmentation import ZERO_WIDTH_SPACE, with_spaces
from bert.tokenization.vocabulary import CONTINUATION_PREFIX, SPECIAL_TOKENS, Vocabulary
from bert.tokenization.wordpiece import reference_tokenizer

MODELS = ("wordpiece", "bpe", "unigram")
MOST = (1 << 31) - 1
Texts = Callable[[], Iterator[str]]
_LEAST_ALPHABET, _ALPHABET_COVERAGE, _MOST_CHARACTERS = 1000, 0.999, 0.75  # characters, share of text, of vocabulary
# As byte-level BPE usually splits a text, but that a letter keeps its marks: vowels of Hindi and Thai are marks.
_WORD = r" ?[\p{L}\p{M}]+| ?\p{N}+| ?[^\s\p{L}\p{M}\p{N}]+|\s+(?!\S)|\s+"
_RUN, _MOST_RUNS = re.compile(r"[^ \t\n\r]+"), 1 << 20  # different ones, kept until they are cut
_LEAST_COUNT, _LEAST_DOCUMENTS = 5, 3  # of a word that is added; rarer ones have little to learn from, and may be names


def learn_vocabulary(
    texts: Texts,
    vocab_size: int,
    *,
    model: str = "wordpiece",
    normalization: Normalization = UNCASED,
    min_frequency: int = 2,
) -> Vocabulary:
    """A vocabulary of at most vocab_size tokens, the special ones first: WordPieces, or a `LibraryVocabulary` whose
    tokenizer.json has all rules of a byte-level BPE or a Unigram. These cut words from runs of any length.

    The library's trainers break ties by the order in which they read the characters. They are given all of them in
    sorted order first, so the result is a function of the text, but for the third digit of a Unigram's scores.
    """
    for name, value in {"vocab_size": vocab_size, "min_frequency": min_frequency}.items():
        if not 1 <= value <= MOST:
            raise ValueError(f"{name}={value} must be at least 1 and at most {MOST}")
    alphabet, fixed = sorted(pre_tokenizers.ByteLevel.alphabet()), [*SPECIAL_TOKENS]
    if model != "bpe":
        words = _word_counts(texts, normalization)
        alphabet, continuations = _characters(words, vocab_size)
        fixed += continuations if model == "wordpiece" else []
    if vocab_size < (least := len(fixed) + len(alphabet)):
        kind = "bytes" if model == "bpe" else "characters of the text"
        both = ", at and after the beginning of a word" if model == "wordpiece" else ""
        raise ValueError(
            f"vocab_size={vocab_size} must be at least {least}: the special tokens and the {len(alphabet)} {kind}{both}"
        )
    usual = {"vocab_size": vocab_size, "special_tokens": fixed, "initial_alphabet": alphabet, "show_progress": False}
    if model == "wordpiece":
        tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))  # for words as they are
        limits = {"min_frequency": min_frequency, "limit_alphabet": len(alphabet)}
        every = chain.from_iterable(repeat(word, count) for word, count in words.items() if len(word) > 1)
        tokenizer.train_from_iterator(every, trainers.WordPieceTrainer(**limits, **usual))
        ids = tokenizer.get_vocab()
        return Vocabulary(tuple(sorted(ids, key=ids.__getitem__)))
    if model == "bpe":
        tokenizer, cut = Tokenizer(models.BPE()), pre_tokenizers.Split(Regex(_WORD), "isolated")
        of_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Sequence([cut, of_bytes]), decoders.ByteLevel()
        trainer = trainers.BpeTrainer(min_frequency=min_frequency, **usual)
    else:
        tokenizer = Tokenizer(models.Unigram())
        tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
        trainer = trainers.UnigramTrainer(unk_token="[UNK]", **usual)
    tokenizer.normalizer = normalizers.Sequence(_rules_of_text(normalization))
    tokenizer.train_from_iterator(_segmented_texts(texts, normalization), trainer)
    tokenizer.post_processor = BertProcessing(*((token, tokenizer.token_to_id(token)) for token in ("[SEP]", "[CLS]")))
    content = json.loads(tokenizer.to_str())
    if model == "unigram":  # the library sums the scores in any order, by which it sorts: sort by the tokens
        vocabulary, number = content["model"]["vocab"], len(SPECIAL_TOKENS)
        content["model"]["vocab"] = vocabulary[:number] + sorted(vocabulary[number:])
    return LibraryVocabulary.read(Path(f"{model}.json"), json.dumps(content, ensure_ascii=False, indent=1).encode())


def add_words(texts: Texts, base: Vocabulary, number: int, normalization: Normalization) -> Vocabulary:
    """The vocabulary with frequent words of the text that it cuts into pieces, whole, at its end: those that spare the
    most tokens first."""
    counts: Counter[str] = Counter()
    documents: Counter[str] = Counter()
    cut = _cutter(normalization)
    for text in _segmented_texts(texts, normalization):
        words = Counter(cut(text))
        counts.update(words)
        documents.update(words.keys())
    frequent = [
        word
        for word, count in counts.items()
        if count >= _LEAST_COUNT and documents[word] >= _LEAST_DOCUMENTS and word.isalpha()
    ]
    encodings = reference_tokenizer(base, normalization).encode_batch(frequent, add_special_tokens=False)
    spared = {word: counts[word] * (len(encoding.ids) - 1) for word, encoding in zip(frequent, encodings, strict=True)}
    chosen = sorted((word for word in spared if spared[word]), key=lambda word: (-spared[word], word))[:number]
    shown_words = f", such as {', '.join(chosen[:5])}" if chosen else ""
    tokens = sum(spared[word] for word in chosen)
    print(f"{len(chosen):,} words are added{shown_words}; they spare {tokens:,} tokens of this text")
    if len(chosen) < number:
        print(f"no other of the {number:,} occurs {_LEAST_COUNT} times, in {_LEAST_DOCUMENTS} documents, in pieces")
    return Vocabulary((*base.tokens, *chosen))


def _rules_of_text(normalization: Normalization) -> list[normalizers.Normalizer]:
    """Normaliser of a tokenizer.json, applied before text is divided into words."""
    rules: list[normalizers.Normalizer] = [normalizers.Replace(ZERO_WIDTH_SPACE, " ")]
    if normalization.equal_letters:
        unseen = normalizers.Replace(Regex(f"[{UNSEEN}]"), "")  # BERT's own rules drop them
        rules += [unseen, *equalizing(lowercase=normalization.lowercase)]
    rules += [normalizers.NFD(), normalizers.StripAccents()] if normalization.strips() else []
    return [*rules, *([normalizers.Lowercase()] if normalization.lowercase else [])]


def _segmented_texts(texts: Texts, normalization: Normalization) -> Iterator[str]:
    return (with_spaces(text, normalization.word_segmenter) for text in texts())


def _cutter(normalization: Normalization) -> Callable[[str], Iterator[str]]:
    """Splits a text into words."""
    tokenizer = reference_tokenizer(Vocabulary(SPECIAL_TOKENS), normalization)
    normalizer, splitter = tokenizer.normalizer, tokenizer.pre_tokenizer
    return lambda text: (word for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text)))


def _word_counts(texts: Texts, normalization: Normalization) -> Counter[str]:
    """Counts of the words of all texts; a string between spaces is split only once."""
    cut, words, runs = _cutter(normalization), Counter[str](), Counter[str]()

    def cut_runs() -> None:
        for run, count in runs.items():
            for word in cut(run):
                words[word] += count
        runs.clear()

    for text in _segmented_texts(texts, normalization):
        runs.update(_RUN.findall(text))
        if len(runs) > _MOST_RUNS:
            cut_runs()
    cut_runs()
    return words


def _characters(words: Mapping[str, int], vocab_size: int) -> tuple[list[str], list[str]]:
    """The most frequent characters, alone and as continuations (with ##), both sorted.

    They are the first thousand, and more until they cover 99.9% of the text or are three quarters of the vocabulary:
    Chinese needs 3,000 to 5,000. The others are [UNK]; their share is printed.
    """
    counts: Counter[str] = Counter()
    inside: set[str] = set()
    for word, count in words.items():
        for character in word:
            counts[character] += count
        inside.update(word[1:])
    alphabet, continuations, covered, total = list[str](), list[str](), 0, counts.total()
    for character in sorted(counts, key=lambda character: (-counts[character], character)):
        used = len(alphabet) + len(continuations)
        is_enough = covered >= _ALPHABET_COVERAGE * total or used >= _MOST_CHARACTERS * vocab_size
        if len(alphabet) >= _LEAST_ALPHABET and is_enough:
            share, rare = 1 - covered / total, len(counts) - len(alphabet)
            print(f"{rare:,} rare characters, {share:.2%} of the text, are [UNK] in this vocabulary", file=sys.stderr)
            break
        covered += counts[character]
        alphabet.append(character)
        continuations += [CONTINUATION_PREFIX + character] if character in inside else []
    return sorted(alphabet), sorted(continuations)

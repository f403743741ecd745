"""Files of tagged words, and the windows of tokens made from them."""

import gzip
from itertools import pairwise

import numpy as np
import pytest

from bert.finetuning.ner.conll import ConllFormat, count_sentences, predicted_lines, read_tagged_text, tagged_windows
from bert.finetuning.ner.features import NO_WORD, token_features
from bert.finetuning.ner.tags import Span
from bert.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary
from bert.tokenization.wordpiece import WordPieceTokenizer
from data.text.encodings import DETECTED, Decoding

CONLL_2003 = """-DOCSTART- -X- -X- O

Anna NNP B-NP I-PER
Lee NNP I-NP I-PER
saw VBD B-VP O
Oslo NNP B-NP I-LOC
Bay NNP I-NP I-LOC

Rome NNP B-NP I-LOC
Paris NNP B-NP B-LOC
-DOCSTART- -X- -X- O

It PRP B-NP O
rained VBD B-VP O
"""


def write(tmp_path, content, name="train.conll"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("separator", [" ", "\t"])
def test_conll_2003_is_read(tmp_path, line_end, separator):
    text = read_tagged_text(write(tmp_path, CONLL_2003.replace(" ", separator).replace("\n", line_end)))
    assert text.words == ["Anna", "Lee", "saw", "Oslo", "Bay", "Rome", "Paris", "It", "rained"]
    assert text.sentence_offsets.tolist() == [0, 5, 7, 9]
    assert text.document_of_sentence.tolist() == [0, 0, 1]
    assert text.spans == [Span("PER", 0, 2), Span("LOC", 3, 5), Span("LOC", 5, 6), Span("LOC", 6, 7)]
    assert text.scheme == "iob1" and not text.warnings
    assert text.tags(text.spans, "iob2") == ["B-PER", "I-PER", "O", "B-LOC", "I-LOC", "B-LOC", "B-LOC", "O", "O"]
    low, high = text.document_bounds()
    assert (low.tolist(), high.tolist()) == ([0, 0, 7], [7, 7, 9])


def test_predictions_are_a_column_more_in_the_files_own_scheme(tmp_path):
    text = read_tagged_text(write(tmp_path, CONLL_2003))
    lines = predicted_lines(text, text.spans).decode().split("\n")
    assert len(lines) == len(CONLL_2003.split("\n"))
    for line, before in zip(lines, CONLL_2003.split("\n"), strict=True):
        assert line == (f"{before} {before.split()[-1]}" if before else "")


def test_words_without_tags_can_be_predicted(tmp_path):
    text = read_tagged_text(write(tmp_path, "Anna\nsaw\n\nOslo\n"), ConllFormat(tagged=False))
    assert text.spans is None and text.words == ["Anna", "saw", "Oslo"]
    spans = [Span("PER", 0, 1), Span("LOC", 2, 3)]
    assert predicted_lines(text, spans) == b"Anna B-PER\nsaw O\n\nOslo B-LOC\n"


def test_other_columns_can_be_named(tmp_path):
    text = read_tagged_text(write(tmp_path, "1 Anna B-PER x\n2 saw O x\n"), ConllFormat(1, 2))
    assert text.words == ["Anna", "saw"] and text.spans == [Span("PER", 0, 1)]


def test_only_spaces_and_tabs_separate(tmp_path):
    text = read_tagged_text(write(tmp_path, "10\u00a0000 O\none\u0085two O\n"))
    assert text.words == ["10\u00a0000", "one\u0085two"]


def test_tabs_separate_alone_where_all_lines_have_them(tmp_path):
    text = read_tagged_text(write(tmp_path, "New York\tB-LOC\n \tO\nbig\tO \n"))
    assert text.words == ["New York", " ", "big"] and text.spans == [Span("LOC", 0, 1)]
    assert read_tagged_text(write(tmp_path, "Anna\tB-PER\nsaw O\nher\tO\n")).words == ["Anna", "saw", "her"]


def test_comments_before_sentences_are_counted_and_kept_in_predictions(tmp_path):
    content = "# newdoc\n# text = # O\n# O\n#Oslo B-LOC\n\n# 2\nAda B-PER\n"
    text = read_tagged_text(path := write(tmp_path, content))
    assert (
        text.words == ["#", "#Oslo", "Ada"] and text.comments == 3 and len(text) == count_sentences(path, DETECTED) == 2
    )
    lines = predicted_lines(text, [Span("PER", 2, 3)]).decode().splitlines()
    assert lines == ["# newdoc", "# text = # O", "# O O", "#Oslo B-LOC O", "", "# 2", "Ada B-PER B-PER"]


def test_tags_that_break_their_scheme_are_counted(tmp_path):
    content = "a B-PER\nb I-PER\nc O\nd I-LOC\ne O\nf B-PER\ng B-PER\n"
    text = read_tagged_text(write(tmp_path, content))
    assert text.scheme == "iob2" and "1 of 7 tags are not in iob2" in text.warnings[0]
    assert Span("LOC", 3, 4) in text.spans
    wanted = read_tagged_text(write(tmp_path, content), ConllFormat(scheme="iob1"))
    assert wanted.scheme == "iob1" and "2 of 7 tags are not in iob1" in wanted.warnings[0]


def conllu(*rows: str) -> str:
    """Return lines of ten columns: each row is an id, a word and the value of MISC."""
    lines = ["\t".join([*row.split(" ")[:2], *["_"] * 7, row.split(" ")[2]]) if row else "" for row in rows]
    return "# sent_id = 1\n# text = x\n" + "\n".join(lines) + "\n"


CONLLU = conllu(
    "1 Anna B-PER",
    "2 va O",
    "3-4 au _",
    "3 \u00e0 O",
    "4 le O",
    "5 Louvre B-LOC",
    "5.1 vide _",
    "",
    "1-2 du _",
    "1 de O",
    "2 le O",
)


@pytest.mark.parametrize("in_misc", [False, True])
def test_conllu_is_read_by_its_own_rules(tmp_path, in_misc):
    content = CONLLU
    if in_misc:
        for tag, value in (("B-PER", "SpaceAfter=No|NER=B-PER"), ("B-LOC", "ner=B-LOC"), ("\tO\n", "\t_\n")):
            content = content.replace(tag, value)
    text = read_tagged_text(write(tmp_path, content, "a.conllu"))
    assert text.words == ["Anna", "va", "\u00e0", "le", "Louvre", "de", "le"]
    assert text.sentence_offsets.tolist() == [0, 5, 7]
    assert text.spans == [Span("PER", 0, 1), Span("LOC", 4, 5)] and text.comments == 2
    assert "3 ranges and empty nodes are no words" in " ".join(text.warnings)
    named = read_tagged_text(write(tmp_path, content, "a.conllu"), ConllFormat(word_column=1))
    assert named.words == text.words
    plain = read_tagged_text(write(tmp_path, content, "b.conllu"), ConllFormat(tagged=False))
    assert plain.words == text.words
    lines = predicted_lines(plain, text.spans).decode()
    again = read_tagged_text(write(tmp_path, lines, "c.conllu"))
    assert (again.words, again.spans) == (text.words, text.spans)
    assert {line.count("\t") for line in lines.splitlines() if line[:1].isdigit()} == {10}


def test_the_columns_of_conllu_plus_are_those_that_it_names(tmp_path):
    rows = "1\tNOUN\tAnna\tB-PER\t_\n2\tVERB\tva\tO\t_\n3-4\t_\tau\t_\t_\n3\tADP\t\u00e0\tO\tx\n"
    text = read_tagged_text(write(tmp_path, "# global.columns = ID UPOS FORM EWT:NER MISC\n" + rows, "a.conllup"))
    assert text.words == ["Anna", "va", "\u00e0"] and text.spans == [Span("PER", 0, 1)]


@pytest.mark.parametrize(
    ("content", "phrases"),
    [
        (conllu("1 Anna SpaceAfter=No", "2 va _"), ["'SpaceAfter=No'", "neither B-PER nor NER=B-PER", "--tag-column"]),
        ("1 Anna B-PER\n2 va O\n\n1 Bob B-PER\n2 va O\n", [":1: column 0 holds numbers ('1')", "--word-column 1"]),
        ("0 4 Anna B-PER\n5 7 va O\n8 9 a O\n", [":1: column 0 holds numbers ('0')", "--word-column 1"]),
    ],
)
def test_a_guessed_column_that_holds_no_words_or_tags_is_refused(tmp_path, content, phrases):
    with pytest.raises(ValueError) as error:
        read_tagged_text(write(tmp_path, content))
    assert all(phrase in str(error.value) for phrase in phrases), str(error.value)


def test_words_that_are_numbers_are_read_where_there_is_no_other_column(tmp_path):
    assert read_tagged_text(write(tmp_path, "1984 B-DATE\n2001 B-DATE\n12 O\n")).words == ["1984", "2001", "12"]
    with_words = "1984 NUM B-DATE\nwas VB O\na DT O\n"
    assert read_tagged_text(write(tmp_path, with_words)).words == ["1984", "was", "a"]


HOSTILE = {
    "fewer columns": (
        "Anna NNP I-PER\nsaw\n",
        [":2: 1 columns by spaces or tabs ('saw'), but line 1 and most others have 3"],
    ),
    "more columns": (
        "Anna I-PER\nsaw VBD O\n",
        [":2: 3 columns by spaces or tabs", "but line 1 and most others have 2"],
    ),
    "a first line that is the wrong one": ("New York I-LOC\nis O\nbig O\n", [":1: 3 columns", "but line 2 and most"]),
    "a word without a tag among tabs": ("a b\tO\nc\nd\tO\n", [":2: 1 columns by tabs alone ('c'), but line 1"]),
    "a comment inside a sentence": ("a O\n# say x\nb O\n", [":2: 3 columns", "a comment stands before a sentence"]),
    "an empty word": ("a\tO\n\tO\n", [":2: the word is empty"]),
    "no tags": ("Anna\nsaw\n", [":1: one column, 'Anna'"]),
    "not a tag": ("Anna I-PER\nsaw VBD\n", [":2: tag 'VBD' must be O, or B-", "--tag-column"]),
    "a prefix without a type": ("Anna B\n", [":1: tag 'B'"]),
    "an unknown type": ("Anna I-PER\nsaw I-DOG\n", [":2: type 'DOG' is not one of LOC, PER"]),
    "empty": ("", ["has no words"]),
    "only blank lines": ("\n \n-DOCSTART- -X- O O\n\n", ["has no words: 4 lines"]),
    "NUL": (b"a\0 O\n", [": 1 NUL characters; name its --encoding, or the --language"]),
    "a picture": (b"\x89PNG\r\n\x1a\n", ["is not text (PNG signature); pass a file of text"]),
    "a web page": ("<html><body>\n<p>404</p>\n", ["one column, '<html><body>'"]),
}


@pytest.mark.parametrize("fault", HOSTILE)
def test_a_hostile_file_is_refused_with_line_value_and_remedy(tmp_path, fault):
    content, phrases = HOSTILE[fault]
    with pytest.raises(ValueError) as error:
        read_tagged_text(write(tmp_path, content), types=("LOC", "PER"))
    for phrase in [str(tmp_path / "train.conll"), *phrases]:
        assert phrase in str(error.value)


@pytest.mark.parametrize(
    "layout, phrase", [(ConllFormat(word_column=2), "word_column=2"), (ConllFormat(tag_column=-3), "--tag-column")]
)
def test_a_column_that_is_not_there_is_refused(tmp_path, layout, phrase):
    with pytest.raises(ValueError, match=phrase):
        read_tagged_text(write(tmp_path, "Anna I-PER\n"), layout)


# --- windows

VOCABULARY = Vocabulary((*SPECIAL_TOKENS, *"abcdefghij", "##x", "##y"))
TOKENIZER = WordPieceTokenizer(VOCABULARY)


def windows(text, max_seq_length, **options):
    """Return (tokens, the words predicted there) of every window, and the counts."""
    table, counts = token_features(TOKENIZER, text, max_seq_length, **options)
    parts = [slice(low, high) for low, high in pairwise(table.offsets)]
    tokens = [" ".join(VOCABULARY.tokens[i] for i in table.input_ids[part]) for part in parts]
    return list(zip(tokens, [table.word_indices[part].tolist() for part in parts], strict=True)), counts


def text_of(tmp_path, *sentences):
    lines = [
        "-DOCSTART- O\n\n" if sentence is None else "".join(f"{word} O\n" for word in sentence.split()) + "\n"
        for sentence in sentences
    ]
    return read_tagged_text(write(tmp_path, "".join(lines)))


def test_the_first_piece_stands_for_the_word(tmp_path):
    found, counts = windows(text_of(tmp_path, "axy b cx", "d"), 12)
    assert found == [("[CLS] a ##x ##y b c ##x [SEP]", [-1, 0, -1, -1, 1, 2, -1, -1]), ("[CLS] d [SEP]", [-1, 3, -1])]
    assert counts == {"cut_words": 0, "empty_words": 0, "sentences": 2, "windows": 2, "split_sentences": 0}


def test_words_of_control_characters_are_unknown_and_counted(tmp_path):
    found, counts = windows(text_of(tmp_path, "a \u200d\u200e b"), 12)
    assert found == [("[CLS] a [UNK] b [SEP]", [-1, 0, 1, 2, -1])] and counts["empty_words"] == 1


def test_a_long_sentence_is_predicted_in_windows_that_overlap(tmp_path):
    found, counts = windows(text_of(tmp_path, "a b c d e f g h i j"), 8, overlap=2)
    assert [tokens for tokens, _ in found] == [
        "[CLS] a b c d e f [SEP]",
        "[CLS] c d e f g h [SEP]",
        "[CLS] e f g h i j [SEP]",
    ]
    assert [words for _, words in found] == [
        [-1, 0, 1, 2, 3, -1, -1, -1],
        [-1, -1, -1, 4, 5, -1, -1, -1],
        [-1, -1, -1, 6, 7, 8, 9, -1],
    ]
    assert counts["split_sentences"] == 1 and counts["windows"] == 3


def test_a_word_longer_than_a_window_is_cut_and_counted(tmp_path):
    found, counts = windows(text_of(tmp_path, "a bxyxyxyxy c"), 6)
    assert counts["cut_words"] == 1
    assert [word for _, words in found for word in words if word != NO_WORD] == [0, 1, 2]
    assert "[CLS] b ##x ##y ##x [SEP]" in [tokens for tokens, _ in found]


def test_context_fills_the_window_from_its_own_document_only(tmp_path):
    text = text_of(tmp_path, None, "a b", "c d", "e f", None, "g h")
    found, _ = windows(text, 6, document_context=True)
    assert found == [
        ("[CLS] a b c d [SEP]", [-1, 0, 1, -1, -1, -1]),
        ("[CLS] b c d e [SEP]", [-1, -1, 2, 3, -1, -1]),
        ("[CLS] c d e f [SEP]", [-1, -1, -1, 4, 5, -1]),
        ("[CLS] g h [SEP]", [-1, 6, 7, -1]),
    ]


@pytest.mark.parametrize("document_context", [False, True])
def test_every_word_is_predicted_once_and_no_window_is_too_long(tmp_path, document_context):
    rng = np.random.RandomState(7)
    for case in range(60):
        sentences = []
        for _ in range(rng.randint(1, 6)):
            words = [
                "".join([rng.choice(list("abcdefghij")), *rng.choice(["x", "y"], rng.randint(0, 4))])
                for _ in range(rng.randint(1, 30))
            ]
            sentences += [" ".join(words)] + ([None] if rng.rand() < 0.3 else [])
        text = text_of(tmp_path, *sentences)
        length = int(rng.randint(8, 20))
        table, counts = token_features(TOKENIZER, text, length, document_context, overlap=int(rng.randint(0, 4)))
        words = table.word_indices
        assert sorted(words[words != NO_WORD]) == list(range(len(text.words))), case
        sizes = table.lengths()
        assert sizes.max() <= length and counts["windows"] == len(sizes)
        firsts = [TOKENIZER.encode(word)[0] for word in text.words]
        places = np.flatnonzero(words != NO_WORD)
        assert table.input_ids[places].tolist() == [firsts[word] for word in words[places]]
        if document_context and counts["split_sentences"] == 0:
            total = sum(len(TOKENIZER.encode(word)) for word in text.words)
            assert sizes.max() >= min(length - 5, total // (1 + int(text.document_of_sentence.max())))


@pytest.mark.parametrize(("scheme", "tag"), [(None, "B-PER"), ("iobes", "S-PER"), ("iob1", "I-PER")])
def test_a_file_whose_tags_are_not_read_is_written_in_iob2_or_the_named_scheme(tmp_path, scheme, tag):
    (path := tmp_path / "a.conll").write_text("Ada S-PER\nspoke O\n")
    (text,) = tagged_windows(path, ConllFormat(scheme=scheme, tagged=False), 9, 99, False)
    assert predicted_lines(text, [Span("PER", 0, 1)]).decode() == f"Ada S-PER {tag}\nspoke O O\n"


def test_words_of_a_code_page_are_read_and_shown(tmp_path):
    (path := tmp_path / "a.conll.gz").write_bytes(gzip.compress("Łódź B-LOC\nśpi O\n".encode("cp1250")))
    for decoding, found in [(DETECTED, "likeliest"), (Decoding("cp1250"), "as told"), (Decoding("auto:cp1250"), "nam")]:
        text = read_tagged_text(path, ConllFormat(decoding=decoding))
        assert text.words == ["Łódź", "śpi"] and f"read as cp1250 ({found}" in text.warnings[0]
        assert "e.g. 'Łódź B-LOC'; --encoding names another" in text.warnings[0]
    with pytest.raises(ValueError, match="4 undecodable bytes from line 1 on; name its --encoding, or the --language"):
        read_tagged_text(path, ConllFormat(decoding=Decoding("utf-8")))
    path = write(tmp_path, "Łódź B-LOC\n".encode() * 9 + "śpi O\n".encode("cp1250"), "mixed.conll")
    assert "cp1250, likeliest), e.g. 'śpi O'" in read_tagged_text(path).warnings[0]

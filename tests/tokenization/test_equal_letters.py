"""Letters that look equal get the same tokens; older models read text unchanged."""

import json
import unicodedata
from dataclasses import replace

import pytest
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from bert.conversion.tokenizer_settings import stated_normalization
from bert.conversion.vocabularies import Tokens, write_tokenizer
from bert.tokenization.equal_letters import first_of_letter, normal_form, with_marks
from bert.tokenization.library import text_tokenizer
from bert.tokenization.normalization import ACCENTED, CASED, UNCASED
from bert.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary
from bert.tokenization.wordpiece import WordPieceTokenizer, reference_tokenizer
from data.text.same_text import near_numbers, normalized
from data.text.vocabulary_training import learn_vocabulary

WORDS = "Việt việt Nam 서울은 수도이다 café schön office flow कऱ οδος οδός a b = ≠ ≠b a≠b q \u0303 , : 中".split()
LETTERS = sorted({letter for word in WORDS for letter in word})
VOCABULARY = Vocabulary((*SPECIAL_TOKENS, *dict.fromkeys([*WORDS, *LETTERS, *(f"##{letter}" for letter in LETTERS)])))
EQUAL = replace(CASED, equal_letters=True)
TEXTS = (
    "Việt Nam, 서울은 수도이다: café schön",
    "office flow q\u0303 a≠b a = b",
    "कऱ café中café",
    "a\u0338b =\u0338, 中\u0338 <\u0338b>\u0338",
)


@pytest.mark.parametrize("text", TEXTS)
def test_composed_and_decomposed_texts_have_the_same_tokens(text):
    tokenizer = WordPieceTokenizer(VOCABULARY, EQUAL)
    composed, decomposed = (unicodedata.normalize(form, text) for form in ("NFC", "NFD"))
    expected = tokenizer.encode(composed)
    assert tokenizer.encode(decomposed) == expected
    assert tokenizer.encode_words([decomposed])[0].tolist() == expected
    if "\u0338" not in composed:
        assert VOCABULARY.id_of("[UNK]") not in expected


# What the commit before `equal_letters` (6a680765) made of ODD: tokens, their first characters, and the ends.
ODD = unicodedata.normalize("NFD", "Việt café, a≠b 서울은") + " of\ufb01ce of\u00adfice \u2060flow ΟΔΟΣ ca\u200cfé"
CASED_BEFORE = (
    "[UNK] [UNK] , a = [UNK] [UNK] [UNK] office flow [UNK] café",
    [0, 7, 12, 14, 15, 16, 19, 28, 34, 43, 48, 53],
    [6, 12, 13, 15, 16, 18, 27, 33, 41, 47, 52, 58],
)
UNCASED_BEFORE = (
    "v ##i ##e ##t c ##a ##f ##e , a = b [UNK] [UNK] office flow [UNK] c ##a ##f ##e",
    [0, 1, 2, 5, 7, 8, 9, 10, 12, 14, 15, 17, 19, 28, 34, 43, 48, 53, 54, 56, 57],
    [1, 2, 3, 6, 8, 9, 10, 11, 13, 15, 16, 18, 27, 33, 41, 47, 52, 54, 55, 57, 58],
)


@pytest.mark.parametrize(
    ("case", "before"), [(CASED, CASED_BEFORE), (ACCENTED, CASED_BEFORE), (UNCASED, UNCASED_BEFORE)], ids=str
)
def test_older_models_read_a_text_as_it_is_written(case, before):
    found = WordPieceTokenizer(VOCABULARY, case).encode_with_offsets([ODD])
    tokens = " ".join(VOCABULARY.tokens[index] for index in found.ids)
    assert (tokens, found.starts.tolist(), found.ends.tolist()) == before
    assert "equal_letters" not in case.settings(), "what older files hold"
    assert json.loads(case.normalizer().__getstate__())["type"] == "BertNormalizer"


def test_ligatures_are_their_letters_and_unseen_marks_are_none():
    tokenizer = WordPieceTokenizer(VOCABULARY, EQUAL)
    assert tokenizer.encode("of\ufb01ce o\ufb03ce \ufb02ow of\u00adfice\u2060 \ufeffflow") == tokenizer.encode(
        "office office flow office flow"
    )


@pytest.mark.parametrize("case", (UNCASED, ACCENTED))
def test_a_sigma_ends_a_word_in_capitals_too(case):
    tokenizer = WordPieceTokenizer(VOCABULARY, replace(case, equal_letters=True))
    assert tokenizer.encode("ΟΔΟΣ ΟΔΟΣ, ΟΔΟΣ中") == tokenizer.encode("οδος οδος, οδος中")
    assert tokenizer.encode("ΣΟΔ")[0] == VOCABULARY.id_of("[UNK]"), "at the beginning it is another letter"


@pytest.mark.parametrize("case", (CASED, ACCENTED, UNCASED))
def test_the_fast_tokenizer_the_library_and_transformers_agree(tmp_path, case):
    rules = replace(case, equal_letters=True)
    texts = [form for text in TEXTS for form in (text, unicodedata.normalize("NFD", text))]
    texts += ["o\ufb03ce ΟΔΟΣ, ΠΑΣ' ΟΔΌΣ\u0301 x", "e\u0301\u0323 \u0301a, \u0338=\u0338= \u1112\u1161\u11ab"]
    own = WordPieceTokenizer(VOCABULARY, rules)
    write_tokenizer(tmp_path, Tokens(VOCABULARY, rules), 32)
    exported, theirs = Tokenizer.from_file(str(tmp_path / "tokenizer.json")), AutoTokenizer.from_pretrained(tmp_path)
    reference = reference_tokenizer(VOCABULARY, rules)
    assert stated_normalization(tmp_path) | {"strip_accents": case.strip_accents} == {
        "lowercase": case.lowercase,
        "strip_accents": case.strip_accents,
        "equal_letters": True,
    }
    for text in texts:
        expected = own.encode(text)
        assert reference.encode(text, add_special_tokens=False).ids == expected, ascii(text)
        assert exported.encode(text, add_special_tokens=False).ids == expected, ascii(text)
        assert theirs(text, add_special_tokens=False)["input_ids"] == expected, ascii(text)


def test_the_characters_of_a_token_have_all_its_marks():
    text = unicodedata.normalize("NFD", "Việt café, a≠b schön")
    found = WordPieceTokenizer(VOCABULARY, EQUAL).encode_with_offsets(["", text, "café"])
    assert [unicodedata.normalize("NFC", text[a:b]) for a, b in zip(found.starts, found.ends, strict=True)][:-1] == [
        *("Việt", "café", ",", "a≠b", "schön")
    ]
    assert (found.starts[-1], found.ends[-1]) == (0, 4)
    assert with_marks("q\u0303e\u0301 a", [(0, 1), (1, 2), (2, 3), (5, 6)]).tolist() == [[0, 1], [1, 2], [2, 4], [5, 6]]


@pytest.mark.parametrize("model", ("bpe", "unigram"))
def test_a_trained_tokenizer_json_has_the_rules_too(model):
    text = "Việt Nam café office schön " * 20
    vocabulary = learn_vocabulary(lambda: iter([text]), 300, model=model, normalization=EQUAL)
    tokenizer = text_tokenizer(vocabulary, EQUAL)
    odd = unicodedata.normalize("NFD", "Việt café sch\u00adön") + " of\ufb01ce"
    assert tokenizer.encode(odd) == tokenizer.encode("Việt café schön office")


ARABIC, SHAPED = "لا العربية x", "\ufefb \ufe8d\ufedf\ufecc\ufeae\ufe91\ufef4\ufe94 x"  # letters, and their forms


@pytest.mark.parametrize("model", ("wordpiece", "bpe", "unigram"))
def test_arabic_forms_are_their_letters_for_every_reader_and_tokens_know_where_they_stand(model):
    """Imported text has letters; tables, requests and the words of a tagger may have forms, as a PDF has."""
    learned = learn_vocabulary(lambda: iter([ARABIC * 40]), 300, model=model, normalization=EQUAL)
    tokenizer = text_tokenizer(learned, EQUAL)
    expected = tokenizer.encode(ARABIC)
    assert tokenizer.encode(SHAPED) == expected != tokenizer.encode("x")
    ids, offsets = tokenizer.encode_texts(["x", SHAPED, ""])
    assert ids[offsets[1] : offsets[2]].tolist() == expected
    assert tokenizer.encode_masked(f"{SHAPED} [MASK]")[: len(expected)] == expected
    assert (
        tokenizer.encode_words([SHAPED.split()[1]])[0].tolist()
        == tokenizer.encode_words([ARABIC.split()[1]])[0].tolist()
    )
    tokens = tokenizer.encode_with_offsets(["x", SHAPED])
    first = int(tokens.offsets[1])
    assert tokens.ids[first:].tolist() == expected
    starts, ends = tokens.starts[first:].tolist(), tokens.ends[first:].tolist()
    assert (starts[0], starts[-1], ends[-1]) == (0, 10, 11)
    assert all(0 <= start <= end <= len(SHAPED) for start, end in zip(starts, ends, strict=True))
    assert {SHAPED[start:end] for start, end in zip(starts, ends, strict=True)} >= {"x"}


def test_the_two_letters_of_a_ligature_have_its_place_and_older_models_read_it_as_it_is():
    vocabulary = Vocabulary((*SPECIAL_TOKENS, "ل", "##ا", "a", "\ufefb"))
    tokens = WordPieceTokenizer(vocabulary, EQUAL).encode_with_offsets(["a \ufefb a"])
    assert [vocabulary.tokens[index] for index in tokens.ids] == ["a", "ل", "##ا", "a"]
    assert (tokens.starts.tolist(), tokens.ends.tolist()) == ([0, 2, 2, 4], [1, 3, 3, 5])
    older = WordPieceTokenizer(vocabulary, CASED).encode_with_offsets(["a \ufefb a"])
    assert [vocabulary.tokens[index] for index in older.ids] == ["a", "\ufefb", "a"]
    assert (older.starts.tolist(), older.ends.tolist()) == ([0, 2, 4], [1, 3, 5])


def test_the_normal_form_of_a_text():
    for written, expected in {
        "plain": "plain",
        "e\u0301 ệ": "é ệ",
        "\u1109\u1165\u110b\u116e\u11af": "서울",
        "\u0928\u093c \u0958": "\u0929 \u0915\u093c",
        "o\ufb03ce \ufb06op": "office stop",
        "\ufefbم \ufe8d\ufedf\ufecc\ufeae\ufe91\ufef4\ufe94": "لام العربية",
        "\ufefb\ufe76 \ufe77 \ufcf2": "لا\u064e \u064e \u064e\u0651",
        "\ufdf2 \ufdfa \ufdfc": "الله \ufdfa \ufdfc",
        "Do\u00adnau\u2060\ufeff": "Donau",
        "می\u200cخواهم ශ්\u200dරී": "می\u200cخواهم ශ්\u200dරී",
        "ｶﾞ ① ² ﬀ": "ｶﾞ ① ² ff",
    }.items():
        assert normal_form(written) == expected, ascii(written)


def test_a_text_in_two_pieces_is_cut_before_the_last_letter():
    for text in ("cafe\u0301 \u1109\u1165\u110b\u116e\u11af कि =\u0338", "नि\u093c\u0301", "\u0301\u0301"):
        for cut in range(1, len(text)):
            place = first_of_letter(text[:cut])
            whole = [text[:place], text[place:]] if place else [text]
            assert "".join(map(normal_form, whole)) == normal_form(text), (ascii(text), cut)


def test_every_composition_begins_a_piece():
    """A character that NFC joins to the one before it never begins a piece: all pairs of Unicode's table."""
    joined = set()
    for code in range(0x110000):
        parts = unicodedata.decomposition(chr(code)).split()
        if len(parts) == 2 and "<" not in parts[0]:
            joined.add(chr(int(parts[1], 16)))
    assert len(joined) > 60
    assert [ascii(c) for c in joined if first_of_letter("a" + c) != 0] == []


def test_equal_texts_are_the_same_text():
    composed, decomposed = "Việt Nam của", unicodedata.normalize("NFD", "VIỆT Nam  của")
    assert normalized(composed) == normalized(decomposed)
    assert near_numbers([composed, "x", decomposed]).tolist() == [0, 1, 0]

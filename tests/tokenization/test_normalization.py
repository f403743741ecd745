"""Case, accents and words of unspaced scripts: what is kept, how text is split, and equality with other readers."""

import json
from importlib import metadata

import pytest
from tokenizers import Tokenizer

from bert.conversion.tokenizer_settings import stated_normalization
from bert.conversion.vocabularies import Tokens, find_tokens, write_tokenizer
from bert.tokenization import segmentation
from bert.tokenization.normalization import ACCENTED, CASED, UNCASED, Normalization, inferred_normalization
from bert.tokenization.segmentation import cutter, with_spaces
from bert.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary
from bert.tokenization.wordpiece import WordPieceTokenizer
from data.text.script_facts import ScriptFacts, segmenter_of

SENTENCES = (
    ("The naïve heron sat " + "beside the old river and " * 30, UNCASED, ""),
    ("Nichts ist so schön wie ein Müller am Fluss", CASED, ""),
    ("में किताबें हैं", CASED, ""),
    ("パンとバナナ", CASED, ""),
    ("má mà mả mã mạ ma", CASED, ""),
    ("أنا أقرأ سؤالا", CASED, ""),
    ("мой новый дом", CASED, ""),
    ("한국어 문장", CASED, ""),
    ("春天来了，大家去公园。", CASED, ""),  # no capitals
    ("ที่นี่ไม่มีน้ำ", CASED, "icu"),
    ("ខ្ញុំចង់ញ៉ាំបាយ", CASED, "icu"),
    ("ຂ້ອຍຢາກກິນເຂົ້າ", CASED, "icu"),
    ("ကျွန်တော်ထမင်းစားချင်တယ်", CASED, "icu"),
    ("ꦲꦏ꧀ꦱꦫꦗꦮ", CASED, "syllables"),
    ("བོད་ཡིག་ནི་བོད་མིའི་སྐད", CASED, ""),  # the marks between syllables are punctuation
)


@pytest.mark.parametrize(("text", "case", "needed"), SENTENCES)
def test_case_and_words_are_chosen_by_what_lower_casing_would_delete(text, case, needed):
    facts = ScriptFacts()
    facts.add(text)
    assert (facts.case(), facts.cutter()) == (case, needed)


def test_the_reason_has_a_share_and_an_example():
    facts = ScriptFacts()
    facts.add("में किताबें हैं है और")
    assert facts.why() == "lower-casing would strip marks of 80% of the words, such as किताबें -> किताब"


WORDS = {
    "ที่นี่ไม่มีน้ำ": "ที่ นี่ ไม่มี น้ำ",
    "ຂ້ອຍຢາກກິນເຂົ້າ": "ຂ້ອຍ ຢາກກິນ ເຂົ້າ",
    "ខ្ញុំចង់ញ៉ាំបាយ": "ខ្ញុំ ចង់ ញ៉ាំបាយ",
    "ကျွန်တော်ထမင်းစားချင်တယ်": "ကျွန်တော် ထမင်းစား ချင် တယ်",
    "ꦲꦏ꧀ꦱꦫꦗꦮ": "ꦲ ꦏ꧀ꦱ ꦫ ꦗ ꦮ",
    "ใช้Windowsได้": "ใช้ Windows ได้",
    "plain English, 12": "plain English, 12",
    "": "",
}


@pytest.mark.parametrize(("text", "words"), WORDS.items())
def test_scripts_without_spaces_are_cut_into_words(text, words):
    assert with_spaces(text, "icu") == words
    assert "".join(cutter("icu")(text)) == "".join(cutter(None)(text)) == text


def test_the_tokens_of_cut_words_have_their_places_in_the_text():
    words = ["ที่", "นี่", "ไม่มี", "น้ำ", "the", "##re", "ក", "ខ"]
    vocabulary = Vocabulary((*SPECIAL_TOKENS, *words))
    tokenizer = WordPieceTokenizer(vocabulary, Normalization(False, word_segmenter="icu"))
    for text in ("there ที่นี่ไม่มีน้ำ the", "ក\u200bខ", "x" * 101 + "น้ำ"):
        found = tokenizer.encode_with_offsets([text, "the"])
        spans = [text[start:end] for start, end in zip(found.starts, found.ends, strict=True)][: found.offsets[1]]
        assert [span for span in spans if not span.startswith("x")] == [
            vocabulary.tokens[index].removeprefix("##") for index in found.ids[: found.offsets[1]] if index != 1
        ]
    assert tokenizer.encode_masked("ที่[MASK]น้ำ") == [5, 4, 8]
    assert WordPieceTokenizer(vocabulary, CASED).encode("ที่นี่ไม่มีน้ำ") == [1]
    assert WordPieceTokenizer(vocabulary).encode("ក\u200bខ") == [11, 12]


def test_a_missing_segmenter_is_named_with_its_extra(monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(segmentation.metadata, "version", missing)
    with pytest.raises(ValueError, match=r"word_segmenter='icu' needs the package icu4py.*segmentation"):
        segmentation.version_of("icu")
    assert segmenter_of("syllables", "auto") == "syllables" and with_spaces("ꦲꦏ꧀ꦱ", "syllables") == "ꦲ ꦏ꧀ꦱ"


@pytest.mark.parametrize("case", [UNCASED, ACCENTED, CASED, Normalization(False, None, "icu")], ids=repr)
def test_what_is_written_beside_a_model_is_read_alike_by_the_library_and_here(tmp_path, case):
    vocabulary = Vocabulary((*SPECIAL_TOKENS, "schon", "schön", "Schön", "muller", "müller", "##s", "น้ำ"))
    write_tokenizer(tmp_path, Tokens(vocabulary, case), 64)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert (config["do_lower_case"], config["strip_accents"]) == (case.lowercase, case.strip_accents)
    assert Normalization(**stated_normalization(tmp_path)) == case
    tokens, text = find_tokens(tmp_path, None, []), "Schön müllers Muller น้ำ"
    ours = WordPieceTokenizer(tokens.vocabulary, tokens.normalization).encode(text)
    library = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert ours == library.encode(with_spaces(text, case.word_segmenter), add_special_tokens=False).ids
    expected = {UNCASED: [5, 8, 10, 8], ACCENTED: [6, 9, 10, 8], CASED: [7, 9, 10, 1]}
    assert ours[:4] == expected[Normalization(case.lowercase, case.strip_accents)]


@pytest.mark.parametrize(
    ("others", "case"),
    [
        ([], UNCASED),
        (["River"], CASED),
        (["caf\u00e9"] * 2, UNCASED),
        (["caf\u00e9"] * 3, ACCENTED),
        (["\u00c9t"] * 2, UNCASED),
        (["\u00c9t"] * 3, CASED),
        (["\u6d77"] * 9, UNCASED),
    ],
)
def test_over_one_word_in_a_thousand_tells_case_and_accents(others, case):
    """Fewer words may be foreign or damaged; an ASCII capital never is."""
    assert inferred_normalization(["river"] * (2000 - len(others)) + others) == case


def test_the_normalization_of_shards_is_that_of_their_settings():
    assert Normalization.recorded({}) is None
    assert Normalization.recorded({"lowercase": False, "strip_accents": True, "word_segmenter": "jieba"}) == (
        Normalization(False, True)
    )
    icu = {"lowercase": True, "word_segmenter": "icu"}
    assert Normalization.recorded(icu) == Normalization(True, None, "icu")
    assert Normalization(True, None, "icu").settings() == {"do_lower_case": True, "word_segmenter": "icu"}
    assert ACCENTED.settings() == {"do_lower_case": True, "strip_accents": False}
    assert [str(case) for case in (UNCASED, ACCENTED, CASED)] == ["lower-cased", "lower-cased, accents kept", "cased"]
    assert str(Normalization(False, True)) == "cased, without accents"

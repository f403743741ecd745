"""data.train_vocabulary: case and words by the text, other models than WordPiece; and what preprocessing warns of."""

import json
import random

import pytest
from tokenizers import models, trainers

from bert.samples.manifest import read_manifest
from bert.tokenization.library import LibraryVocabulary, text_tokenizer
from bert.tokenization.normalization import CASED, UNCASED, Normalization
from bert.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary
from bert.tokenization.vocabulary_files import read_vocabulary
from bert.tokenization.wordpiece import reference_tokenizer
from data import import_text, preprocess_bert_pretrain, train_vocabulary
from data.text.vocabulary_training import learn_vocabulary
from tests.support.commands import refused

TEXTS = {
    "de": "Im Frühling blühen viele schöne Bäume über dem Fluss. Die Vögel singen. ",
    "th": "ที่นี่ไม่มีน้ำประปา\u200bและเด็กชอบกินขนมกับแม่ทุกวันที่ตลาด ",
    "en": "Nobody in the town had seen the heron before. It stood beside the river. ",
}


@pytest.fixture
def source(tmp_path):
    """Return a function that imports text of a language."""

    def imported(language, separator="file"):
        (tmp_path / language).mkdir()
        for number in range(30):
            (tmp_path / language / f"{number}.txt").write_text(f"{number}. " + TEXTS[language] * 20, encoding="utf-8")
        line = ["--input", str(tmp_path / language), "--output-dir", str(tmp_path / f"c_{language}")]
        import_text.main([*line, "--document-separator", separator])
        return str(tmp_path / f"c_{language}/source")

    return imported


def train(folder, file, *flags):
    train_vocabulary.main(["--input", folder, "--output", str(file), "--vocab-size", "400", *flags])
    return read_vocabulary(file)


def test_the_text_decides_on_case_and_words(source, tmp_path, capsys):
    texts = {language: source(language) for language in TEXTS}
    assert {"Frühling", "schöne"} <= set(train(texts["de"], tmp_path / "de.txt").tokens)
    assert (
        "case: kept; lower-casing would strip marks of 50% of the words, such as Bäume -> baume"
        in capsys.readouterr().err
    )
    assert {"fruhling", "schone"} <= set(train(texts["de"], tmp_path / "plain.txt", "--lowercase").tokens)
    tokens = train(texts["de"], tmp_path / "low.txt", "--no-strip-accents").tokens
    assert {"frühling", "schöne"} <= set(tokens) and "case:" not in capsys.readouterr().err
    assert {"ตลาด", "ขนม", "ประปา"} <= set(train(texts["th"], tmp_path / "th.txt").tokens)
    assert "words: cut by icu" in capsys.readouterr().err
    assert "nobody" in train(texts["en"], tmp_path / "en.txt").tokens
    assert capsys.readouterr().err.splitlines() == [f"reading {texts['en']} ..."], "nothing was decided against BERT's"


def test_words_are_counted_once_and_learned_as_the_library_learns_texts():
    """White space and marks of other kinds than the library's are inside of what is cut once."""
    drawn = random.Random(7)
    letters = ["abcdeAB", "ÄéßσΣς", "дежЁ", "中文字", "ไทยก", "हिन्", "İıI", "01", ".,!'"]
    between = [*"    \n\t\x1c\x85\x0b\u00a0\u2003\u200b\u2028\ufeff\u0301\ufffd", "\r\n"]
    words = ["".join(drawn.choices(drawn.choice(letters), k=drawn.randint(1, 9))) for _ in range(300)]
    texts = ["".join(drawn.choice(words) + drawn.choice(between) for _ in range(600)) for _ in range(4)]
    for case in (UNCASED, CASED, Normalization(True, False)):
        found = learn_vocabulary(lambda: iter(texts), 900, normalization=case)
        tokenizer = reference_tokenizer(Vocabulary(SPECIAL_TOKENS), case)
        tokenizer.model = models.WordPiece(unk_token="[UNK]")
        given = [token for token in found.tokens if len(token.removeprefix("##")) == 1]
        fixed = [*SPECIAL_TOKENS, *(token for token in given if len(token) > 1)]
        alphabet = [token for token in given if len(token) == 1]
        limits = {"vocab_size": 900, "limit_alphabet": len(alphabet), "min_frequency": 2, "show_progress": False}
        trainer = trainers.WordPieceTrainer(special_tokens=fixed, initial_alphabet=alphabet, **limits)
        tokenizer.train_from_iterator(texts, trainer)
        ids = tokenizer.get_vocab()
        assert found.tokens == tuple(sorted(ids, key=ids.__getitem__)) and len(found) > len(fixed) + len(alphabet) + 99


@pytest.mark.parametrize("model", ["bpe", "unigram"])
def test_other_models_are_a_function_of_the_text_and_make_shards(source, tmp_path, model, capsys):
    folder = source("th")
    tokens = train(folder, tmp_path / "a.json", "--model", model)
    assert isinstance(tokens, LibraryVocabulary) and 50 < len(tokens) <= 400
    assert train(folder, tmp_path / "b.json", "--model", model).tokens == tokens.tokens
    assert len(text_tokenizer(tokens).encode("ที่นี่ไม่มีน้ำประปา" * 20)) > 19  # a run of any length has its pieces
    shards(folder, tmp_path / "s", "--vocab-file", str(tmp_path / "a.json"))
    counts = read_manifest(tmp_path / "s").counts
    assert counts["samples"] > 9 and counts["unknown tokens"] < 0.01 * counts["tokens"]
    with pytest.raises(SystemExit):
        train(folder, tmp_path / "a.txt", "--model", model)
    assert f"must end in .json, as --tokenizer {model} makes a tokenizer.json" in capsys.readouterr().err


def shards(folder, sink, *flags):
    line = ["--text", folder, "--sink", str(sink), "--target-seq-length", "64", "--local-n-workers", "1"]
    preprocess_bert_pretrain.main([*line, *flags])
    return json.loads((sink / "manifest.json").read_text())["settings"]


def test_scripts_without_spaces_are_cut_in_shards(source, tmp_path, capsys):
    folder = source("th")
    file = str(tmp_path / "v.txt")
    train(folder, file)
    settings = shards(folder, tmp_path / "cut", "--vocab-file", file)
    assert settings["word_segmenter"] == "icu" and "warning" not in capsys.readouterr().err
    with refused(r"of the tokens are \[UNK\], most often of ที่นี่ไม่มีน้ำประปา และเด็กชอบกินขนมกับแ...,.* more than 10%"):
        shards(folder, tmp_path / "whole", "--vocab-file", file, "--word-segmenter", "none")


def test_unknown_words_and_pairs_that_are_all_random_are_warned_of(source, tmp_path, capsys):
    (tmp_path / "vocab.txt").write_text(
        "\n".join([*SPECIAL_TOKENS, *"im blühen viele schöne über dem die singen fluss frühling vögel .".split()])
        + "\n",
        encoding="utf-8",
    )
    settings = shards(source("de"), tmp_path / "s", "--vocab-file", str(tmp_path / "vocab.txt"))
    assert (settings["lowercase"], settings["strip_accents"]) == (True, False)
    err = capsys.readouterr().err
    assert "7.4% of the tokens are [UNK], most often of Bäume 0 1 10" in err
    TEXTS["one"] = "Nobody in the town had seen the heron before.\n\n"
    folder = source("one", "blank-line")
    train(folder, tmp_path / "v.txt")
    shards(folder, tmp_path / "lone", "--vocab-file", str(tmp_path / "v.txt"))
    assert "of the pairs have a random next sentence; it should be half: documents need" in capsys.readouterr().err

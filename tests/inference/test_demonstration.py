"""Tests of run_predict.py --show, which fills masks in a text's sentences and finds nearest sentences."""

import numpy as np
import pytest

import run_predict
from bert.inference.demonstration import demonstrate
from bert.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary
from bert.tokenization.wordpiece import WordPieceTokenizer
from tests.inference.models import model
from tests.support import foreign


def test_what_the_model_can_do_with_a_text(tmp_path, capsys):
    """Masked words and pairs come from the text; ids of documents, frequent words and copies are not shown."""
    folder = model(tmp_path / "m", "pretraining")
    fruits = (
        "apple banana cherry damson elder figs grape hazel iris juniper kiwi lemon mango nectar olive peach".split()
    )
    (folder / "vocab.txt").write_text(
        "\n".join([*foreign.TOKENS[:5], *fruits, *"with grow here and . the of to".split()])
    )
    (folder / "manifest.json").unlink()
    source = tmp_path / "held_out/source/en"
    source.mkdir(parents=True)
    sentences = [
        f"The {a} and the {b} grow here with {c}." for a, b, c in zip(fruits[:9], fruits[3:12], fruits[7:], strict=True)
    ]
    (source / "0.txt").write_text(f"document-1 {' '.join([*sentences, sentences[2]])}\n")
    assert run_predict.main([str(folder), "--show", str(tmp_path / "held_out")]) == 0
    shown = capsys.readouterr().out
    masked = [line.strip() for line in shown.splitlines() if "[MASK]" in line]
    words = [line.split("true word: ")[1].split(";")[0] for line in shown.splitlines() if "true word" in line]
    assert len(masked) == 3 and set(words) <= set(fruits) and "document-1" not in shown
    assert {text.replace("[MASK]", word) for text, word in zip(masked, words, strict=True)} <= set(sentences)
    pairs = shown.split("nearest sentences (cosine):\n")[1].splitlines()
    assert len({line[-40:].strip() for line in pairs}) == len(pairs) == 6


ENGLISH = (
    "The committee read the whole report twice before lunch. Nobody asked where all these figures came from. "
    "A small boat left the quiet harbour before sunrise. Several engineers repaired the broken bridge in winter. "
    "The old library keeps many letters from famous writers. see below. Yes. 3 of them were never found again there."
)
CHINESE = (
    "委员会在午饭之前把报告读了两遍。没有人问过这些数字是从哪里来的。清晨有一条小船离开了安静的港口。"
    "几位工程师在冬天修好了那座旧桥。图书馆保存着许多著名作家的信件。是的。孩子们在河边画了一整天的风景画。"
)
HINDI = (
    "समिति ने दोपहर के भोजन से पहले रिपोर्ट पढ़ी। किसी ने नहीं पूछा कि ये आंकड़े कहाँ से आए। "
    "एक छोटी नाव सुबह होने से पहले बंदरगाह से निकली। पुस्तकालय में कई प्रसिद्ध लेखकों के पत्र रखे हैं।"
)


class Model:
    """Stands in for a model: a tokenizer of the text's own words and characters, and made-up fills and vectors."""

    task = "masked-lm"

    def __init__(self, text: str) -> None:
        words = [part.strip(".।").lower() for part in text.split()] if " " in text else []
        tokens = dict.fromkeys([*SPECIAL_TOKENS, *sorted({*words, *text.lower()})])
        self.vocabulary = Vocabulary(tuple(token for token in tokens if token.strip()))
        self.tokenizer = WordPieceTokenizer(self.vocabulary)
        self.asked: list[str] = []

    def fill_mask(self, text: str, top_k: int) -> list[list[dict]]:
        self.asked.append(text)
        return [[{"token": "x", "probability": 0.5}] * top_k]

    def encode(self, texts) -> np.ndarray:
        return np.random.default_rng(3).normal(size=(len(texts), 5)).astype("float32")


def shown_of(tmp_path, text: str, language: str = "en") -> list[str]:
    folder = tmp_path / "source" / language
    folder.mkdir(parents=True)
    (folder / "0.txt").write_text(f"a#1 {text}\n", encoding="utf-8")
    return demonstrate(Model(text), tmp_path / "source")


@pytest.mark.parametrize(
    ("text", "language", "unit"), [(ENGLISH, "en", "word"), (CHINESE, "zh", "character"), (HINDI, "hi", "word")]
)
def test_words_or_characters_of_sentences_are_masked_and_sentences_compared(tmp_path, text, language, unit):
    lines = shown_of(tmp_path, text, language)
    assert lines[0].startswith(f"masked {unit}s, the three")
    pairs = lines.index("nearest sentences (cosine):")
    for masked, fills in zip(lines[1:pairs:2], lines[2:pairs:2], strict=True):
        word = fills.split(f"true {unit}: ")[1].split(";")[0]
        assert masked.strip().replace("[MASK]", word) in text and (len(word) == 1) == (unit == "character")
    assert len(lines) > pairs + 1 and not any("3 of them" in line for line in lines)  # it does not begin as a sentence


def test_text_without_capitals_and_marks_is_better_than_nothing(tmp_path):
    assert len(shown_of(tmp_path, "the committee read the whole report twice before lunch yesterday")) == 3


def test_a_piece_of_a_word_is_not_masked(tmp_path):
    """Thai has no spaces, but the tokenizer does not cut its words into characters."""
    (line,) = shown_of(tmp_path, "คณะกรรมการอ่านรายงานสองครั้งก่อนอาหารกลางวัน")
    assert line.startswith("the text has too few sentences of 8 to 60 tokens")

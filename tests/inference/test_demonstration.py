"""What `run_predict.py --show` picks of a text, in scripts with and without spaces and capitals."""

import numpy as np
import pytest

from bert.inference.demonstration import demonstrate, example_sentences, has_spaces
from bert.tokenization.fast_tokenizer import FastTokenizer
from bert.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary

ENGLISH = (
    "The committee read the whole report twice before lunch. Nobody asked where all these figures came from. "
    "A small boat left the quiet harbour before sunrise. Several engineers repaired the broken bridge in winter. "
    "The old library keeps many letters from famous writers. see below. Yes. 3 of them were never found again there."
)
CHINESE = (
    "委员会在午饭之前把报告读了两遍。没有人问过这些数字是从哪里来的。清晨有一条小船离开了安静的港口。"
    "几位工程师在冬天修好了那座旧桥。图书馆保存着许多著名作家的信件。是的。孩子们在河边画了一整天的风景画。"
)
JAPANESE = (
    "委員会は昼食の前に報告書を二回読みました。数字がどこから来たのか誰も尋ねませんでした。"
    "朝早く小さな船が静かな港を出ました。技術者たちは冬に古い橋を直しました。"
)
HINDI = (
    "समिति ने दोपहर के भोजन से पहले रिपोर्ट पढ़ी। किसी ने नहीं पूछा कि ये आंकड़े कहाँ से आए। "
    "एक छोटी नाव सुबह होने से पहले बंदरगाह से निकली। पुस्तकालय में कई प्रसिद्ध लेखकों के पत्र रखे हैं।"
)


class Model:
    """A tokenizer of the text's own words and characters, and made-up fills and vectors."""

    task = "masked-lm"

    def __init__(self, text: str) -> None:
        words = [part.strip(".।").lower() for part in text.split()] if " " in text else []
        tokens = dict.fromkeys([*SPECIAL_TOKENS, *sorted({*words, *text.lower()})])
        self.vocabulary = Vocabulary(tuple(token for token in tokens if token.strip()))
        self.tokenizer = FastTokenizer(self.vocabulary, lowercase=True)
        self.asked: list[str] = []

    def fill_mask(self, text: str, top_k: int) -> list[list[dict]]:
        self.asked.append(text)
        return [[{"token": "x", "probability": 0.5}] * top_k]

    def encode(self, texts) -> np.ndarray:
        return np.random.default_rng(3).normal(size=(len(texts), 5)).astype("float32")


def sentences_of(tmp_path, text: str, language: str) -> list[str]:
    folder = tmp_path / "source" / language
    folder.mkdir(parents=True)
    (folder / "0.txt").write_text(f"a#1 {text}\n", encoding="utf-8")
    return example_sentences(tmp_path / "source")


@pytest.mark.parametrize(
    ("text", "language", "count"), [(ENGLISH, "en", 5), (CHINESE, "en", 6), (CHINESE, "zh", 6), (JAPANESE, "ja", 4)]
)
def test_sentences_of_scripts_with_and_without_spaces_are_found(tmp_path, text, language, count):
    found = sentences_of(tmp_path, text, language)
    assert len(found) == count and all(sentence in text for sentence in found)


@pytest.mark.parametrize("text", [ENGLISH, CHINESE, JAPANESE])
def test_words_or_characters_are_masked_and_sentences_compared(tmp_path, text):
    lines = demonstrate(Model(text), sentences_of(tmp_path, text, "en"))
    what = "word" if text == ENGLISH else "character"
    assert lines[0].startswith(f"masked {what}s of held-out sentences")
    for masked, fills in zip(lines[1:7:2], lines[2:7:2], strict=True):
        word = fills.split(f"true {what}: ")[1].split(";")[0]
        assert masked.strip().replace("[MASK]", word) in text and (len(word) == 1) == (what == "character")
    assert lines[7] == "nearest sentences (cosine):" and len(lines) > 8


def test_sentences_of_a_script_without_capitals_are_found(tmp_path):
    sentences = sentences_of(tmp_path, HINDI, "hi")
    assert len(sentences) == 4 and all(map(has_spaces, sentences))
    assert "true word: " in "".join(demonstrate(Model(HINDI), sentences))


def test_text_without_capitals_and_marks_is_better_than_nothing(tmp_path):
    sentences = sentences_of(tmp_path, "the committee read the whole report twice before lunch yesterday", "en")
    assert len(sentences) == 1 and len(demonstrate(Model(sentences[0]), sentences)) == 3


def test_a_piece_of_a_word_is_not_masked():
    """Thai has no spaces, but its words are not cut in characters by the tokenizer."""
    thai = "คณะกรรมการอ่านรายงานสองครั้งก่อนอาหารกลางวัน"
    assert demonstrate(Model(thai), [thai])[0].startswith("the text has too few sentences of 6 to 30 words")

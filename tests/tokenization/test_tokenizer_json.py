import json

import pytest

from bert.tokenization.vocabulary import Vocabulary, vocabulary_content
from tests.support.corpora import vocabulary

IDS = {token: place for place, token in enumerate(vocabulary().tokens)}


def test_the_vocabulary_in_a_tokenizer_json_is_that_of_the_file(tmp_path):
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": {"type": "WordPiece", "vocab": IDS}}))
    (tmp_path / "vocab.txt").write_bytes(vocabulary().file_content())
    files = tmp_path / "tokenizer.json", tmp_path / "vocab.txt"
    assert Vocabulary.from_file(files[0]).tokens == Vocabulary.from_file(files[1]).tokens
    assert vocabulary_content(files[0]) == vocabulary_content(files[1]) == vocabulary().file_content()


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("{", "is not a WordPiece tokenizer .JSONDecodeError"),
        ("[]", "is not a WordPiece tokenizer"),
        (json.dumps({"model": {"type": "BPE", "vocab": IDS}}), "is not a WordPiece tokenizer .*it is BPE"),
        (json.dumps({"model": {"vocab": ["a", "b"]}}), "is not a WordPiece tokenizer"),
        (json.dumps({"model": {"vocab": {**IDS, "extra": 500}}}), "do not run from 0 without gaps"),
        (json.dumps({"model": {"vocab": {"a": 0, "b": "c"}}}), "is not a WordPiece tokenizer"),
        (
            json.dumps({"model": {"vocab": {**IDS, "\ud800": len(IDS)}}}),
            "is not a WordPiece tokenizer .UnicodeEncodeError",
        ),
        (json.dumps({"model": {"vocab": {"a": 0}}}), r"none of its 1 lines .* is \[PAD\]"),
    ],
)
def test_another_content_is_refused(tmp_path, content, text):
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(ValueError, match=text):
        Vocabulary.from_tokenizer_json(tmp_path / "tokenizer.json")

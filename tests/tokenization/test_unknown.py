"""Too many unknown tokens in training text are refused, by one limit everywhere."""

import numpy as np
import pytest

from bert.config.plain_commands import read_flags
from bert.tokenization.unknown import refuse_unknown
from bert.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary
from data.preprocessing.request import ShardRequest

WORDS = Vocabulary((*SPECIAL_TOKENS, "a", "b"), "vocab.txt")
PAD, UNK, CLS, SEP, _, A, B = range(7)


@pytest.mark.parametrize(("unknown", "is_refused"), [(10, False), (11, True), (100, True), (0, False)])
def test_more_than_a_tenth_of_the_words_is_refused(unknown, is_refused):
    words = [UNK] * unknown + [A, B] * 50
    ids = np.array([CLS, *words[:100], SEP, *[PAD] * 500], np.uint16)
    if not is_refused:
        return refuse_unknown(ids, WORDS, "a.csv")
    with pytest.raises(ValueError, match=rf"a.csv: {unknown}.0% of its tokens are \[UNK\] in vocab.txt, more than 10%"):
        refuse_unknown(ids, WORDS, "a.csv")


def test_nothing_to_train_on_is_not_refused_here():
    refuse_unknown(np.zeros(0, np.uint16), WORDS, "a.csv")
    refuse_unknown(np.array([CLS, SEP]), WORDS, "a.csv")


def test_shards_are_not_made_with_a_vocabulary_of_another_language(tmp_path):
    (folder := tmp_path / "source/ta").mkdir(parents=True)
    (folder / "0.txt").write_text("doc-1 இன்று காலை மழை பெய்தது. a b a b\n", "utf-8")
    (tmp_path / "vocab.txt").write_bytes(WORDS.file_content())
    flags = ["--text", str(tmp_path), "--output-dir", str(tmp_path / "o"), "--vocab-file", str(tmp_path / "vocab.txt")]
    request = read_flags(ShardRequest, flags, description=None)
    with pytest.raises(ValueError, match=r"55.6% of the tokens are \[UNK\], most often of .*data.train_vocabulary"):
        request.sample_settings(WORDS, request.read_source())

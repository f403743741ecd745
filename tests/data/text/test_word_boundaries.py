"""Whole-word masks of Chinese text, with words found by jieba."""

import io
import re
import sys
from collections import Counter
from importlib import metadata

import numpy as np
import pyarrow.parquet as pq
import pytest

from bert.samples.dataset import PretrainingDataset
from bert.samples.loader import PretrainingLoader
from bert.samples.manifest import read_manifest
from bert.samples.settings import LoaderSettings
from bert.tokenization import segmentation
from bert.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary
from bert.tokenization.wordpiece import WordPieceTokenizer
from data import preprocess_bert_pretrain
from data.preprocessing.balancing import balance
from data.text import word_boundaries
from data.text.sentences import tokenize_documents
from data.text.word_boundaries import encode_words, word_segmenter
from tests.data.test_preprocess import hashes
from tests.support.commands import refused
from tests.support.corpora import LETTERS
from tests.support.corpora import WORDS as ENGLISH

pytest.importorskip("jieba", reason="bash scripts/setup.sh chinese")

SENTENCES = (
    "老船在桥下等待，河水流过石头。",
    "我们在北京大学学习自然语言处理。",
    "他昨天晚上坐火车回到了上海。",
    "The old boats wait under the bridges。",
    "图书馆里有很多关于计算机科学的书。",
    "孩子们喜欢在公园里穿着T恤跳舞。",
    "这条river流向大海，water很冷。",
    "春天的时候，山上开满了花。",
)
MANY = ("北京大学", "图书馆", "我们", "昨天", "石头")  # words of which each character is a token
CHARACTERS = sorted(set(re.findall(r"[\u3000-\uffff]", "".join(SENTENCES))))
WORDS = Vocabulary((*SPECIAL_TOKENS, *CHARACTERS, *LETTERS, *(f"##{letter}" for letter in LETTERS), *".,!", *ENGLISH))
TOKENIZER = WordPieceTokenizer(WORDS)
STATIC = ("--masking", "static", "--whole-word-masking")
JIEBA = (*STATIC, "--word-segmenter", "jieba")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Write vocab.txt and 60 documents of some of the sentences."""
    root = tmp_path_factory.mktemp("chinese")
    (root / "vocab.txt").write_text("".join(token + "\n" for token in WORDS.tokens), encoding="utf-8")
    rng = np.random.default_rng(0)
    lines = [f"{number} " + "".join(rng.choice(SENTENCES, rng.integers(2, 12))) for number in range(60)]
    (root / "text").mkdir()
    (root / "text" / "0.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return root


def run(corpus, sink, *flags, workers=1):
    command = f"--language zh --target-seq-length 64 --block-size 2500 --local-n-workers {workers}".split()
    files = ["--text", corpus / "text", "--sink", sink, "--vocab-file", corpus / "vocab.txt"]
    preprocess_bert_pretrain.main([*map(str, files), *command, *flags])
    return sink


@pytest.fixture(scope="module")
def with_jieba(corpus, tmp_path_factory):
    """Make shards with static masks of whole words that the segmenter found."""
    return run(corpus, tmp_path_factory.mktemp("jieba"), *JIEBA)


def samples(folder) -> list[tuple[list[str], list[int]]]:
    """Return (tokens before masking, masked positions) of each sample."""
    found = []
    for path in sorted(folder.glob("*.parquet")):
        for row in pq.ParquetFile(path).read(use_threads=False).to_pylist():
            tokens = ["[CLS]", *row["A"].split(), "[SEP]", *row["B"].split(), "[SEP]"]
            positions = np.load(io.BytesIO(row["masked_lm_positions"])).tolist()
            for position, label in zip(positions, row["masked_lm_labels"].split(), strict=True):
                tokens[position] = label
            found.append((tokens, positions))
    return found


def occurrences(folder, word: list[str]) -> Counter:
    """Return the number of masked tokens of each occurrence of the word."""
    return Counter(
        sum(place in positions for place in range(start, start + len(word)))
        for tokens, positions in samples(folder)
        for start in range(len(tokens))
        if tokens[start : start + len(word)] == word
    )


def test_each_word_is_masked_whole_or_not_at_all_and_the_tokens_are_those_without_a_segmenter(
    corpus, tmp_path, with_jieba
):
    without = run(corpus, tmp_path / "without", *STATIC)
    for word in [*map(list, MANY), ["t", "恤"]]:
        assert set(occurrences(with_jieba, word)) == {0, len(word)}, word
    assert len(occurrences(without, list("北京大学"))) > 2  # each character by itself
    assert [tokens for tokens, _ in samples(with_jieba)] == [tokens for tokens, _ in samples(without)]
    settings = read_manifest(without).settings
    assert settings["word_segmenter"] is None and "word_segmenter_version" not in settings


def test_the_budget_and_the_limit_of_predictions_hold(corpus, tmp_path, with_jieba):
    lengths, counts = np.array([(len(tokens), len(positions)) for tokens, positions in samples(with_jieba)]).T
    assert (counts <= np.maximum(1, np.rint(0.15 * lengths))).all() and counts.min() >= 1
    assert counts.sum() / lengths.sum() == pytest.approx(0.15, abs=0.01)
    limited = samples(run(corpus, tmp_path / "limited", *JIEBA, "--max-predictions-per-seq", "4"))
    assert max(len(positions) for _, positions in limited) == 4


def test_workers_do_not_change_the_bytes_and_the_manifest_tells_the_segmenter(corpus, tmp_path):
    flags = (*JIEBA, "--num-shards", "3", "--bin-size", "32", "--output-format", "arrow")
    one, two = (run(corpus, tmp_path / str(workers), *flags, workers=workers) for workers in (1, 2))
    assert hashes(one) == hashes(two)
    manifest = read_manifest(one)
    assert manifest.settings["word_segmenter"] == "jieba"
    assert manifest.settings["word_segmenter_version"] == metadata.version("jieba")
    assert manifest.counts["words of several characters, some Chinese"] > 100


def test_words_with_letters_are_whole_and_english_is_left_to_wordpiece():
    segmenter = word_segmenter("jieba")
    assert segmenter.parts("他买了T恤，A股上涨")[1::2] == ["T恤", "A股", "上涨"]
    assert segmenter.parts("T恤")[1::2] == ["T恤"] and segmenter.parts("aT恤") == ["aT恤"]  # BERT takes "aT" together
    assert segmenter.parts("The old-fashioned boats wait 3.14 s.") == ["The old-fashioned boats wait 3.14 s."]
    texts = ["The unwater boats."]
    assert encode_words(texts, TOKENIZER, segmenter)[2].tolist() == [
        WORDS.tokens[token].startswith("##") for token in TOKENIZER.encode(texts[0])
    ]


def test_boundaries_stay_with_their_tokens_where_sentences_are_empty():
    texts = ["", "\x00。我们", "  ", "图书馆。\u200b。石头"]
    documents = tokenize_documents(enumerate(texts), TOKENIZER, "zh", Counter(), word_segmenter("jieba"))
    shown = [
        WORDS.tokens[token] + "~" * bool(more)
        for token, more in zip(documents.token_ids, documents.continues, strict=True)
    ]
    assert "".join(shown) == "。我们~图书~馆~。。石头~"


def test_what_cannot_be_is_refused_before_any_text_is_read(corpus, tmp_path, monkeypatch):
    for flags, rule in ((JIEBA[2:], "masking='dynamic' puts none"), ((*JIEBA[:2], *JIEBA[3:]), "--whole-word-masking")):
        with refused(rule):
            run(corpus, tmp_path / "out", *flags)
    monkeypatch.setattr(segmentation.metadata, "version", lambda name: metadata.distribution("no " + name).version)
    with refused("scripts/setup.sh"):
        run(corpus, tmp_path / "out", *JIEBA)
    assert not (tmp_path / "out").exists()


LOADING = LoaderSettings(max_seq_length=64, max_predictions_per_seq=10)
DYNAMIC = LOADING.model_copy(update={"masking": "dynamic", "whole_word_masking": True})


def dynamic_occurrences(folder, word: list[str], settings) -> Counter:
    """Return the number of masked tokens of each occurrence of the word in the batches of a training."""
    dataset = PretrainingDataset(folder, WORDS, settings, seed=42)
    counts: Counter = Counter()
    batches = PretrainingLoader(dataset, global_batch_size=16, micro_batch_size=16).batches()
    for _, batch in zip(range(dataset.num_samples // 16), batches, strict=False):
        (micro_batch,) = batch.micro_batches
        feed = micro_batch.feed
        ids, real = feed["input_ids"].reshape(-1).copy(), feed["masked_lm_weights"] > 0
        masked = np.zeros(len(ids), bool)
        masked[feed["masked_lm_positions"][real]] = True
        ids[feed["masked_lm_positions"][real]] = feed["masked_lm_labels"][real]
        wanted = [WORDS.id_of(token) for token in word]
        for start in range(len(ids) - len(word)):
            if ids[start : start + len(word)].tolist() == wanted:
                counts[int(masked[start : start + len(word)].sum())] += 1
    batches.close()
    return counts


@pytest.mark.parametrize(
    "flags", [JIEBA[3:], (*JIEBA, "--output-format", "arrow")], ids=["dynamic parquet", "static arrow"]
)
def test_dynamic_masks_cover_the_words_that_the_shards_record(corpus, tmp_path, flags):
    folder = run(corpus, tmp_path / "out", *flags)
    for word in [*map(list, MANY[:3]), ["t", "恤"]]:
        assert set(dynamic_occurrences(folder, word, DYNAMIC)) == {0, len(word)}, word
    plain = DYNAMIC.model_copy(update={"whole_word_masking": False})
    assert len(dynamic_occurrences(folder, list("北京大学"), plain)) > 2


def test_the_words_survive_balancing(corpus, tmp_path):
    folder = run(corpus, tmp_path / "out", *JIEBA[3:])
    balance(folder, tmp_path / "balanced", 2)
    assert set(dynamic_occurrences(tmp_path / "balanced", list("图书馆"), DYNAMIC)) == {0, 3}


def test_the_dictionary_is_not_kept_in_the_common_temporary_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "jieba.cache").write_bytes(b"rubbish")
    assert word_boundaries.WordSegmenter().parts("图书馆")[1::2] == ["图书馆"]
    assert [path.name for path in tmp_path.iterdir()] == ["jieba.cache"] and "jieba" in sys.modules

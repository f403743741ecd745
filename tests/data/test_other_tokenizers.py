"""Tokenizers other than BERT's, from text to features: shards with whole-word masks, pairs, answers, tags."""

import numpy as np
import pytest

from bert.finetuning.ner.conll import TaggedText
from bert.finetuning.ner.features import NO_WORD, token_features
from bert.finetuning.squad.answer_settings import ReaderSettings
from bert.finetuning.squad.examples import Question, SquadExamples
from bert.finetuning.squad.features import build_features
from bert.labels.features import sentence_features
from bert.samples.dataset import PretrainingDataset
from bert.samples.settings import LoaderSettings
from bert.tokenization.library import text_tokenizer
from bert.tokenization.vocabulary_files import read_vocabulary
from data import inspect, preprocess_bert_pretrain
from tests.support import tokenizer_files
from tests.support.commands import refused
from tests.support.tokenizer_files import TEXT

KINDS = ("roberta", "modernbert", "unigram", "wordpiece")


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    folder = tmp_path_factory.mktemp("source")
    (folder / "en").mkdir()
    words, rng = " ".join(TEXT).split(), np.random.RandomState(7)
    lines = [f"id-{number} {' '.join(rng.permutation(words))}\n" for number in range(8)]
    (folder / "en/0.txt").write_text("".join(lines), encoding="utf-8")
    return folder


def shards(source, file, folder, *more):
    words = ["--text", str(source), "--sink", str(folder), "--vocab-file", str(file), "--objective", "mlm"]
    words += "--target-seq-length 32 --num-shards 1 --local-n-workers 1".split()
    preprocess_bert_pretrain.main([*words, *more])


@pytest.mark.parametrize("kind", KINDS)
def test_shards_hold_the_text_and_masks_of_whole_words(source, kind, tmp_path, capsys):
    file = tokenizer_files.write(tmp_path, kind)
    tokens = read_vocabulary(file)
    shards(source, file, tmp_path / "shards", "--masking", "static", "--whole-word-masking")
    settings = LoaderSettings(max_seq_length=32, max_predictions_per_seq=8, masking="static")
    dataset = PretrainingDataset(tmp_path / "shards", tokens, settings, seed=1, next_sentence=False)
    table, continues = dataset.load_shard(0), tokens.continuations()
    plain = table.unmasked()
    assert {*plain.token_ids[plain.offsets[:-1]]} == {tokens.id_of("[CLS]")}
    inner = plain.token_ids[plain.offsets[0] + 1 : plain.offsets[1] - 1].tolist()
    read = tokens.library_tokenizer().decode([index for index in inner if index != tokens.id_of("[SEP]")])
    pieces = "".join((source / "en/0.txt").read_text(encoding="utf-8").split())
    lowered = pieces.lower() if tokens.normalization().lowercase else pieces
    assert len(inner) > 20 and max("".join(read.split()).split("."), key=len) in lowered
    masked = np.repeat(table.offsets[:-1], table.masks.counts()) + table.masks.positions
    after = masked[masked + 1 < len(plain.token_ids)] + 1
    cut = continues[plain.token_ids[after]] & ~np.isin(after, masked)
    assert cut.sum() <= len(plain.offsets) - 1, "a word is cut only where none fits"
    with pytest.raises(SystemExit) as ended:
        inspect.main([str(tmp_path / "shards"), "--vocab-file", str(file)])
    assert ended.value.code == 0 and "no problem found" in capsys.readouterr().out


def test_what_needs_a_wordpiece_is_refused(source, tmp_path):
    file = tokenizer_files.write(tmp_path, "roberta")
    with refused("--word-segmenter=jieba: the tokens of .* are for a WordPiece; leave it out"):
        shards(source, file, tmp_path / "shards", "--word-segmenter", "jieba", "--language", "zh")
    with refused("lower-casing=true contradicts .* omit the flag"):
        shards(source, file, tmp_path / "shards", "--lowercase")


@pytest.mark.parametrize("kind", KINDS)
def test_features_are_framed_as_the_library_frames_them(kind, tmp_path):
    tokens = read_vocabulary(tokenizer_files.write(tmp_path, kind))
    library, tokenizer = tokens.library_tokenizer(), text_tokenizer(tokens)
    table, _ = sentence_features(tokenizer, [TEXT, TEXT[::-1]], 400)
    for row, pair in enumerate(zip(TEXT, TEXT[::-1], strict=True)):
        assert table.input_ids[slice(*table.offsets[row : row + 2])].tolist() == library.encode(*pair).ids
    cut, _ = sentence_features(tokenizer, [TEXT, TEXT[::-1]], 20)
    assert (cut.lengths() == 20).all()
    settings = ReaderSettings(max_seq_length=60, doc_stride=12, max_query_length=12)
    asked = SquadExamples("one", (TEXT[0],), (Question("0", "Is it old?", 0),))
    features, _ = build_features(asked, tokens, settings, training=False)
    first, place = features.first_lengths[0], TEXT[0].index("Paris")
    starts = features.token_starts[features.paragraph_starts[0] :].tolist()
    paragraph = features.input_ids[first : features.offsets[1] - 1]
    expected = tokenizer.encode(TEXT[0])[: len(paragraph)]
    assert place in starts and paragraph.tolist() == expected
    assert features.lengths().max() <= 60
    tagged = TaggedText(
        [], np.zeros(0, np.int64), ["word1", "café", "."], np.array([0, 3]), np.zeros(1, np.int64), None, "iob2"
    )
    words, _ = token_features(tokenizer, tagged, 40)
    assert sorted(words.word_indices[words.word_indices != NO_WORD].tolist()) == [0, 1, 2]
    assert words.input_ids[1:-1].tolist() == tokenizer.encode_words(["word1", "café", "."])[0].tolist()

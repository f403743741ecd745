"""Other tokenizers than BERT's from a tokenizer.json: ids and characters equal the library's; refusals."""

import json

import numpy as np
import pyarrow as pa
import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from bert.conversion.vocabularies import Tokens, write_tokenizer
from bert.labels.features import sentence_features
from bert.samples.masking import MaskingRule, choose_positions
from bert.tokenization import text_process
from bert.tokenization.library import LibraryVocabulary, text_tokenizer
from bert.tokenization.normalization import CASED, Normalization
from bert.tokenization.text_process import UnreadableTextError
from bert.tokenization.token_strings import TokenStrings
from bert.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary
from bert.tokenization.vocabulary_files import read_vocabulary, vocabulary_copy
from bert.tokenization.wordpiece import reference_tokenizer, utf8
from tests.support import tokenizer_files
from tests.support.corpora import vocabulary
from tests.support.tokenizer_files import TEXT

KINDS = ("roberta", "modernbert", "unigram", "wordpiece")


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def file(kind, tmp_path):
    return tokenizer_files.write(tmp_path, kind)


def special(tokens: Vocabulary) -> list[str]:
    return [tokens.name_of(name) for name in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")]


def test_special_tokens_have_berts_names_whatever_the_file_calls_them(kind, file):
    tokens, library = read_vocabulary(file), Tokenizer.from_file(str(file))
    assert isinstance(tokens, LibraryVocabulary) and len(tokens) == library.get_vocab_size(with_added_tokens=True)
    names = ["<pad>", "<unk>", "<s>", "</s>", "<mask>"]
    expected = names if kind in ("roberta", "unigram") else ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert special(tokens) == expected
    assert tokens.id_of("[MASK]") == library.token_to_id(expected[-1])
    assert tokens.pair_separators() == (2 if kind == "roberta" else 1)
    assert tokens.normalization().lowercase == (kind == "wordpiece")
    assert not {tokens.id_of("[MASK]"), tokens.id_of("[PAD]")} & {*tokens.replacement_ids()}
    assert vocabulary_copy(file) == ("tokenizer.json", file.read_bytes())


def test_ids_are_the_librarys_and_special_tokens_in_a_text_are_text(file):
    tokens, library = read_vocabulary(file), Tokenizer.from_file(str(file))
    tokenizer = text_tokenizer(tokens)
    ids, offsets = tokenizer.encode_texts([*TEXT, ""])
    for number, text in enumerate(TEXT):
        expected = library.encode(text, add_special_tokens=False).ids
        assert ids[offsets[number] : offsets[number + 1]].tolist() == tokenizer.encode(text) == expected
    assert offsets[-1] == offsets[-2]
    mask = tokens.id_of("[MASK]")
    assert mask not in tokenizer.encode(f"a {tokens.name_of('[MASK]')} b")
    assert tokenizer.encode_masked("is [MASK].") == library.encode(f"is {special(tokens)[-1]}.").ids[1:-1]


def test_pairs_have_the_librarys_ids_and_token_types(file):
    pair, library = ("Cats sleep", "dogs bark"), Tokenizer.from_file(str(file))
    table, _ = sentence_features(text_tokenizer(read_vocabulary(file)), [[text] for text in pair], 32)
    expected = library.encode(*pair)
    feed = table.feed(np.array([0]), len(expected), with_labels=False)
    assert (feed["input_ids"][0].tolist(), feed["token_type_ids"][0].tolist()) == (expected.ids, expected.type_ids)


def test_sentences_of_a_text_have_the_tokens_of_the_whole(kind, file):
    tokenizer, text = text_tokenizer(read_vocabulary(file)), "The city is old. Is the café good? Cats sleep."
    sentences = ["The city is old. ", "Is the café good?\n", "Cats sleep."]
    block, boundaries = utf8(sentences)
    ids, offsets = tokenizer.encode_bytes(block, boundaries)
    assert ids.tolist() == tokenizer.encode(text)
    assert np.all(np.diff(offsets) > 0)


def test_characters_of_tokens_are_those_of_the_text_without_spaces(file):
    tokens = read_vocabulary(file)
    encoded = text_tokenizer(tokens).encode_with_offsets(TEXT)
    assert encoded.ids.tolist() == text_tokenizer(tokens).encode_texts(TEXT)[0].tolist()
    for number, text in enumerate(TEXT):
        places = slice(*encoded.offsets[number : number + 2])
        spans = list(zip(encoded.starts[places].tolist(), encoded.ends[places].tolist(), strict=True))
        assert all(text[start:end].strip() == text[start:end] or text[start:end].isspace() for start, end in spans)
        covered = {place for start, end in spans for place in range(start, end)}
        assert {place for place, letter in enumerate(text) if not letter.isspace()} <= covered


def test_tokens_survive_the_text_columns_of_shards(file):
    """Every token survives, also a token of white space alone."""
    tokens = read_vocabulary(file)
    strings, ids = TokenStrings(tokens), np.arange(len(tokens))
    joined = strings.join(ids, np.array([0, 7]), np.array([7, len(ids)]))
    back, offsets = strings.split(pa.array(joined.to_pylist()), "A")
    assert back.tolist() == ids.tolist() and offsets.tolist() == [0, 7, len(ids)]


def test_words_of_masks_and_their_text(kind, file):
    tokens = read_vocabulary(file)
    tokenizer, continues = text_tokenizer(tokens), tokens.continuations()
    rebuilt, words = "", 0
    ids = tokenizer.encode("The kitten, naïvely.")
    for index in ids:
        rebuilt = tokens.insert(rebuilt, tokens.shown(index))
    words = 1 + int((~continues[ids[1:]]).sum())
    assert words == 5, "punctuation is a word"
    assert (
        tokens.knows_words()
        and MaskingRule.of(tokens, masked_lm_ratio=0.15, max_predictions_per_seq=5, whole_word=True).continuations
        is not None
    )
    if kind in ("roberta", "modernbert"):
        assert tokens.insert("of ", " Paris") == "of Paris" and tokens.insert("play ", "ing") == "playing"
        assert tokens.shown(tokenizer.encode("a is")[-1]) == " is"


def test_whole_words_are_refused_where_words_are_unknown(tmp_path):
    file = tokenizer_files.write(tmp_path, "roberta")
    content = json.loads(file.read_text())
    content["pre_tokenizer"] = {"type": "Whitespace"}
    content["model"]["unk_token"] = "<unk>"
    file.write_text(json.dumps(content))
    tokens = read_vocabulary(file)
    assert not tokens.continuations().any()
    with pytest.raises(ValueError, match="whole_word_masking=true: the tokens of .* do not tell where words begin"):
        MaskingRule.of(tokens, masked_lm_ratio=0.15, max_predictions_per_seq=5, whole_word=True)


FRAME = [{"SpecialToken": {"id": "[NOWHERE]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
PANICS = {"type": "TemplateProcessing", "single": FRAME, "pair": FRAME, "special_tokens": {}}  # the library, in Rust


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda c: c["model"].update(type="Nonsense"), "is not a tokenizer.json that can be read"),
        (lambda c: c.update(pre_tokenizer={"type": "Whitespace"}), "has no token for unknown characters"),
        (lambda c: c["model"].update(vocab=3), "is not a tokenizer.json that can be read"),
        (lambda c: c.pop("model"), "is not a tokenizer.json that can be read"),
        (lambda c: c["model"]["vocab"].update({"far": 9000}), "do not run from 0 without gaps"),
        (
            lambda c: c["added_tokens"][-1].update(id=9000),
            r"has the id 9000, the library makes it \d+; use the tokenizer",
        ),
        (lambda c: c.update(post_processor=PANICS), "is not a tokenizer.json that can be read .no entry found"),
        (
            lambda c: c["post_processor"].update(cls=["<unk>", 3]),
            r"frames a pair of texts as <unk> .* must as \[CLS\] a",
        ),
    ],
)
def test_what_is_no_tokenizer_of_a_bert_is_refused(tmp_path, change, text):
    file = tokenizer_files.write(tmp_path, "roberta")
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=text):
        read_vocabulary(file)


@pytest.mark.parametrize("own", [None, {"add_prefix_space": True, "trim_offsets": False, "use_regex": True}])
def test_a_tokenizer_that_frames_no_text_is_framed_as_berts(tmp_path, own):
    """ByteLevelBPETokenizer saves a post-processor that adds no token."""
    file = tokenizer_files.write(tmp_path, "roberta")
    content = json.loads(file.read_text())
    file.write_text(json.dumps({**content, "post_processor": own and {"type": "ByteLevel", **own}}))
    tokens = read_vocabulary(file)
    assert (tokens.pair_separators(), tokens.second_type()) == (1, 1)
    (tmp_path / "shared").mkdir()
    write_tokenizer(tmp_path / "shared", Tokens(tokens, CASED), 64)
    written = Tokenizer.from_file(str(tmp_path / "shared/tokenizer.json"))
    assert written.encode("is", "is").tokens == ["<s>", "is", "</s>", "is", "</s>"]


@pytest.mark.parametrize("lowercase", [True, False])
def test_berts_rules_with_another_case_or_added_tokens_are_the_librarys(tmp_path, lowercase):
    case = Normalization(lowercase)
    file, library = tmp_path / "tokenizer.json", reference_tokenizer(vocabulary(), case)
    library.normalizer = case.normalizer()
    library.add_special_tokens(list(SPECIAL_TOKENS))
    library.save(str(file))
    is_plain = not isinstance(read_vocabulary(file), LibraryVocabulary)
    assert is_plain == (case == vocabulary().normalization())
    library.add_tokens(["New Sea"])
    library.save(str(file))
    tokens, text = read_vocabulary(file), "The New Sea is a River"
    assert isinstance(tokens, LibraryVocabulary) and tokens.normalization() == case
    assert text_tokenizer(tokens).encode(text) == library.encode(text, add_special_tokens=False).ids


def test_a_unigram_without_an_unknown_token_is_refused(tmp_path):
    file = tokenizer_files.write(tmp_path, "unigram")
    content = json.loads(file.read_text())
    content["model"]["unk_id"] = None
    file.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="has no token for unknown characters .*unk_token, unk_id"):
        read_vocabulary(file)


def test_words_of_a_text_without_spaces(tmp_path):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.NFKC(), pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=60,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
        unk_token="<unk>",
        show_progress=False,
    )
    text = "東京は日本の首都です。大阪は大きい都市です。「京都」も、古い都です。"
    tokenizer.train_from_iterator([text] * 30, trainer)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    tokens = read_vocabulary(tmp_path / "tokenizer.json")
    ids = text_tokenizer(tokens).encode(text)
    assert not tokens.continuations()[ids].any()
    rule = MaskingRule.of(tokens, masked_lm_ratio=0.15, max_predictions_per_seq=5, whole_word=True)
    row = np.array([tokens.id_of("[CLS]"), *ids[:20], tokens.id_of("[SEP]")])
    for continues in (rule.continuations[row], np.arange(len(row)) > 1):  # the second: one long word
        arguments = rule.separators[row], np.array([0]), np.array([len(row)]), continues
        drawn = [choose_positions(rule, np.array([key], np.uint64), *arguments)[0].tolist() for key in range(40)]
        assert {place for places in drawn for place in places} == set(range(1, 21))
        assert all(len(places) == 3 for places in drawn)


@pytest.mark.parametrize("role", ["<mask>", "<pad>", "<s>"])
def test_a_missing_special_token_is_named(tmp_path, role):
    file = tokenizer_files.write(tmp_path, "modernbert")
    file.write_bytes(tokenizer_files.content("roberta").replace(f'"{role}"'.encode(), b'"<other>"'))
    with pytest.raises(ValueError, match=rf"none of its \d+ tokens is \[\w+\] or {role}; .* use the tokenizer that"):
        read_vocabulary(file)


def test_the_size_of_a_model_may_be_rounded_up(tmp_path):
    tokens = read_vocabulary(tokenizer_files.write(tmp_path, "roberta", 330))
    for size in (330, 336, 384):
        tokens.check_model_size(size)
    for size in (329, 385):
        with pytest.raises(
            ValueError, match=f"has 330 tokens, but the model's vocab_size is {size}; .*from 330 to 384"
        ):
            tokens.check_model_size(size)
    with pytest.raises(ValueError, match="lower-casing=true contradicts .* itself keeps capitals; omit the flag"):
        tokens.normalization(lowercase=True)


def split_by(regex: str) -> dict:
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}


@pytest.mark.parametrize(
    ("change", "text", "seconds", "reason"),
    [
        ({"pre_tokenizer": split_by("(a+)+$")}, "a" * 40 + "!", 20, "retry-limit-in-match over"),  # a panic of Rust
        ({"pre_tokenizer": split_by(r"(?<x>a\g<x>?b|a\g<x>?c)")}, "a" * 1000, 0.4, "more than 0 s of CPU time"),
    ],
)
def test_a_text_that_would_end_or_stop_the_process_is_named_and_others_are_split(
    tmp_path, monkeypatch, change, text, seconds, reason
):
    file = tokenizer_files.write(tmp_path, "unigram")
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    tokenizer = text_tokenizer(read_vocabulary(file))
    monkeypatch.setattr(text_process, "_LEAST_SECONDS", seconds)
    for encode in (tokenizer.encode_texts, tokenizer.encode_with_offsets):
        with pytest.raises(UnreadableTextError, match=f"the text '{text[:20]}.* {file}.*{reason}"):
            encode(["cats", text, "dogs"])
    assert tokenizer.encode("cats") == Tokenizer.from_file(str(file)).encode("cats", add_special_tokens=False).ids

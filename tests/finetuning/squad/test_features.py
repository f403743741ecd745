"""Windows of paragraphs: examples by hand, and generated files against the definition."""

import json
import random
from types import SimpleNamespace

import numpy as np
import pytest

from bert.finetuning.squad import features as squad_features
from bert.finetuning.squad.answer_settings import ReaderSettings
from bert.finetuning.squad.examples import read_squad
from bert.finetuning.squad.features import SKIPPED, SquadFeatures, build_features
from bert.finetuning.squad.task import SquadTask
from bert.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary
from bert.tokenization.wordpiece import reference_tokenizer
from tests.support import oracle_squad
from tests.support.squad_files import file_of, generated, paragraph, question

WORDS = (
    "the nile is a long river japan ##ese ice - cream . ? what who how caf ##e 1 , 000 s ' ##s sea in egypt and 東 京"
).split()
VOCABULARY = Vocabulary((*SPECIAL_TOKENS, *WORDS))


def build(path, training=True, version_2=False, **settings):
    examples = read_squad(path, version_2=version_2, labelled=training)
    values = {"max_seq_length": 64, "max_query_length": 8, **settings}
    return build_features(examples, VOCABULARY, ReaderSettings(**values), training)


def tokens(features: SquadFeatures, window: int) -> str:
    ids = features.input_ids[features.offsets[window] : features.offsets[window + 1]]
    return " ".join(VOCABULARY.tokens[index] for index in ids)


def answer(features: SquadFeatures, window: int) -> str:
    first, last = features.labels["start_positions"][window], features.labels["end_positions"][window]
    return " ".join(tokens(features, window).split(" ")[first : last + 1])


@pytest.mark.parametrize(
    ("text", "start", "expected"),
    [
        ("Japan", 0, "japan"),  # ends within the word, at a piece
        ("Jap", 0, "japan"),  # ends within a piece: the piece is the nearest
        ("ese", 5, "##ese"),
        ("ice", 9, "ice"),
        ("cream", 13, "cream"),
        ("ice-cream", 9, "ice - cream"),
        ("café's", 19, "[UNK] ' s"),
        ("1,000", 26, "1 , 000"),
        ("000 東", 28, "000 東"),
        ("京", 33, "京"),
        (" 1", 25, "1"),
        ("1,000 ", 26, "1 , 000"),  # white space belongs to no token
    ],
)
def test_answers_that_begin_or_end_within_words(text, start, expected, tmp_path):
    context = "Japanese ice-cream cafè's 1,000 東京.".replace("è", "é")
    assert context[start : start + len(text)] == text
    features, _ = build(file_of(tmp_path / "f.json", paragraph(context, question("q", "What?", (text, start)))))
    assert answer(features, 0) == expected.replace("[UNK]", "caf ##e")


def test_long_paragraphs_are_read_in_windows_by_hand(tmp_path):
    context = "the nile is a long river in egypt and the sea is a sea ."  # 15 tokens
    file = file_of(tmp_path / "f.json", paragraph(context, question("q", "What is long?", ("long river", 14))))
    # 4 tokens of question and 3 special ones leave 5 of 12; a window every 3 tokens: 0-4, 3-7, 6-10, 9-13, 12-14.
    features, counts = build(file, max_seq_length=12, doc_stride=3)
    assert [tokens(features, row).split(" [SEP] ")[1].removesuffix(" [SEP]") for row in range(len(features))] == [
        "the nile is a long",
        "a long river in egypt",
        "in egypt and the sea",
        "the sea is a sea",
        "a sea .",
    ]
    assert [answer(features, row) for row in range(5)] == ["[CLS]", "long river", "[CLS]", "[CLS]", "[CLS]"]
    assert counts == dict.fromkeys(SKIPPED, 0) | {
        "questions": 1,
        "windows": 5,
        "truncated_questions": 0,
        "long_paragraph": 1,
        "long_answers": 0,
        "windows_without_answer": 4,
    }
    spans = zip(features.labels["start_positions"].tolist(), features.labels["end_positions"].tolist(), strict=True)
    assert [*spans] == [(0, 0), (7, 8), (0, 0), (0, 0), (0, 0)]
    assert features.pad_id == 0 and features.second_type == 1
    assert "4 windows do not contain the answer" in "\n".join(SquadTask.describe(None, file, counts))


def test_answers_that_are_too_long_to_be_predicted_are_counted_and_said(tmp_path):
    context, long = "the nile is a long river in egypt", ("the nile is a long", 0)
    both = question("b", "What?", long, ("nile", 4))
    file = file_of(tmp_path / "f.json", paragraph(context, question("q", "What?", long), both))
    assert build(file, max_answer_length=5)[1]["long_answers"] == 0
    assert build(file, max_answer_length=4)[1]["long_answers"] == 2
    _, counts = build(file, training=False, max_answer_length=4)
    assert counts["long_answers"] == 1, "the other one of b can be predicted"
    task = SimpleNamespace(_config=SimpleNamespace(data=SimpleNamespace(max_answer_length=4)))
    lines = "\n".join(SquadTask.describe(task, file, counts))
    assert "1 right answers are longer than --max-answer-length 4 and are never predicted; raise it" in lines


def test_a_question_is_cut_and_a_stride_is_never_longer_than_the_window(tmp_path):
    file = file_of(tmp_path / "f.json", paragraph("the " * 30, question("q", "who " * 20, ("the", 0))))
    features, counts = build(file, max_query_length=4, max_seq_length=16, doc_stride=500)
    assert counts["truncated_questions"] == 1 and features.first_lengths.tolist() == [6, 6, 6, 6]
    assert (features.lengths() - features.first_lengths - 1).tolist() == [9, 9, 9, 3]


def test_what_cannot_be_learned_is_skipped_and_counted_in_training_only(tmp_path):
    good = [question(f"g{number}", "What?", ("Nile", 4)) for number in range(6)]
    file = file_of(
        tmp_path / "f.json",
        paragraph(
            "The Nile. \u200b",
            *good,
            question("a", "Who?", ("Nile", 5)),
            question("b", "Who?", ("\u200b", 10)),
            question("c", " ", ("Nile", 4)),
            question("e", "Who?", ("Nile", -5)),
            question("f", "?", ("Nile", 10**30)),
        ),
        paragraph("", question("d", "What?", ("x", 0))),
    )
    features, counts = build(file)
    assert features.examples.tolist() == [0, 1, 2, 3, 4, 5]
    assert (counts["misplaced_answer"], counts["answer_without_token"]) == (3, 1)
    assert (counts["empty_question"], counts["empty_paragraph"]) == (1, 1)
    features, counts = build(file, training=False)
    assert features.examples.tolist() == list(range(12)) and sum(counts.get(name, 0) for name in SKIPPED) == 0


def test_a_paragraph_that_just_fits_is_one_window_and_a_token_more_makes_two(tmp_path):
    """Questions of the longest length stay whole; an answer of the greatest length is not counted as too long."""
    for number, windows in ((9, 1), (10, 2)):
        context = " ".join(["the"] * number)
        file = file_of(tmp_path / "f.json", paragraph(context, question("q", "who who who who", (context[:11], 0))))
        features, counts = build(file, max_query_length=4, max_seq_length=16, doc_stride=3, max_answer_length=3)
        assert len(features) == windows and counts["long_paragraph"] == windows - 1
        assert counts["truncated_questions"] == counts["long_answers"] == 0
        assert features.lengths().tolist() == [16, 14][:windows]


def test_an_answer_at_the_first_word_is_counted_as_one(tmp_path):
    """Four of its five windows do not hold the answer; a question without an answer has no answer to miss."""
    context = "the nile is a long river in egypt and the sea is a sea ."
    first, none = question("q", "What is long?", ("the", 0)), question("n", "What is long?", is_impossible=True)
    file = file_of(tmp_path / "f.json", paragraph(context, first, none))
    features, counts = build(file, version_2=True, max_seq_length=12, doc_stride=3)
    assert len(features) == 10 and counts["windows_without_answer"] == 4
    assert features.labels["start_positions"].tolist() == [6, *[0] * 9]  # [CLS] what is long ? [SEP]


def test_half_of_the_questions_are_enough_to_train_on(tmp_path):
    for good, bad in ((2, 2), (1, 2)):
        questions = [question(f"g{number}", "What?", ("Nile", 4)) for number in range(good)]
        questions += [question(f"b{number}", "What?", ("Nile", 5)) for number in range(bad)]
        file = file_of(tmp_path / "f.json", paragraph("The Nile.", *questions))
        if good == bad:
            assert len(build(file)[0]) == 2
        else:
            with pytest.raises(
                ValueError, match=r"most of its 3 questions cannot be trained on \(2 misplaced answer\)"
            ):
                build(file)


def test_a_file_whose_offsets_are_wrong_throughout_is_refused(tmp_path):
    file = file_of(
        tmp_path / "f.json", paragraph("The Nile.", *(question(f"q{n}", "What?", ("Nile", 5)) for n in range(4)))
    )
    with pytest.raises(
        ValueError, match=r"f.json: most of .* \(4 misplaced answer\); .* id 'q0' has 'Nile' at 5, where .* 'ile.'"
    ):
        build(file)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"doc_stride": 0}, "doc_stride"),
        ({"max_seq_length": 11}, "max_seq_length=11 must leave room .* max_query_length=8"),
    ],
)
def test_settings_that_cannot_work_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        ReaderSettings(**{"max_seq_length": 64, "max_query_length": 8, **changes})


@pytest.mark.parametrize("version_2", [False, True])
def test_windows_and_spans_follow_the_definition_on_generated_files(version_2, tmp_path, monkeypatch):
    monkeypatch.setattr(squad_features, "_EXAMPLES_PER_BLOCK", 7)
    reference, rng = reference_tokenizer(VOCABULARY), random.Random(version_2)
    for case in range(25):
        file = tmp_path / f"{case}.json"
        file.write_text(json.dumps(generated(rng, 6, version_2)))
        sizes = {"max_seq_length": [13, 16, 40], "doc_stride": [1, 3, 8, 50], "max_query_length": [3, 6]}
        settings = ReaderSettings(**{name: rng.choice(values) for name, values in sizes.items()})
        examples = read_squad(file, version_2=version_2)
        features, counts = build_features(examples, VOCABULARY, settings, training=True)
        everything, _ = build_features(examples, VOCABULARY, settings, training=False)
        assert counts["windows"] == len(features)
        rows = iter(range(len(everything)))
        labels = {
            (int(e), int(p)): (int(s), int(t))
            for e, p, s, t in zip(
                features.examples,
                features.paragraph_starts,
                features.labels["start_positions"],
                features.labels["end_positions"],
                strict=True,
            )
        }
        base = np.concatenate([[0], np.cumsum([len(reference.encode(c).ids) for c in examples.contexts])])
        for number, item in enumerate(examples.questions):
            context = reference.encode(examples.contexts[item.context])
            query = reference.encode(item.text).ids
            spans = oracle_squad.windows(
                context.ids, query, settings.max_seq_length, settings.doc_stride, settings.max_query_length
            )
            for start, length in spans:
                row = next(rows)
                own = slice(*everything.offsets[row : row + 2])
                head = [2, *query[: settings.max_query_length], 3]
                assert everything.input_ids[own].tolist() == [*head, *context.ids[start : start + length], 3]
                assert everything.examples[row] == number and everything.first_lengths[row] == len(head)
                if (number, base[item.context] + start) in labels:
                    first, last = labels[number, base[item.context] + start]
                    text, at = item.answers[0] if item.answers else ("", 0)
                    covered = [t for t, (a, b) in enumerate(context.offsets) if a < at + len(text) and b > at]
                    if item.answers and start <= covered[0] and covered[-1] < start + length:
                        assert (first, last) == (covered[0] - start + len(head), covered[-1] - start + len(head))
                    else:
                        assert (first, last) == (0, 0)
        assert next(rows, None) is None

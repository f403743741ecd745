"""Reading SQuAD files: valid files, the errors of invalid files, and 500 damaged files."""

import copy
import json
import random

import pytest

from bert.finetuning.squad.examples import Answer, read_squad
from tests.support.full_counts import times
from tests.support.squad_files import file_of, generated, paragraph, question

NILE = paragraph("The Nile is long.", question("q", "What is long?", ("Nile", 4)))


def raises(pattern):
    return pytest.raises(ValueError, match=pattern)


def test_a_file_is_read_in_its_order(tmp_path):
    file = file_of(tmp_path / "f.json", NILE, paragraph("A sea.", question("s", "Is it?", ("sea", 2), ("A sea", 0))))
    examples = read_squad(file)
    assert examples.contexts == ("The Nile is long.", "A sea.")
    assert [item.id for item in examples.questions] == ["q", "s"] and examples.questions[1].context == 1
    assert examples.questions[1].answers == (Answer("sea", 2), Answer("A sea", 0))


def test_a_byte_order_mark_is_no_error(tmp_path):
    file = file_of(tmp_path / "f.json", NILE)
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert len(read_squad(file)) == 1


def test_unlabelled_files_can_be_predicted(tmp_path):
    file = file_of(tmp_path / "f.json", paragraph("The Nile.", {"id": "q", "question": "What?"}))
    assert read_squad(file, labelled=False).questions[0].answers == ()
    with raises(r"f.json: data.0.paragraphs.0.qas.0 \(id 'q'\) has no 'answers'; it must be a list: add it"):
        read_squad(file)


def entry(**changes):
    """Return one question with members replaced; None removes a member."""
    made = {**question("q", "What?", ("Nile", 4)), **changes}
    return paragraph("The Nile.", {name: value for name, value in made.items() if value is not None})


PLACE = "f.json: data.0.paragraphs.0"
QUESTION = f"{PLACE}.qas.0"


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (entry(id=7.0), f"{QUESTION}.id is 7.0: .* string"),
        (paragraph("x", entry()["qas"][0] | {"id": 7}, entry()["qas"][0] | {"id": "7"}), "qas.1 .* has the id of"),
        (entry(id=""), f"{QUESTION} .* has an empty id; .* its own"),
        (entry(question=None), f"{QUESTION} has no 'question'"),
        (entry(question=["a"]), f"{QUESTION}.question is a list of 1: .* string"),
        (entry(answers={}), f"{QUESTION}.answers is an object of 0: .* array"),
        (entry(answers=[]), rf"{QUESTION} \(id 'q'\) has no answer; SQuAD 1.1 needs at least one; pass --version-2"),
        (entry(answers=["Nile"]), f'{QUESTION}.answers.0 is "Nile": .* object'),
        (entry(answers=[{"text": "Nile", "answer_start": 4.0}]), "answers.0.answer_start is 4.0: .* integer"),
        (entry(answers=[{"text": "Nile", "answer_start": True}]), "answer_start is true: .* integer"),
        (entry(answers=[{"text": "Nile", "answer_start": "4"}]), 'answer_start is "4": .* integer'),
        (entry(answers=[{"text": "Nile"}]), "answers.0 has no 'answer_start'"),
        (entry(answers=[{"text": " ", "answer_start": 3}]), "has an empty answer; an unanswerable question"),
        (entry(answers=[], is_impossible=True), "has the mark is_impossible, as in SQuAD 2.0; pass --version-2"),
        (entry(is_impossible="yes"), f'{QUESTION}.is_impossible is "yes": .* boolean'),
        (entry(question="\ud800"), r"f.json: line 1, column \d+: .*; correct that place"),
        (paragraph(None), f"{PLACE}.context is null: .* string"),
        ({"context": "x"}, f"{PLACE} has no 'qas'"),
        (paragraph("x", *entry()["qas"] * 2), rf"{PLACE}.qas.1 \(id 'q'\) has the id of data.0.paragraphs.0.qas.0"),
    ],
)
def test_an_entry_that_is_wrong_is_named(made, message, tmp_path):
    with raises(message):
        read_squad(file_of(tmp_path / "f.json", made))


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (entry(is_impossible=True), "has the mark is_impossible and 1 answers; remove the mark or the answers"),
        (entry(answers=[], is_impossible=False), "no answer and is not marked as impossible; add an answer, or"),
    ],
)
def test_version_2_entries_that_contradict_themselves_are_refused(made, message, tmp_path):
    with raises(message):
        read_squad(file_of(tmp_path / "f.json", made), version_2=True)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "f.json is empty"),
        (b'{"data": [', r"line 1, column 10: .*; the file seems to be truncated"),
        (b'{"data": "abc', "the file seems to be truncated"),
        (b'{"data": [}]}', "line 1, column 11: .*; correct that place"),
        (b"<html>404</html>", "it is a web page, not JSON"),
        (b'{"data": NaN}', "data is NaN: .* array"),
        (b'{"data": [1e999]}', "data.0 is Infinity: .* object"),
        (b'{"data": [' + b"9" * 5000 + b"]}", "correct that place"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"data": "\0"}', ": 1 NUL characters; name its --encoding"),
        (b"[]", "the file is a list of 0: .* object"),
        (b"{}", "the file has no 'data'"),
        (b'{"data": []}', "holds no question"),
        (b'{"data": [{"paragraphs": []}]}', "holds no question"),
        (b'{"data": [{"id": "a", "question": "b", "context": "c"}]}', r"data.0.* \(id 'a'\) has no 'answers'"),
        (b'{"id": "a", "context": "c"}\n{"id": "b", "question": "c"}\n', "data.0.* has no 'question'"),
        (
            b'[{"id": "a", "question": "q", "context": "c", "answers": {"text": ["a", "b"], "answer_start": [1]}}]',
            "answers.1.answer_start is null",
        ),
    ],
)
def test_a_file_that_is_not_of_the_form_is_refused(content, message, tmp_path):
    (tmp_path / "f.json").write_bytes(content)
    with raises(message):
        read_squad(tmp_path / "f.json")


def test_rows_of_other_libraries_are_read(tmp_path):
    rows = [
        {"id": 1, "context": "The Nile.", "question": "What?", "answers": {"text": ["Nile"], "answer_start": [4]}},
        {"id": 2, "context": "The Nile.", "question": "Which?", "answers": {"text": [], "answer_start": []}},
        {"id": "c", "context": "A\u2028sea.", "question": "Is it?", "answers": [{"text": "sea", "answer_start": 2}]},
    ]
    forms = {
        "lines": "\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n",
        "list": json.dumps(rows, indent=1),
        "data": json.dumps({"version": "2", "data": rows}),
    }
    for name, text in forms.items():
        (file := tmp_path / name).write_text(text)
        examples = read_squad(file, version_2=True)
        assert examples.contexts == ("The Nile.", "A\u2028sea.")
        assert [(item.id, item.context) for item in examples.questions] == [("1", 0), ("2", 0), ("c", 1)]
        assert [item.answers for item in examples.questions] == [(Answer("Nile", 4),), (), (Answer("sea", 2),)]
    (file := tmp_path / "one_line.jsonl").write_text(f"{json.dumps(rows[0])}\n")
    assert [item.id for item in read_squad(file).questions] == ["1"]
    (file := tmp_path / "simpletransformers").write_text(json.dumps([NILE, entry(id="s", is_impossible=False)]))
    assert [item.id for item in read_squad(file, version_2=True).questions] == ["q", "s"]


def test_a_missing_file_is_named_with_what_makes_it(tmp_path):
    with raises("nowhere.json must be an existing SQuAD file; make it with `"):
        read_squad(tmp_path / "nowhere.json")


VALUES = [None, True, -1, 0, 2**70, 1.5, "", "x", "\ud800", [], {}, [[]], [None], {"a": 1}, "é" * 50]


def damaged(content: dict, rng: random.Random) -> bytes:
    """Return the file with one to three members replaced, removed, doubled or moved, or its bytes cut or changed."""
    content = copy.deepcopy(content)
    for _ in range(rng.randint(1, 3)):
        holder = content
        while True:
            keys = list(holder) if isinstance(holder, dict) else range(len(holder))
            if not keys:
                break
            key = rng.choice(list(keys))
            if isinstance(holder[key], (dict, list)) and holder[key] and rng.random() < 0.85:
                holder = holder[key]
                continue
            action = rng.random()
            if action < 0.6:
                holder[key] = copy.deepcopy(rng.choice(VALUES))
            elif action < 0.8:
                del holder[key]
            elif isinstance(holder, list):
                holder.append(copy.deepcopy(holder[key]))
            else:
                holder[key + "x"] = holder.pop(key)
            break
    raw = bytearray(json.dumps(content, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass"))
    damage = rng.random()
    if damage < 0.15:
        del raw[rng.randrange(len(raw)) :]
    elif damage < 0.4:
        for _ in range(rng.randint(1, 5)):
            raw[rng.randrange(len(raw))] = rng.randrange(256)
    return bytes(raw)


def test_damaged_files_are_read_or_refused_in_words(tmp_path):
    """Row 24 in tests/README.md: 60 files (500 with BERT_FULL_FAULTS=1) become features or raise ValueError."""
    from bert.finetuning.squad.answer_settings import ReaderSettings
    from bert.finetuning.squad.features import build_features
    from tests.finetuning.squad.test_features import VOCABULARY

    rng, refused = random.Random(24), 0
    settings = ReaderSettings(max_seq_length=24, doc_stride=8, max_query_length=8)
    number = times(60, 500)
    for case in range(number):
        version_2 = rng.random() < 0.5
        file = tmp_path / f"{case}.json"
        file.write_bytes(damaged(generated(rng, 4, version_2), rng))
        try:
            examples = read_squad(file, version_2=version_2, labelled=rng.random() < 0.8)
            for training in (True, False):
                build_features(examples, VOCABULARY, settings, training)
        except ValueError as error:
            refused += 1
            assert str(file) in str(error) and "; " in str(error) or "is empty" in str(error), error
            assert len(str(error)) < 600
    assert number * 0.3 < refused < number

"""Tests that several columns are joined to the same text in training, prediction and the server."""

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from pydantic import TypeAdapter, ValidationError

from bert.inference.rows import SINGLE_KEYS, RowForm, Rows, texts_of
from bert.inference.trained_model import TrainedModel
from bert.labels.columns import survey, unused_texts
from bert.labels.examples import read_examples
from bert.labels.preparation import prepare
from bert.labels.schema import own_schema
from bert.labels.settings import inferred
from bert.serving.messages import PREDICT, Description
from bert.serving.schemas import request_schemas
from bert.serving.settings import ServerSettings
from data.text.columns import fitting, joined_parts, value_of
from data.text.readers import Reading
from data.text.survey import survey as survey_of_text

COLUMNS = ["id", "date", "author", "subject", "body", "url", "queue"]


def rows(number: int = 40) -> list[list[str]]:
    return [
        [
            str(n),
            f"2024-01-{n % 28 + 1:02}",
            f"Anna Berg{n}",
            f"printer{n} is broken again",
            f"the machine in room{n} does not print and it blinks",
            f"https://example.org/a path/{n}",
            ("tech", "sales")[n % 2],
        ]
        for n in range(number)
    ]


def write(folder, kind: str, names=COLUMNS, content=None):
    file, content = folder / f"a.{kind}", rows() if content is None else content
    frame = pd.DataFrame(content, columns=names)
    if kind == "csv":
        frame.to_csv(file, index=False)
    elif kind == "jsonl":
        file.write_text("".join(json.dumps(row) + "\n" for row in frame.to_dict("records")))
    else:
        frame.to_parquet(file)
    return file


def text_of(folder, names: list[str], content: list[list[object]]) -> str:
    """Return the text column that is inferred for a table."""
    return survey(write(folder, "jsonl", names, content), {"label_column": "queue"}).columns["text_column"]


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_all_columns_of_text_are_joined_in_their_order_and_read_as_one(tmp_path, kind):
    file = write(tmp_path, kind)
    found = survey(file, {})
    assert found.columns == {"text_column": "subject+body", "label_column": "queue"}
    schema = own_schema(("subject+body",), "queue")
    examples = read_examples(file, schema.split("train"), schema)
    joined = "printer7 is broken again\nthe machine in room7 does not print and it blinks"
    assert (examples.texts[0][7], examples.labels[7], len(examples.texts)) == (joined, "sales", 1)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("team", ["a team of some people", "another team of people"]),  # repeated, as classes are
        ("mail", [f"Anna Berg wrote to anna{n}@example.org today" for n in range(40)]),
        ("part", [f"machine in room{n} does not print" for n in range(40)]),
        ("codes", [f"12 {n} 99 37 {n} 4" for n in range(40)]),
        ("words", [f"['printer{n}', 'is', 'broken']" for n in range(40)]),
        ("name", [f"Anna{n} Berg" for n in range(40)]),
        ("a+b", [f"a note about the room{n} and more" for n in range(40)]),
        ("rare", ["a note about the printers"] + [None] * 39),
    ],
)
def test_other_columns_are_not_joined(tmp_path, name, values):
    content = [[row[4], row[6], values[n % len(values)]] for n, row in enumerate(rows())]
    assert text_of(tmp_path, ["body", "queue", name], content) == "body"


def test_a_column_in_a_script_without_spaces_is_a_text_too(tmp_path):
    subject, body = "\u6253\u5370\u673a\u574f\u4e86", "\u6211\u7684\u7535\u8111\u6ca1\u6709\u58f0\u97f3\u4e86"
    content = [[f"{subject}{n}", f"{body}{n}", "ab"[n % 2]] for n in range(30)]
    assert text_of(tmp_path, ["\u6807\u9898", "\u6b63\u6587", "queue"], content) == "\u6807\u9898+\u6b63\u6587"


def test_a_named_column_or_pair_is_read_alone_and_columns_with_another_use_are_no_text(tmp_path):
    file = write(tmp_path, "csv")
    assert survey(file, {"text_column": "body"}).columns["text_column"] == "body"
    assert survey(file, {"label_column": "queue"}, others=["subject"]).columns["text_column"] == "body"
    assert unused_texts(file, "body", ["queue"]) == ["subject"] and not unused_texts(file, "subject+body", [])
    names = ["sentence1", "sentence2", "remark", "label"]
    content = [[f"a{n} b c", f"d{n} e f", f"a remark of word{n}", "xy"[n % 2]] for n in range(20)]
    columns = survey(write(tmp_path, "jsonl", names, content), {}).columns
    assert columns == {"text_column": "sentence1", "text_pair_column": "sentence2", "label_column": "label"}


def test_a_column_that_some_rows_of_json_lack_is_not_joined(tmp_path):
    file, last = write(tmp_path, "jsonl"), {"body": "the last machine is gone for good", "queue": "tech"}
    file.write_text(file.read_text() + json.dumps(last) + "\n")
    assert survey(file, {}).columns["text_column"] == "body"


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"a": "x", "b": "y"}, "x\ny"),
        ({"a": None, "b": "y"}, "y"),
        ({"a": float("nan"), "b": " "}, ""),
        ({"a": None, "b": None}, None),
        ({"a": 3, "b": "y"}, "3\ny"),
        ({"a": ["x"], "b": "y"}, ["x"]),
        ({"a+b": "whole", "a": "x", "b": "y"}, "whole"),
    ],
)
def test_blank_cells_join_nothing_and_a_column_of_that_very_name_is_itself(row, text):
    assert value_of(row, "a+b") == text


def test_a_plus_inside_of_a_name_is_no_join():
    assert joined_parts("c++") == () == joined_parts("c") and joined_parts("a + b") == ("a", "b")
    assert fitting([("a+b",)], ["B", "A"]) == ("A+B",) and fitting([("a+b",)], ["a", "a+b"]) == ("a+b",)
    assert fitting([("a+b",)], ["a"]) is None


def test_a_missing_column_is_named_with_the_flag(tmp_path):
    file, schema = write(tmp_path, "csv"), own_schema(("subjekt+body",), "queue")
    with pytest.raises(ValueError, match=r"no column 'subjekt', only .*did you mean subject\?"):
        read_examples(file, schema.split("train"), schema)
    file, schema = write(tmp_path, "jsonl"), own_schema(("subjekt+body",), "queue")
    with pytest.raises(ValueError, match="no subjekt; the row has"):
        read_examples(file, schema.split("train"), schema)


def request(keys):
    return RowForm(keys, lambda raw: texts_of(raw, keys))


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_a_prediction_joins_as_the_training_and_repeats_the_columns_of_its_table(tmp_path, kind):
    keys = [("subject+body",), ("text",)]
    found = list(Rows([write(tmp_path, kind)], request(keys)))
    assert found[7].texts == ("printer7 is broken again\nthe machine in room7 does not print and it blinks",)
    assert list(found[7].record) == COLUMNS and not found[7].error
    (tmp_path / "few.csv").write_text("body,queue\nx,y\n")
    with pytest.raises(ValueError, match="has no column 'subject' and 'body', only"):
        list(Rows([tmp_path / "few.csv"], request(keys)))


def test_a_part_of_the_joined_columns_is_not_the_text():
    opened = SimpleNamespace(usage=SimpleNamespace(text_columns=("subject+body",)))
    keys = TrainedModel.text_keys(SimpleNamespace(opened=opened, keys=SINGLE_KEYS))
    assert texts_of({"text": "x"}, keys) == ("x",) and texts_of({"subject": "x", "body": None}, keys) == ("x",)
    with pytest.raises(ValueError, match="the object has the keys body; it must have subject and body"):
        texts_of({"body": "x"}, keys)


def test_the_server_takes_the_columns_or_their_text():
    description = Description(
        "m", "sequence-classification", "", ("a", "b"), False, (1,), 128, 5, True, "", "", ("subject+body",)
    )
    schema = TypeAdapter(request_schemas(description, PREDICT, ServerSettings(model="m"))[0])
    given = [{"subject": "one", "body": "two"}, {"subject": None, "body": "two"}, {"text": "three"}, "four"]
    found = schema.validate_python({"inputs": given})
    assert [item.text for item in found.inputs] == ["one\ntwo", "two", "three", "four"]
    bad = [{"body": "two"}, {"subject": "", "body": ""}, {"subject": ["x"], "body": "y"}]
    for wrong in (*bad, {"subject": "x", "body": "y", "z": 1}):
        with pytest.raises(ValidationError):
            schema.validate_python({"inputs": [wrong]})


def test_a_run_goes_on_with_the_columns_with_which_it_began(tmp_path):
    file = write(tmp_path, "csv")
    values = {"train_file": file, "output_dir": tmp_path, "do_train": True}
    assert inferred(values)["text_column"] == "subject+body"
    record = tmp_path / "glue-custom.yaml"
    record.write_text(f"train_file: {file}\ntext_column: body\ntext_pair_column: null\nlabel_column: queue\n")
    assert inferred(values)["text_column"] == "body", "of a version that joined no columns"
    record.write_text("train_file: another.csv\ntext_column: body\nlabel_column: queue\n")
    assert inferred(values)["text_column"] == "subject+body"


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("subject+body", "columns: text 'subject' + 'body' (joined; --text-column body reads one), classes 'queue'"),
        ("body", "not used: 'subject', which holds text too; --text-column subject+body joins them"),
    ],
)
def test_the_plan_says_what_is_joined_and_what_is_not_used(tmp_path, text, note):
    names = ("text_pair_column", "index_column", "group_column", "positive_label", "wanted_recall")
    data = SimpleNamespace(text_column=text, label_column="queue", balance=False, folds=5, **dict.fromkeys(names))
    vars(data).update(encoding=None, language=None, header=True, model_dump=lambda **_: {})
    config = SimpleNamespace(data=data, holds_out=lambda: False)
    schema = own_schema((text,), "queue").with_labels(("sales", "tech"))
    examples = read_examples(write(tmp_path, "csv"), schema.split("train"), schema)
    assert note in prepare(config, schema, examples).notes


def test_own_text_names_the_columns_that_it_does_not_read_and_joins_those_that_are_named(tmp_path):
    write(tmp_path, "csv")
    lines = list(survey_of_text([tmp_path], Reading()).lines())
    note = "column 'body', the longest text ('subject' not used: --text-column subject+body joins them)"
    assert any(note in line for line in lines)
    joined = survey_of_text([tmp_path], Reading(text_field="subject+body"))
    assert joined.documents == {"csv": 40}
    assert "printer7 is broken again\nthe machine in room7" in "".join(joined.sample)


def test_an_empty_group_or_index_is_none(tmp_path):
    frame = pd.DataFrame({"text": list("abcd"), "label": list("xyxy"), "of": [1.0, np.nan, 1.0, np.nan]})
    frame.to_parquet(file := tmp_path / "a.parquet")
    schema = own_schema(("text",), "label", group="of")
    groups = read_examples(file, schema.split("train"), schema).groups
    assert groups[0] == groups[2] and len({*groups}) == 3
    (file := tmp_path / "a.csv").write_text("text,label,name\na,x,\nb,y,second\n")
    schema = own_schema(("text",), "label", index="name")
    assert read_examples(file, schema.split("train"), schema).indices == ["row 0", "second"]
